#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "prenorm/training/evaluation.h"
#include "prenorm/training/trainer.h"
#include "prenorm/training/vocabulary.h"

namespace prenorm {

/// A score and the step that had it.
struct ScoredStep {
  std::int64_t step = 0;
  Score score = {};
};

/// How far a run has come.
struct RunState {
  std::int64_t step = 0;                ///< steps done
  std::int64_t examples = 0;            ///< drawn from the dataset's stream so far
  std::int64_t schedule_steps = 0;      ///< the schedule's horizon
  std::uint64_t data = 0;               ///< fingerprint of the dataset
  std::uint64_t training_data = 0;      ///< of its training examples; 0: not known
  std::optional<ScoredStep> last = {};  ///< the newest evaluation
  std::optional<ScoredStep> best = {};  ///< the one with the highest accuracy; of equal ones the lowest loss
  std::string options = "{}";           ///< the program's own, a JSON object
};

/// Writes everything that the rest of a run depends on into the folder `path`, atomically and durably:
///
///   config.json, model.safetensors     the model, as save_pretrained writes it
///   training.safetensors               "exp_avg.<parameter>", "exp_avg_sq.<parameter>" and "step.<parameter>" of AdamW;
///                                      "generator.cpu" and "generator.cuda", the states of LibTorch's random generators
///   training.json                      the RunState, and the versions of prenorm and LibTorch
///   vocabulary.json
///
/// Throws c10::Error, and writes nothing, when a parameter or moment is not a finite number; prenorm::Error when the
/// folder cannot be written. The old one stays in both cases.
void save_checkpoint(const std::filesystem::path& path, const Trainer& trainer, const RunState& state,
                     const Vocabulary& vocabulary);

/// Whether there is a checkpoint, whole or not, in that folder.
bool is_checkpoint(const std::filesystem::path& path);

/// The state of a checkpoint. Throws prenorm::Error naming the file and what is wrong with it.
RunState read_run_state(const std::filesystem::path& path);

/// Puts trainer and LibTorch's random generators where the checkpoint had them, all or nothing; the trainer's model may
/// be on another device than the one that was saved. Throws prenorm::Error or c10::Error naming the file and what does
/// not fit.
RunState load_checkpoint(const std::filesystem::path& path, Trainer& trainer);

}  // namespace prenorm
