#include "training_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "example.h"
#include "interruption.h"
#include "option_file.h"
#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/params/report.h"
#include "prenorm/script/export.h"
#include "prenorm/tensor_file/text.h"
#include "prenorm/training/memory.h"
#include "prenorm/training/run_folder.h"
#include "prenorm/weights/pretrained.h"
#include "progress.h"
#include "train_options.h"
#include "train_paths.h"
#include "train_report.h"

namespace {

namespace fs = std::filesystem;
using namespace prenorm;

std::unique_ptr<Dataset> make_dataset(const TrainOptions& options, std::ostream& notes) {
  if (options.text.train.empty()) return std::make_unique<Task>(options.task);
  auto dataset = std::make_unique<TextDataset>(options.text);
  for (const auto& [count, what] : {std::pair(dataset->unknown_tokens(), "tokens"),
                                    std::pair(dataset->unknown_answers(), "answers, which count as wrong,")}) {
    if (count == 0) continue;
    notes << "note: " << options.text.valid.string() << " has " << params::grouped(count) << " " << what
          << " that the training file never has\n";
  }
  if (const auto& answer = dataset->lone_answer()) {
    notes << "note: " << options.text.train.string() << ":1: no other line has the answer " << InQuotes(*answer)
          << "; if line 1 is a header, --skip-header passes over it\n";
  }
  return dataset;
}

/// The model that the data asks for: its tokens and answers.
ModelConfig model_config(const TrainOptions& options, const Vocabulary& vocabulary) {
  ModelConfig config = options.model;
  config.vocab_size = vocabulary.size();
  config.head = vocabulary.per_sequence() ? options.sequence_head : Head::token;
  config.num_classes = vocabulary.num_classes();
  require(!config.tie_head || vocabulary.answers() == vocabulary.tokens(),
          "--tie-head needs data whose answers are its ", "tokens, in the same order; these have ", config.vocab_size,
          " tokens and ", config.num_classes, " answers");
  config.validate();
  return config;
}

std::string gigabytes(double bytes) {
  char text[64];
  std::snprintf(text, sizeof text, bytes < 1e15 ? "%.3g GB" : "%.2e GB", bytes / 1e9);
  return text;
}

/// The options that make a run as large as it is, with their values, what takes more memory first.
std::string flags_to_lower(const TrainOptions& options, const MemoryEstimate& memory) {
  const auto flag = [](const char* name, auto value) { return std::string(name) + " (" + std::to_string(value) + ")"; };
  const ModelConfig& model = options.model;
  const bool task = options.text.train.empty();
  std::string of_model = flag("--d-model", model.d_model) + ", " + flag("--layers", model.num_layers);
  if (model.d_ff > 0) of_model += ", " + flag("--d-ff", model.d_ff);
  if (model.position == Position::learned) of_model += ", " + flag("--max-positions", model.max_positions);
  if (task) of_model += ", " + flag("--symbols", options.task.symbols);
  std::string of_batch = flag("--batch-size", options.loop.batch_size);
  if (task) of_batch += ", " + flag("--max-length", options.task.max_length);
  const std::string parts = "; or raise " + flag("--accumulate", options.training.accumulate);
  return memory.parameters > memory.activations ? of_model : of_batch + ", " + of_model + parts;
}

/// One run of the program: new, or a later part of one that was saved.
class Run {
 public:
  Run(CLI::App& app, TrainOptions& options) : app_(app), options_(options) {}

