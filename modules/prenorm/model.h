#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "prenorm/config.h"
#include "prenorm/embeddings.h"
#include "prenorm/encoder.h"

namespace prenorm {

namespace detail {

/// What a model of this configuration answers, from its embeddings x [B,T,D] on: `encode` is its encoder, and `head` the
/// linear one, called where the configuration has a head.
Tensor answers(const ModelConfig& config, const Tensor& x, const AttentionMask& mask,
               const std::function<Tensor(const Tensor&, const AttentionMask&)>& encode,
               const std::function<Tensor(const Tensor&)>& head);

}  // namespace detail

/// The whole model (the course, module 6): Embeddings -> Encoder -> head, determined by a ModelConfig.
///
/// ids [B,T] -> [B,T,D] without a head, [B,T,C] with the token head, [B,C] with a sequence head, which reads the mean
/// of the real tokens (0 where there are none) or the first of them, as far as the mask's lengths and padding tell.
/// With `tie_head`, head->weight is embeddings->token->weight: one tensor under both names, counted and optimised once
/// here; LibTorch's own optimizers take it twice from `parameters()`, and would step twice.
/// Throws c10::Error naming the field of a configuration that cannot be built.
class EncoderModelImpl : public Cloneable<EncoderModelImpl> {
 public:
  explicit EncoderModelImpl(const ModelConfig& config);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& ids, const AttentionMask& mask = {}, const Tensor& segment_ids = {});

  /// Puts a fresh head, untied, in the body's type and on its device, in the place of the one there is, or takes that
  /// away: for fine-tuning. To be called before an optimizer holds the parameters. Throws c10::Error when a head has no
  /// classes, and nothing has changed.
  void set_head(Head kind, std::int64_t num_classes = 0);

  /// As `forward`, keeping every layer's output and attention weights.
  EncoderStates inspect(const Tensor& ids, const AttentionMask& mask = {}, const Tensor& segment_ids = {});

  ModelConfig config;
  Embeddings embeddings{nullptr};
  Encoder encoder{nullptr};
  torch::nn::Linear head{nullptr};  ///< empty without a head

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMask())}, {2, torch::nn::AnyValue(Tensor())})
};
TORCH_MODULE(EncoderModel);

}  // namespace prenorm
