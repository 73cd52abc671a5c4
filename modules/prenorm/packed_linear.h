#pragma once

#include "prenorm/module.h"

namespace prenorm {

/// A linear layer for inference: x [..,D] -> x W^T + b, [..,C]. In float on a CPU the weight is laid out once for oneDNN's
/// matrix products, where this LibTorch has them (they are not part of its interface: found by name and types);
/// otherwise it is as it was. No gradients.
class PackedLinear {
 public:
  /// Takes a copy of the parameters.
  explicit PackedLinear(const torch::nn::LinearImpl& linear, bool pack = true);

  Tensor operator()(const Tensor& x) const;
  Tensor onto(const Tensor& sum, const Tensor& x) const;  ///< sum + x W^T + b
  bool packed() const { return packed_; }

 private:
  Tensor weight_, bias_;
  bool packed_ = false;
};

}  // namespace prenorm
