#pragma once

#include "prenorm/module.h"

namespace prenorm {

/// Dropout (Srivastava et al. 2014): in training each element is 0 with probability `p`, and else divided by 1 - p;
/// otherwise the input comes back as it is. With the options of torch::nn::Dropout; never in place.
///
/// On the CPU it is several times as cheap as LibTorch's: the default generator gives one number a call, from which a
/// hash of each element's place decides, so that the result depends on the generator alone, not on how many threads
/// compute it, and backward computes the decisions again instead of keeping them. The probability is exact to 2^-32.
///
/// x -> the same shape.
class DropoutImpl : public Cloneable<DropoutImpl> {
 public:
  explicit DropoutImpl(const torch::nn::DropoutOptions& options = {});

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& x);

  torch::nn::DropoutOptions options;
};
TORCH_MODULE(Dropout);

}  // namespace prenorm
