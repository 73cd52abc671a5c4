#include "prenorm/attention.h"

#include <cmath>

namespace prenorm {
namespace {

Tensor zero_where(const Tensor& hidden, const Tensor& x) {
  return hidden.defined() ? x.masked_fill(hidden, 0.0) : x;
}

Tensor attention_weights(const Tensor& q, const Tensor& k, const AttentionMask::Prepared& mask) {
  Tensor scores = torch::matmul(q / std::sqrt(static_cast<double>(q.size(-1))), k.transpose(-2, -1));  // [B,H,Tq,Tk]
  const Tensor shown = mask.causal ? causal_scores(q.size(2), q.device()) : mask.scores;
  if (shown.defined()) {
    scores = shown.scalar_type() == torch::kBool ? scores.masked_fill(~shown, -INFINITY) : scores + shown;
  }
  return zero_where(mask.dead, torch::softmax(scores, -1));
}

}  // namespace

std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                                     double dropout, bool need_weights) {
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4, "q is ", q.sizes(), " and k ", k.sizes(), ", expected [B, H, T, D/H]");
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(1) == k.size(1) && q.size(3) == k.size(3) && v.sizes() == k.sizes(),
              "q ", q.sizes(), ", k ", k.sizes(), " and v ", v.sizes(), " do not fit together");
  const auto ready = mask.prepare(q.size(0), q.size(1), q.size(2), k.size(2), q.options());
  const auto& hidden = ready.prepared();

  if (!need_weights) {
    const Tensor output = at::scaled_dot_product_attention(
        q, k, v, hidden.scores.defined() ? std::optional(hidden.scores) : std::nullopt, dropout, hidden.causal);
    return {zero_where(hidden.dead, output), Tensor()};
  }
  const Tensor weights = torch::dropout(attention_weights(q, k, hidden), dropout, /*train=*/true);
  return {torch::matmul(weights, v), weights};
}

MultiHeadAttentionImpl::MultiHeadAttentionImpl(const MultiHeadAttentionOptions& options_) : options(options_) {
  MultiHeadAttentionImpl::reset();
}

void MultiHeadAttentionImpl::reset() {
  const auto d_model = options.d_model();
  check_positive("d_model", d_model);
  check_positive("num_heads", options.num_heads());
  TORCH_CHECK(d_model % options.num_heads() == 0, "d_model ", d_model, " is not divisible by num_heads ",
              options.num_heads());
  check_dropout("the dropout of the attention weights", options.dropout());
  using torch::nn::Linear;
  using torch::nn::LinearOptions;
  in_proj = register_module("in_proj", Linear(LinearOptions(d_model, 3 * d_model).bias(options.bias())));
  out_proj = register_module("out_proj", Linear(LinearOptions(d_model, d_model).bias(options.bias())));
}

void MultiHeadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::MultiHeadAttention(d_model=" << options.d_model() << ", num_heads=" << options.num_heads() << ")";
}

std::tuple<Tensor, Tensor> MultiHeadAttentionImpl::forward(const Tensor& x, const AttentionMask& mask,
                                                           bool need_weights) {
  check_input(x, options.d_model());
  const auto batch = x.size(0), length = x.size(1), d_model = x.size(2), heads = options.num_heads();
  const AttentionMask ready = mask.prepare(x, heads);
  const Tensor qkv = in_proj(x)
                         .view({batch, length, 3, heads, d_model / heads})  // [B,T,3,H,D/H]
                         .permute({2, 0, 3, 1, 4});                         // [3,B,H,T,D/H]
  const auto [y, weights] =
      attention(qkv[0], qkv[1], qkv[2], ready, is_training() ? options.dropout() : 0.0, need_weights);
  const Tensor merged = y.transpose(1, 2).reshape({batch, length, d_model});  // [B,H,T,D/H] -> [B,T,D]
  return {ready.zero_past_lengths(out_proj(merged)), weights};
}

}  // namespace prenorm
