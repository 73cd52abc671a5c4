#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "prenorm/encoder.h"
#include "prenorm/model.h"
#include "prenorm/packed_linear.h"

namespace prenorm {

/// An encoder made ready for inference: its weights as they were, laid out for this CPU's matrix products where
/// LibTorch can, and a walk that keeps nothing for a gradient. Never changes: several threads may use one at once.
///
/// x [B,T,D] -> [B,T,D], what `Encoder` returns in evaluation mode. Throws c10::Error when the encoder is in training
/// mode, or has modules in places where others belong.
class InferenceEncoder {
 public:
  /// Without `pack` the weights keep their layout.
  explicit InferenceEncoder(const Encoder& encoder, bool pack = true);

  Tensor forward(const Tensor& x, const AttentionMask& mask = {}) const;
  Tensor operator()(const Tensor& x, const AttentionMask& mask = {}) const { return forward(x, mask); }

  /// Whether the weights are laid out anew.
  bool packed() const { return layers_.front().in_proj.packed(); }

 private:
  struct Norm {
    explicit Norm(const torch::nn::LayerNormImpl& norm);
    Tensor operator()(const Tensor& x) const;

    Tensor weight, bias;
    double eps;
  };

  struct Layer {
    Layer(const EncoderLayerImpl& layer, bool pack);
    Tensor forward(const Tensor& x, const AttentionMask& mask) const;
    Tensor attend(const Tensor& sum, const Tensor& x, const AttentionMask& mask) const;  // sum + attention
    Tensor feed(const Tensor& sum, const Tensor& x) const;                               // sum + feed-forward

    std::int64_t heads;
    bool pre;
    Activation activation;
    Norm norm1, norm2;
    PackedLinear in_proj, out_proj, up, down;
  };

  std::vector<Layer> layers_;
  std::optional<Norm> norm_;
};

/// A model made ready for inference, as its encoder is.
///
/// ids [B,T] -> what `EncoderModel` returns in evaluation mode, and throws.
class InferenceModel {
 public:
  explicit InferenceModel(const EncoderModel& model, bool pack = true);

  Tensor forward(const Tensor& ids, const AttentionMask& mask = {}, const Tensor& segment_ids = {}) const;
  Tensor operator()(const Tensor& ids, const AttentionMask& mask = {}, const Tensor& segment_ids = {}) const {
    return forward(ids, mask, segment_ids);
  }

  bool packed() const { return encoder_.packed(); }

 private:
  ModelConfig config_;
  std::shared_ptr<EmbeddingsImpl> embeddings_;
  InferenceEncoder encoder_;
  std::optional<PackedLinear> head_;
};

}  // namespace prenorm
