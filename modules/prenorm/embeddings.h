#pragma once

#include <cstdint>

#include "prenorm/dropout.h"
#include "prenorm/positional_encoding.h"

namespace prenorm {

struct EmbeddingsOptions {
  EmbeddingsOptions(std::int64_t vocab_size, std::int64_t d_model) : vocab_size_(vocab_size), d_model_(d_model) {}
  bool operator==(const EmbeddingsOptions&) const = default;
  /// V, number of token ids.
  TORCH_ARG(std::int64_t, vocab_size);
  /// D, width of the residual stream.
  TORCH_ARG(std::int64_t, d_model);
  /// How a token learns its place.
  TORCH_ARG(Position, position) = Position::sinusoidal;
  /// The longest sequence with learned positions.
  TORCH_ARG(std::int64_t, max_positions) = 512;
  /// Row of the learned positions for the first token.
  TORCH_ARG(std::int64_t, position_offset) = 0;
  /// Number of segment ids; 0: no segment embedding.
  TORCH_ARG(std::int64_t, num_segments) = 0;
  /// Whether the sum is normalised.
  TORCH_ARG(bool, norm) = false;
  /// Added to the variance inside the norm's root.
  TORCH_ARG(double, eps) = 1e-5;
  /// Whether the norm adds a bias.
  TORCH_ARG(bool, norm_bias) = true;
  /// Probability of dropping an element of the result in training.
  TORCH_ARG(double, dropout) = 0.0;
};

/// Token ids to vectors: drop(norm(token + position + segment)); segment and norm are optional (BERT has both).
///
/// ids [B,T] and segment_ids [B,T], int64 or int32 -> [B,T,D]; segment_ids left out are all 0. Throws c10::Error on
/// another shape or type and, on the CPU, on an id that the table does not have (elsewhere looking would make the host
/// wait for the device, whose own check stops it).
class EmbeddingsImpl : public Cloneable<EmbeddingsImpl> {
 public:
  explicit EmbeddingsImpl(const EmbeddingsOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& ids, const Tensor& segment_ids = {});

  EmbeddingsOptions options;
  torch::nn::Embedding token{nullptr};
  PositionalEncoding position{nullptr};
  torch::nn::Embedding segment{nullptr};  ///< empty without segments
  torch::nn::LayerNorm norm{nullptr};     ///< empty without a norm
  Dropout drop{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Tensor())})
};
TORCH_MODULE(Embeddings);

}  // namespace prenorm
