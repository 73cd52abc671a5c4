#pragma once

#include <cstdint>

#include "prenorm/module.h"

namespace prenorm::detail {

/// LibTorch's layer norm over [..,D] (Ba, Kiros and Hinton 2016); without `bias`, for which LibTorch has no option, it
/// scales and does not shift.
torch::nn::LayerNorm layer_norm(std::int64_t d_model, double eps, bool bias);

}  // namespace prenorm::detail
