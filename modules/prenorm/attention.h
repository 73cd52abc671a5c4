#pragma once

#include <cstdint>
#include <tuple>

#include "prenorm/attention_mask.h"
#include "prenorm/module.h"

namespace prenorm {

/// Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1): softmax(q k^T / sqrt(D/H)) v.
///
/// q [B,H,Tq,D/H]; k and v [B,H,Tk,D/H]; `dropout` is the probability of dropping an attention weight, in training and
/// evaluation alike. Returns the output [B,H,Tq,D/H] and the weights [B,H,Tq,Tk] as they were applied; without
/// `need_weights` they are never formed (LibTorch's fused kernels run) and the second tensor is undefined.
/// Throws c10::Error naming shapes that do not fit.
std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask = {},
                                     double dropout = 0.0, bool need_weights = false);

/// The same for heads side by side: qkv [B,T,3D], queries, keys and values in that order -> (output [B,T,D], weights).
std::tuple<Tensor, Tensor> attention_in_heads(const Tensor& qkv, std::int64_t heads, const AttentionMask& mask = {},
                                              double dropout = 0.0, bool need_weights = false);

struct MultiHeadAttentionOptions {
  MultiHeadAttentionOptions(std::int64_t d_model, std::int64_t num_heads = 8)  // NOLINT(google-explicit-constructor)
      : d_model_(d_model), num_heads_(num_heads) {}
  bool operator==(const MultiHeadAttentionOptions&) const = default;
  /// D, width of the input and the output.
  TORCH_ARG(std::int64_t, d_model);
  /// H, number of heads, each of width D/H; divides D.
  TORCH_ARG(std::int64_t, num_heads);
  /// Whether the projections add a bias.
  TORCH_ARG(bool, bias) = false;
  /// Probability of dropping an attention weight in training.
  TORCH_ARG(double, dropout) = 0.0;
};

/// Multi-head self-attention (Vaswani et al. 2017, section 3.2.2): heads of width D/H attend side by side, between one
/// projection to queries, keys and values (`in_proj`, rows in that order) and one back (`out_proj`).
///
/// x [B,T,D] -> (output [B,T,D], weights [B,H,T,T] or undefined).
class MultiHeadAttentionImpl : public Cloneable<MultiHeadAttentionImpl> {
 public:
  explicit MultiHeadAttentionImpl(const MultiHeadAttentionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// The weights are computed only when asked for.
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const AttentionMask& mask = {}, bool need_weights = false);

  MultiHeadAttentionOptions options;
  torch::nn::Linear in_proj{nullptr}, out_proj{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMask())}, {2, torch::nn::AnyValue(false)})
};
TORCH_MODULE(MultiHeadAttention);

}  // namespace prenorm