  int run() {
    try {
      return prepare_and_train();
    } catch (const std::bad_alloc&) {
      out_of_memory("");
    } catch (const c10::Error& error) {
      const std::string what = error.what_without_backtrace();
      const auto at = what.find("ried to allocate ");
      if (at == std::string::npos) throw;
      out_of_memory(" (it t" + what.substr(at, what.find(". ", at) - at) + ")");
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  int prepare_and_train() {
    read_options();
    const torch::Device device = options_.machine.pick();
    dataset_ = make_dataset(options_, notes_);
    settle_positions(app_, options_, *dataset_);
    const ModelConfig config = model_config(options_, dataset_->vocabulary());
    check_data();
    check_memory(config, device);
    return train(config, device);
  }

  [[noreturn]] void out_of_memory(const std::string& allocation) const {
    fail("out of memory", allocation, ", training takes about ", gigabytes(memory_.total()), ": lower ",
         flags_to_lower(options_, memory_), longest_examples());
  }

  /// For the end of a message about memory.
  std::string longest_examples() const {
    const std::string longest = dataset_ ? dataset_->longest_examples() : "";
    return longest.empty() ? "" : "; the longest lines are " + longest;
  }

  /// Completes the command line from --config or --resume.
  void read_options() {
    const bool script_asked = app_.count("--export") > 0;
    if (!options_.config.empty()) set_options(app_, read_file(options_.config), options_.config.string());
    if (!options_.resume.empty()) {
      checkpoint_ = read_checkpoint(options_.resume, [&](const fs::path& path) { state_ = read_run_state(path); });
      for (const auto& conflict : set_options(app_, state_.options, (checkpoint_ / "training.json").string())) {
        judge(conflict);
      }
    }
    settle_steps(app_, options_);
    settle_paths(app_, options_, checkpoint_, script_asked, notes_);
    require(options_.loop.stop_after == 0 || !options_.out.empty(),
            "--stop-after goes with --out, where the run is kept to go on with");
    auto& horizon = options_.training.schedule.steps;
    if (checkpoint_.empty()) {
      state_.schedule_steps = horizon;
    } else if (horizon > state_.schedule_steps) {
      note("the schedule's horizon moves from ", state_.schedule_steps, " to ", horizon, " steps");
      state_.schedule_steps = horizon;
    }
    horizon = state_.schedule_steps;
    const auto& schedule = options_.training.schedule;
    if (schedule.warmup_steps >= options_.loop.steps) {
      note("with --steps ", options_.loop.steps, " and --warmup-steps ", schedule.warmup_steps,
           " the learning rate ends at ", learning_rate(schedule, options_.loop.steps - 1), " and never comes to --lr ",
           schedule.peak);
    }
    check_steps();
  }

  void check_steps() const {
    require(options_.loop.steps >= state_.step, "--steps ", options_.loop.steps, " is less than the ", state_.step,
            " that the run has done");
    require(options_.loop.stop_after == 0 || options_.loop.stop_after > state_.step, "--stop-after ",
            options_.loop.stop_after, " is not after the ", state_.step, " steps that the run has done");
  }

  /// Keeps a line for stderr until nothing can be refused any more.
  void note(const auto&... parts) {
    notes_ << "note: ";
    (notes_ << ... << parts) << "\n";
  }

  /// Refuses another model or other data than the checkpoint's; of other training it only tells.
  void judge(const OptionConflict& conflict) {
    const std::string group = conflict.option->get_group(), name = conflict.option->get_name();
    const bool file = name == "--train" || name == "--valid";  // which may have moved: its content counts
    const bool fixed = group == "Task" || group == "Model" || name == "--seed" || name == "--chars" ||
                       name == "--answers" || name == "--skip-header" || (file && conflict.recorded == "unset");
    require(!fixed, name, " is ", conflict.given, ", the checkpoint has ", conflict.recorded,
            ": a resumed run keeps its model and data");
    if (group == "Training" && name != "--steps") {
      note(name, " is ", conflict.given, ", the checkpoint has ", conflict.recorded);
    }
  }

  void check_data() {
    const auto data = dataset_->fingerprint(), training_data = dataset_->training_fingerprint();
    const bool training = !options_.text.train.empty() && state_.training_data != training_data;
    require(checkpoint_.empty() || state_.data == data, training ? options_.text.train.string() : data_name(options_),
            ": these are not the data of the checkpoint ", checkpoint_.string());
    state_.data = data;
    state_.training_data = training_data;
  }

  void check_memory(const ModelConfig& config, torch::Device device) {
    memory_ = training_memory(config, options_.training, options_.loop.batch_size, dataset_->max_training_length(),
                              dataset_->evaluation_size(), dataset_->max_length());
    const auto available = available_memory(device);
    require(!available || memory_.total() <= *available, "training takes about ", gigabytes(memory_.total()), " (",
            gigabytes(memory_.parameters), " for weights, gradients and moments, ", gigabytes(memory_.activations),
            " for activations), this machine has ", gigabytes(available.value_or(0)), ": lower ",
            flags_to_lower(options_, memory_), longest_examples());
    if (options_.verbose) {
      std::cerr << "memory: about " << gigabytes(memory_.total()) << " beside LibTorch's own, "
                << (available ? gigabytes(*available) : "unknown") << " available\n";
    }
  }

  void open_folder() {
    state_.options = options_to_json(app_);
    if (options_.out.empty()) {
      if (options_.target_percent == 0) options_.loop.evaluate_every = 0;  // nothing would come of it
      return;
    }
    folder_.emplace(checkpoint_.empty() ? RunFolder::create(options_.out, state_.options)
                                        : RunFolder::resume(options_.out, checkpoint_, state_));
    if (state_.step > 0 && state_.step < options_.loop.steps) folder_->drop_model();
  }

  /// Puts the trainer where the checkpoint has it, or the next one, if the run goes on meanwhile and has removed it.
  void load(Trainer& trainer) {
    RunState loaded;
    const auto read = [&](const fs::path& path) { loaded = load_checkpoint(path, trainer); };
    try {
      read(checkpoint_);
    } catch (...) {
      if (fs::exists(checkpoint_)) throw;
      checkpoint_ = read_checkpoint(options_.resume, read);
    }
    loaded.schedule_steps = state_.schedule_steps;
    state_ = std::move(loaded);
    check_data();
    check_steps();
  }

  int train(const ModelConfig& config, torch::Device device) {
    if (options_.deterministic) {
      ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
      torch::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    }
    torch::manual_seed(options_.loop.seed);
    EncoderModel model(config);
    model->to(device);
    Trainer trainer(model, options_.training);
    if (!checkpoint_.empty()) load(trainer);
    saved_ = checkpoint_;
    open_folder();
    std::cerr << notes_.str();
    const Outcome outcome = loop(trainer, device);
    progress_.reset();
    if (folder_) folder_->flush();
    switch (outcome) {
      case Outcome::diverged:
        report_divergence();
      case Outcome::paused:
      case Outcome::interrupted:
        std::cerr << (outcome == Outcome::paused ? "paused" : "interrupted") << " after step " << state_.step;
        if (folder_) {
          std::cerr << "; go on with: train --resume " << shell_word(folder_->path()) << "\n";
        } else {
          std::cerr << "; nothing was kept (--out FOLDER keeps a run)\n";
        }
        return outcome == Outcome::paused ? 0 : Interruption::exit_code();
      case Outcome::on_target:
        if (!options_.quiet) {
          std::cerr << "--target " << options_.target_percent << " % reached after step " << state_.step << "\n";
        }
        [[fallthrough]];
      case Outcome::finished:
        finish(model);
    }
    return 0;
  }

  Outcome loop(Trainer& trainer, torch::Device device) {
    const Interruption interruption;
    if (!options_.quiet) {
      print_summary(options_, *dataset_, trainer.model(), device, state_.step);
      progress_.emplace(options_.loop.steps, state_.step);
    }
    flushed_ = logged_ = Clock::now();
    LoopEvents events{.stepped = [&](const RunState&, const StepResult& result) { on_step(result); },
                      .evaluated = [&](const RunState&) { on_evaluation(); },
                      .checkpoint = {},
                      .interrupted = Interruption::requested};
    if (folder_) {
      events.checkpoint = [&](const RunState&) {
        folder_->save(trainer, state_, dataset_->vocabulary(), options_.keep);
        saved_ = folder_->checkpoint(state_.step);
        logged_ = Clock::now();  // neither evaluations nor saving are in the tokens per second
        if (options_.verbose && progress_) progress_->line("checkpoint: " + saved_.string());
      };
    }
    return run_training(trainer, *dataset_, options_.loop, state_, events);
  }

  void on_step(const StepResult& result) {
    last_ = result;
    tokens_ += result.tokens;
    const auto now = Clock::now();
    if (folder_ && (state_.step % options_.log_every == 0 || state_.step == options_.loop.steps || !result.finite())) {
      const double seconds = std::chrono::duration<double>(now - logged_).count();
      const auto size = dataset_->epoch_size();
      const double epoch = size > 0 ? static_cast<double>(state_.examples) / static_cast<double>(size) : NAN;
      folder_->log(state_, result, epoch, static_cast<double>(tokens_) / seconds);
      tokens_ = 0;
      logged_ = now;
      if (now - flushed_ > std::chrono::seconds(1)) {
        folder_->flush();
        flushed_ = now;
      }
    }
    if (progress_) {
      progress_->step(result.loss, result.accuracy, result.tokens);
      if (!result.finite() || progress_->due(state_.step)) progress_->report(state_.step, result.learning_rate);
    }
  }

  void on_evaluation() {
    if (folder_) folder_->log_evaluation(state_);
    if (!progress_ || state_.step == options_.loop.steps) return;
    char text[128];
    std::snprintf(text, sizeof text, "evaluation after step %lld: loss %.4f  %.2f %% exact",
                  static_cast<long long>(state_.step), state_.last->score.loss, 100 * state_.last->score.accuracy);
    progress_->line(text);
  }

  [[noreturn]] void report_divergence() const {
    const bool loss = !std::isfinite(last_.loss);
    const double value = loss ? last_.loss : last_.gradient_norm;
    std::ostringstream what;
    if (last_.finite()) {
      what << "a weight or the evaluation is no longer finite after step " << state_.step;
    } else {
      what << "the " << (loss ? "loss" : "norm of the gradient") << " is " << (std::isnan(value) ? "nan" : "inf")
           << " at step " << state_.step + 1;
    }
    fail(what.str(), ": lower --lr (", options_.training.schedule.peak, "), --weight-decay (",
         options_.training.adamw.weight_decay, ") or --clip-norm (", options_.training.clip_norm,
         "), or raise --warmup-steps (", options_.training.schedule.warmup_steps, ")",
         saved_.empty() ? "" : "; the checkpoint before it is " + saved_.string());
  }

  void finish(EncoderModel& model) {
    if (!options_.script.empty()) export_torchscript(model, options_.script);
    if (folder_) {
      dataset_->vocabulary().save(folder_->path() / "vocabulary.json");
      save_example(model, folder_->path());
      save_pretrained(model, folder_->path());
    }
    const Score& score = state_.last->score;
    print_evaluation(options_, *dataset_, model, score);
    if (!options_.script.empty()) std::printf("TorchScript: %s\n", options_.script.c_str());
    if (folder_) {
      std::printf("model: %s (config.json, model.safetensors)\n", folder_->path().c_str());
      if (state_.best && state_.best->score.accuracy > score.accuracy &&
          fs::exists(folder_->checkpoint(state_.best->step))) {
        std::printf("best: %.2f %% after step %lld, %s\n", 100 * state_.best->score.accuracy,
                    static_cast<long long>(state_.best->step), folder_->checkpoint(state_.best->step).c_str());
      }
    } else if (options_.script.empty()) {
      std::printf("the model was not kept; --out FOLDER keeps it\n");
    }
  }

  CLI::App& app_;
  TrainOptions& options_;
  fs::path checkpoint_;  // that the run goes on after; empty: it is new
  fs::path saved_;       // the newest checkpoint
  RunState state_;
  std::unique_ptr<Dataset> dataset_;
  MemoryEstimate memory_;
  std::optional<RunFolder> folder_;  // empty: nothing is kept
  std::optional<Progress> progress_;
  std::ostringstream notes_;
  StepResult last_;
  std::int64_t tokens_ = 0;  // since the last line of the metrics
  Clock::time_point logged_, flushed_;
};

}  // namespace

int train(CLI::App& app, TrainOptions& options) {
  return Run(app, options).run();
}
