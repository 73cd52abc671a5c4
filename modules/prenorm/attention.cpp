#include "prenorm/attention.h"

#include <cmath>

#include "prenorm/unpadded.h"
#include "prenorm/unpadded_attention.h"

namespace prenorm {
namespace {

Tensor zero_where(const Tensor& hidden, const Tensor& x) {
  return hidden.defined() ? x.masked_fill(hidden, 0.0) : x;
}

/// [1,1,N,N]: which tokens of an unpadded row see which.
Tensor own_sequence_scores(const AttentionMask::Prepared& mask, torch::Device device) {
  const Tensor lengths = torch::tensor(mask.sequences);
  const Tensor sequence = torch::arange(lengths.size(0)).repeat_interleave(lengths).to(device);  // [N]
  const Tensor own = (sequence.unsqueeze(1) == sequence).unsqueeze(0).unsqueeze(0);
  return mask.causal ? own & causal_scores(own.size(-1), device) : own;
}

/// Of an unpadded row, whose sequences are padded again for what LibTorch computes in padded batches alone.
Tensor fused_in_row(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask::Prepared& mask,
                    double dropout) {
  if (q.is_cpu() && dropout == 0.0) return unpadded_attention(q, k, v, mask.sequences, mask.causal);
  const Unpadded row(mask.sequences, mask.causal, q.device());
  const auto padded = [&](const Tensor& x) { return row.pad(x.transpose(1, 2)).transpose(1, 2); };
  const AttentionMask lengths = AttentionMask::lengths(mask.sequences);
  const Tensor output = std::get<0>(
      attention(padded(q), padded(k), padded(v), mask.causal ? lengths & AttentionMask::causal() : lengths, dropout));
  return row.pack(output.transpose(1, 2)).transpose(1, 2);
}

Tensor attention_weights(const Tensor& q, const Tensor& k, const AttentionMask::Prepared& mask) {
  Tensor scores = torch::matmul(q / std::sqrt(static_cast<double>(q.size(-1))), k.transpose(-2, -1));  // [B,H,Tq,Tk]
  Tensor shown = mask.causal ? causal_scores(q.size(2), q.device()) : mask.scores;
  if (!mask.sequences.empty()) shown = own_sequence_scores(mask, q.device());
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

  if (!need_weights && !hidden.sequences.empty()) return {fused_in_row(q, k, v, hidden, dropout), Tensor()};
  if (!need_weights) {
    const Tensor output = at::scaled_dot_product_attention(
        q, k, v, hidden.scores.defined() ? std::optional(hidden.scores) : std::nullopt, dropout, hidden.causal);
    return {zero_where(hidden.dead, output), Tensor()};
  }
  const Tensor weights = torch::dropout(attention_weights(q, k, hidden), dropout, /*train=*/true);
  return {torch::matmul(weights, v), weights};
}

std::tuple<Tensor, Tensor> attention_in_heads(const Tensor& qkv, std::int64_t heads, const AttentionMask& mask,
                                              double dropout, bool need_weights) {
  const auto in_heads = [&](const Tensor& x) { return x.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const auto parts = qkv.chunk(3, -1);  // 3 of [B,T,D] -> [B,H,T,D/H]
  const auto [y, weights] =
      attention(in_heads(parts[0]), in_heads(parts[1]), in_heads(parts[2]), mask, dropout, need_weights);
  return {y.transpose(1, 2).flatten(2), weights};  // [B,H,T,D/H] -> [B,T,D]
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
  const AttentionMask ready = mask.prepare(x, options.num_heads());
  const auto [y, weights] =
      attention_in_heads(in_proj(x), options.num_heads(), ready, is_training() ? options.dropout() : 0.0, need_weights);
  return {ready.zero_past_lengths(out_proj(y)), weights};
}

}  // namespace prenorm
