#pragma once

#include <cstdint>
#include <vector>

#include "prenorm/module.h"
#include "prenorm/training/dataset.h"

namespace prenorm {

/// Examples padded to the longest of them.
struct Batch {
  Tensor ids;                         ///< [B,T] int64, 0 past each length
  Tensor targets;                     ///< [B,T], kIgnored past each length, or [B]
  std::vector<std::int64_t> lengths;  ///< B

  std::int64_t size() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t tokens() const;
  Batch to(torch::Device device) const;
};

/// The target of a position that is padding.
constexpr std::int64_t kIgnored = -100;

/// One batch of `examples`; all of them have one answer (`per_sequence`) or all as many as tokens.
Batch collate(const std::vector<Example>& examples, bool per_sequence);

}  // namespace prenorm
