#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/module.h"

namespace prenorm {

/// Numbers of elements. A tensor that stands in several places counts once, where it is met first.
struct ParameterCount {
  std::int64_t trainable = 0;
  std::int64_t frozen = 0;   ///< parameters with requires_grad off
  std::int64_t buffers = 0;  ///< not parameters

  std::int64_t total() const { return trainable + frozen; }
};

/// The count of `module`, under the name "", and of each module inside it under its path, in registration order.
std::vector<std::pair<std::string, ParameterCount>> count_parameters(const torch::nn::Module& module);

}  // namespace prenorm
