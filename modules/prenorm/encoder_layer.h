#pragma once

#include <cstdint>
#include <tuple>

#include "prenorm/attention.h"
#include "prenorm/feed_forward.h"
#include "prenorm/sublayer_connection.h"

namespace prenorm {

struct EncoderLayerOptions {
  EncoderLayerOptions(std::int64_t d_model = 512, std::int64_t num_heads = 8)  // NOLINT(google-explicit-constructor)
      : d_model_(d_model), num_heads_(num_heads) {}
  bool operator==(const EncoderLayerOptions&) const = default;
  /// D, width of the residual stream.
  TORCH_ARG(std::int64_t, d_model);
  /// H, number of attention heads; divides D.
  TORCH_ARG(std::int64_t, num_heads);
  /// F, width inside the feed-forward block; 0 means 4 D.
  TORCH_ARG(std::int64_t, d_ff) = 0;
  /// Probability of dropping, after each sub-layer and inside the feed-forward block.
  TORCH_ARG(double, dropout) = 0.1;
  /// Probability of dropping an attention weight.
  TORCH_ARG(double, attention_dropout) = 0.0;
  /// The non-linearity of the feed-forward block.
  TORCH_ARG(Activation, activation) = Activation::gelu;
  /// Whether the norms stand before the sub-layers or after the sums.
  TORCH_ARG(NormPlacement, norm_placement) = NormPlacement::pre;
  /// Added to the variance inside the norms' roots.
  TORCH_ARG(double, eps) = 1e-5;
  /// Whether the projections of the attention add a bias.
  TORCH_ARG(bool, attention_bias) = false;
  /// Whether the linear layers of the feed-forward block add a bias.
  TORCH_ARG(bool, feed_forward_bias) = true;
  /// Whether the norms add a bias.
  TORCH_ARG(bool, norm_bias) = true;
};

/// One encoder layer (the course, module 5): attention, then the feed-forward block, each in its residual wrapper.
///
/// x [B,T,D] -> [B,T,D].
class EncoderLayerImpl : public Cloneable<EncoderLayerImpl> {
 public:
  explicit EncoderLayerImpl(const EncoderLayerOptions& options = {});

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& x, const AttentionMask& mask = {});

  /// As `forward`, with the attention weights [B,H,T,T] beside the output.
  std::tuple<Tensor, Tensor> inspect(const Tensor& x, const AttentionMask& mask = {});

  EncoderLayerOptions options;
  MultiHeadAttention mha{nullptr};
  FeedForward ff{nullptr};
  SubLayerConnection sub1{nullptr}, sub2{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMask())})

 private:
  std::tuple<Tensor, Tensor> run(const Tensor& x, const AttentionMask& mask, bool need_weights);
};
TORCH_MODULE(EncoderLayer);

}  // namespace prenorm
