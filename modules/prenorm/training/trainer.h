#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/model.h"
#include "prenorm/training/batch.h"
#include "prenorm/training/optimizer.h"

namespace prenorm {

/// The type in which a step computes. With bfloat16 LibTorch's autocast picks the operations that bear it; weights,
/// moments and the loss stay as they are.
enum class Precision { float32, bfloat16 };

template <>
const std::vector<std::pair<std::string, Precision>>& enum_names();

struct TrainingOptions {
  ScheduleOptions schedule = {};
  AdamWOptions adamw = {};
  double clip_norm = 1.0;       ///< highest norm of all gradients together; 0: no clipping
  std::int64_t accumulate = 1;  ///< parts in which a batch is computed, one after the other: less memory, same gradient
  Precision precision = Precision::float32;
};

/// What one training step saw.
struct StepResult {
  double loss = 0;           ///< mean cross-entropy of the answers, in nats
  double accuracy = 0;       ///< share of the sequences that had every answer right
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;

  /// Whether loss and gradient are numbers. If not, the step changed nothing.
  bool finite() const;
};

/// Trains a model with a head, one batch a step, in training mode.
class Trainer {
 public:
  Trainer(EncoderModel model, const TrainingOptions& options);

  StepResult step(const Batch& batch);

  std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }  ///< where the schedule goes on
  const EncoderModel& model() const { return model_; }
  const TrainingOptions& options() const { return options_; }
  const AdamW& optimizer() const { return optimizer_; }

 private:
  EncoderModel model_;
  TrainingOptions options_;
  AdamW optimizer_;
  std::int64_t steps_done_ = 0;
};

}  // namespace prenorm
