#pragma once

#include <cstdint>
#include <functional>

#include "prenorm/training/checkpoint.h"
#include "prenorm/training/dataset.h"
#include "prenorm/training/evaluation.h"
#include "prenorm/training/trainer.h"

namespace prenorm {

struct LoopOptions {
  std::int64_t steps = 1000;  ///< in all, those before a resumption included
  std::int64_t batch_size = 64;
  std::uint64_t seed = 1;           ///< of the dataset's stream
  std::int64_t evaluate_every = 0;  ///< steps from one evaluation to the next; 0: only after the last
  std::int64_t stop_after = 0;      ///< pauses after this step; 0: no pause
  double target = 0;                ///< ends when an evaluation is as accurate; 0: no target
};

/// What a run tells while it goes on. Each may be empty.
struct LoopEvents {
  std::function<void(const RunState&, const StepResult&)> stepped = {};  ///< after every step, also one that went wrong
  std::function<void(const RunState&)> evaluated = {};                   ///< the score is `last`
  std::function<void(const RunState&)> checkpoint = {};  ///< after each evaluation and when the run ends
  std::function<bool()> interrupted = {};                ///< whether somebody wants the run to end after this step
};

enum class Outcome {
  finished,     ///< all steps are done
  on_target,    ///< an evaluation reached the target
  paused,       ///< stop_after was reached
  interrupted,  ///< somebody wanted it
  diverged      ///< loss or gradient was no finite number (the model is as before that step), or weight or evaluation
};

/// Runs training steps from where `state` is. On the CPU with one thread, a run that was saved and loaded at any step
/// takes the same course to the last bit as one that was not. Evaluations leave no trace in it.
Outcome run_training(Trainer& trainer, const Dataset& dataset, const LoopOptions& options, RunState& state,
                     const LoopEvents& events);

}  // namespace prenorm
