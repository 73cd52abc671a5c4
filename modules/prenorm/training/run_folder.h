#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "prenorm/training/checkpoint.h"

namespace prenorm {

/// The folder of a training run, of which one process at a time is the owner:
///
///   run.json                  the program's options
///   metrics.jsonl             a line for each step and each evaluation, see `log`
///   checkpoints/step-<N>/     the newest ones and the best, see save_checkpoint
///   config.json, model.safetensors, vocabulary.json, ...     the trained model, once the run is over
class RunFolder {
 public:
  /// Makes the folder for a new run, `options` its run.json. Throws Error when it cannot be written, lies among
  /// checkpoints, or holds one or another file that the run would write, and changes nothing then; what a run without a
  /// checkpoint left behind is written over.
  static RunFolder create(const std::filesystem::path& path, const std::string& options = "{}\n");

  /// Goes on after a checkpoint with the run that it is part of, in the run's folder, if it is the newest there, or in
  /// a new one. What the metrics say of later steps is dropped. `state` is that of the checkpoint, with the options of
  /// this part of the run. Throws Error when the folder holds something else.
  static RunFolder resume(const std::filesystem::path& path, const std::filesystem::path& checkpoint,
                          const RunState& state);
  static RunFolder resume(const std::filesystem::path& path, const std::filesystem::path& checkpoint) {
    return resume(path, checkpoint, read_run_state(checkpoint));
  }

  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoint(std::int64_t step) const;

  /// Removes the trained model of a run that goes on: its newest checkpoint holds it too.
  void drop_model();

  /// {"step", "epoch", "loss", "accuracy", "learning_rate", "gradient_norm", "tokens_per_second"}: loss and accuracy
  /// (share of sequences with every answer right) of that one step's batch, the norm before clipping; null stands for
  /// what is not a number, and for the epoch of data without epochs.
  void log(const RunState& state, const StepResult& result, double epoch, double tokens_per_second);

  /// {"step", "evaluation_loss", "evaluation_accuracy", "evaluation_answers"} of the newest evaluation.
  void log_evaluation(const RunState& state);

  /// Writes what was logged to the file. Throws Error when that fails.
  void flush();

  /// Saves a checkpoint, then removes all but the newest `keep` and the best.
  void save(const Trainer& trainer, const RunState& state, const Vocabulary& vocabulary, std::int64_t keep);

 private:
  explicit RunFolder(std::filesystem::path path);
  void require_new() const;
  void write_options(const std::string& options) const;
  void open_metrics(std::ios::openmode mode);

  std::filesystem::path path_;
  std::ofstream metrics_;
  int lock_ = -1;
};

/// The checkpoint that `path` is, or the newest one of the run whose folder it is. Throws Error where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// Calls `read` with that checkpoint, and anew with the one that is the newest then when it fails because the run goes
/// on meanwhile and has removed it. Returns the checkpoint that was read.
std::filesystem::path read_checkpoint(const std::filesystem::path& path,
                                      const std::function<void(const std::filesystem::path&)>& read);

/// The run's folder that a checkpoint lies in; empty when it lies elsewhere.
std::filesystem::path run_of(const std::filesystem::path& checkpoint);

/// Whether a run is kept in that folder.
bool is_run(const std::filesystem::path& folder);

/// The checkpoint, or the folder of a run's checkpoints, that `path` is or lies in; empty when it lies elsewhere.
std::filesystem::path checkpoints_around(const std::filesystem::path& path);

}  // namespace prenorm
