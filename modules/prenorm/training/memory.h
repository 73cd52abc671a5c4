#pragma once

#include <cstdint>
#include <optional>

#include "prenorm/module.h"
#include "prenorm/training/trainer.h"

namespace prenorm {

/// What training takes at its peak, in bytes; in floating point, since sizes that overflow 64 bits are asked for too.
struct MemoryEstimate {
  double parameters = 0;   ///< weights, gradients and AdamW's two moments
  double activations = 0;  ///< the longest batch, and what forward keeps of it for backward
  double total() const { return parameters + activations; }
};

/// Estimates training steps of `batch_size` sequences of `length` tokens, without building anything.
MemoryEstimate training_memory(const ModelConfig& config, const TrainingOptions& options, std::int64_t batch_size,
                               std::int64_t length);

/// The bytes that this process can still take: of the machine's memory, the limits of its control groups and of
/// `ulimit -v`, the least; of a GPU what is free. Unset where that cannot be found out.
std::optional<double> available_memory(torch::Device device);

}  // namespace prenorm
