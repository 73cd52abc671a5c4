#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "prenorm/encoder_layer.h"

namespace prenorm {

struct EncoderOptions {
  /// `num_layers` layers of the same options.
  EncoderOptions(const EncoderLayerOptions& layer, std::int64_t num_layers);
  /// Each layer's own options, all of one d_model.
  explicit EncoderOptions(std::vector<EncoderLayerOptions> layers) : layers_(std::move(layers)) {}
  bool operator==(const EncoderOptions&) const = default;
  /// What each layer is built from.
  TORCH_ARG(std::vector<EncoderLayerOptions>, layers);
  /// A norm after the last layer; unset: where that layer is pre-norm, whose stream nothing has normalised.
  TORCH_ARG(std::optional<bool>, final_norm) = std::nullopt;
  /// Whether that norm adds a bias; unset: as the last layer's norms.
  TORCH_ARG(std::optional<bool>, final_norm_bias) = std::nullopt;
};

/// What `inspect` sees on the way.
struct EncoderStates {
  Tensor output;  ///< what `forward` returns
  /// L+1 of [B,T,D]: what enters the first layer, then each layer's output; the last one is behind the final norm,
  /// where there is one, as in `transformers`.
  std::vector<Tensor> hidden_states;
  std::vector<Tensor> attention_weights;  ///< L of [B,H,T,T]
};

/// L encoder layers, each built from its options with initial weights of its own, and a final norm (the course,
/// module 6).
///
/// x [B,T,D] -> [B,T,D]; where the mask knows lengths, `forward` computes no padding. Throws c10::Error when there is no
/// layer or the layers differ in d_model.
class EncoderImpl : public Cloneable<EncoderImpl> {
 public:
  explicit EncoderImpl(const EncoderOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& x, const AttentionMask& mask = {});

  /// As `forward`, keeping every layer's output and attention weights.
  EncoderStates inspect(const Tensor& x, const AttentionMask& mask = {});

  /// A layer of `layers`, which takes any module: throws c10::Error naming one that is no EncoderLayer.
  EncoderLayerImpl& layer(size_t i) const;

  EncoderOptions options;
  torch::nn::ModuleList layers{nullptr};
  torch::nn::LayerNorm norm{nullptr};  ///< empty without a final norm

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMask())})

 private:
  AttentionMask prepared(const Tensor& x, const AttentionMask& mask) const;
  Tensor finish(const Tensor& x, const AttentionMask& mask);
};
TORCH_MODULE(Encoder);

}  // namespace prenorm
