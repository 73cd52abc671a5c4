#pragma once

#include <cstdint>
#include <optional>

#include "prenorm/module.h"
#include "prenorm/training/trainer.h"

namespace prenorm {

/// What training takes at its peak, in bytes; in floating point, since sizes that overflow 64 bits are asked for too.
struct MemoryEstimate {
  double parameters = 0;   ///< weights, gradients and AdamW's two moments
  double activations = 0;  ///< what the peak has beside them, or in the place of gradients that are not there yet
  double total() const { return parameters + activations; }
};

/// Estimates, without building anything, training steps of `batch_size` sequences of at most `length` tokens and the
/// evaluation of `evaluation_size` sequences of at most `evaluation_length`, by default `length`. On the CPU never less
/// than LibTorch's allocator hands out for them at once, and at most 1.5 times that (with many threads, oneDNN's scratch
/// for bfloat16 is some kilobytes a thread more). What the process holds is more, as malloc keeps some of what is freed.
MemoryEstimate training_memory(const ModelConfig& config, const TrainingOptions& options, std::int64_t batch_size,
                               std::int64_t length, std::int64_t evaluation_size = 0,
                               std::optional<std::int64_t> evaluation_length = {});

/// The bytes that this process can still take: of the machine's memory, the limits of its control groups and of
/// `ulimit -v`, the least; of a GPU what is free. Unset where that cannot be found out.
std::optional<double> available_memory(torch::Device device);

}  // namespace prenorm
