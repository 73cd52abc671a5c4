#pragma once

#include <cstdint>
#include <functional>

#include "prenorm/config.h"
#include "prenorm/dropout.h"

namespace prenorm {

struct SubLayerConnectionOptions {
  SubLayerConnectionOptions(std::int64_t d_model, double dropout = 0.1)  // NOLINT(google-explicit-constructor)
      : d_model_(d_model), dropout_(dropout) {}
  bool operator==(const SubLayerConnectionOptions&) const = default;
  /// D, width of the residual stream.
  TORCH_ARG(std::int64_t, d_model);
  /// Probability of dropping an element of the sub-layer's output in training.
  TORCH_ARG(double, dropout);
  /// Whether the norm stands before the sub-layer or after the sum.
  TORCH_ARG(NormPlacement, placement) = NormPlacement::pre;
  /// Added to the variance inside the norm's root.
  TORCH_ARG(double, eps) = 1e-5;
  /// Whether the norm adds a bias.
  TORCH_ARG(bool, norm_bias) = true;
};

/// The residual wrapper: any sub-layer in, the corrected stream out.
///
///   pre   x + drop(f(norm(x)))   (the course, module 5)
///   post  norm(x + drop(f(x)))   (Vaswani et al. 2017, section 5.4)
///
/// x [B,T,D] -> [B,T,D]; f keeps the shape.
class SubLayerConnectionImpl : public Cloneable<SubLayerConnectionImpl> {
 public:
  explicit SubLayerConnectionImpl(const SubLayerConnectionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// `sublayer` is anything that takes and returns a tensor: a lambda, a function, a module holder. It is not kept, and
  /// may work in place: x stays as it is. Throws c10::Error when it is empty or returns another shape, which addition
  /// would broadcast in silence.
  Tensor forward(const Tensor& x, const std::function<Tensor(const Tensor&)>& sublayer);

  SubLayerConnectionOptions options;
  torch::nn::LayerNorm norm{nullptr};
  Dropout drop{nullptr};
};
TORCH_MODULE(SubLayerConnection);

}  // namespace prenorm
