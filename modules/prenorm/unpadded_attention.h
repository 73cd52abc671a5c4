#pragma once

#include <cstdint>
#include <vector>

#include "prenorm/module.h"

namespace prenorm {

/// Scaled dot-product attention of an unpadded batch on the CPU: the sequences of `lengths` lie in one row, one after
/// another, and each attends to itself, as far as `causal` lets it.
///
/// q, k and v [1,H,N,D/H] -> [1,H,N,D/H], with gradients (but not theirs). LibTorch's own blocked kernel (Dao et al.
/// 2022) computes neighbours of one length together, and threads share the sequences.
Tensor unpadded_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<std::int64_t>& lengths,
                          bool causal);

}  // namespace prenorm
