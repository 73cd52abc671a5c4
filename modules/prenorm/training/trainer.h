#pragma once

#include <cstdint>
#include <vector>

#include "prenorm/model.h"
#include "prenorm/training/optimizer.h"
#include "prenorm/training/task.h"

namespace prenorm {

struct TrainingOptions {
  ScheduleOptions schedule;
  AdamWOptions adamw;
  double clip_norm = 1.0;  ///< highest norm of all gradients together; 0: no clipping
};

/// What one training step saw, on the model's device: reading it makes the host wait.
struct StepResult {
  Tensor loss;           ///< scalar: mean cross-entropy of the answers, in nats
  Tensor exact;          ///< scalar: how many sequences had every answer right
  Tensor gradient_norm;  ///< scalar, before clipping; undefined without clipping
  double learning_rate;
};

/// Trains a model with a head, one batch a step, in training mode.
class Trainer {
 public:
  Trainer(EncoderModel model, const TrainingOptions& options);

  StepResult step(const Batch& batch);
  std::int64_t steps_done() const { return steps_done_; }

 private:
  EncoderModel model_;
  TrainingOptions options_;
  AdamW optimizer_;
  std::int64_t steps_done_ = 0;
};

/// The answers of the model in evaluation mode, one list an example, as long as its target. The mode is put back.
std::vector<std::vector<std::int64_t>> predict(EncoderModel model, const std::vector<Example>& examples,
                                               std::int64_t batch_size = 256);

}  // namespace prenorm
