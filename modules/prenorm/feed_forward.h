#pragma once

#include <cstdint>

#include "prenorm/config.h"
#include "prenorm/dropout.h"

namespace prenorm {

struct FeedForwardOptions {
  FeedForwardOptions(std::int64_t d_model, std::int64_t d_ff = 0)  // NOLINT(google-explicit-constructor)
      : d_model_(d_model), d_ff_(d_ff) {}
  bool operator==(const FeedForwardOptions&) const = default;
  /// D, width of the input and the output.
  TORCH_ARG(std::int64_t, d_model);
  /// F, width between the two linear layers; 0 means 4 D.
  TORCH_ARG(std::int64_t, d_ff);
  /// Probability of dropping an element after the activation in training.
  TORCH_ARG(double, dropout) = 0.1;
  /// The non-linearity.
  TORCH_ARG(Activation, activation) = Activation::gelu;
  /// Whether the linear layers add a bias.
  TORCH_ARG(bool, bias) = true;
};

/// Position-wise feed-forward block (Vaswani et al. 2017, section 3.3; the course, module 5):
/// W2 drop(activation(W1 x + b1)) + b2, with W1 [F,D] under `net.0` and W2 [D,F] under `net.3`.
///
/// x [B,T,D] -> [B,T,D].
class FeedForwardImpl : public Cloneable<FeedForwardImpl> {
 public:
  explicit FeedForwardImpl(const FeedForwardOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& x);

  FeedForwardOptions options;
  torch::nn::Sequential net{nullptr};
};
TORCH_MODULE(FeedForward);

}  // namespace prenorm
