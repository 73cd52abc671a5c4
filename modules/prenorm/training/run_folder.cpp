#include "prenorm/training/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/json.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kOptions = "run.json";
const std::set<std::string> kFiles{"config.json", "example.safetensors", kMetrics, "model.safetensors",
                                   kOptions,      "vocabulary.json"};
constexpr std::string_view kStep = "step-";

std::optional<std::int64_t> step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  std::int64_t step = 0;
  if (!name.starts_with(kStep)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && name.substr(kStep.size()) == std::to_string(step) ? std::optional(step) : std::nullopt;
}

/// The steps of a run's checkpoints, the newest first.
std::vector<std::int64_t> steps_in(const fs::path& run) {
  const fs::path checkpoints = run / kCheckpoints;
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    if (const auto step = step_of(entry.path())) steps.push_back(*step);
  }
  require(!error || error == std::errc::no_such_file_or_directory, "cannot read ", checkpoints.string(), ": ",
          error.message());
  std::ranges::sort(steps, std::greater());
  return steps;
}

/// Copies the metrics of steps up to `last`. A line that a kill cut off is no JSON and goes too.
void copy_metrics(const fs::path& from, const fs::path& to, std::int64_t last) {
  if (!fs::exists(from)) return;
  std::ifstream old = open_file(from);
  write_file_atomically(to, [&](std::ostream& stream) {
    for (std::string line; std::getline(old, line);) {
      const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      const bool has_step = json.is_object() && json.contains("step") && json["step"].is_number_integer();
      if (has_step && json["step"].get<std::int64_t>() <= last) stream << line << "\n";
    }
    require(!old.bad(), "cannot read ", from, ": ", std::strerror(errno));
  });
}

/// Throws Error when a new run there would lie among the checkpoints of another.
void require_own_place(const fs::path& path) {
  const fs::path around = checkpoints_around(path);
  require(around.empty(), path.string(), " is a place of checkpoints, those in ", around.string(),
          ": take another folder");
}

}  // namespace

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  require(!error, path_.string(), " cannot be made a folder: ", error.message());
  for (const auto& folder : {path_, path_ / kCheckpoints}) {
    const bool writable = ::access(folder.c_str(), W_OK | X_OK) == 0 || errno == ENOENT;
    require(writable, folder.string(), ": no permission to write there");
  }
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(lock_ >= 0, "cannot open ", path_.string(), ": ", std::strerror(errno));
  // Where the file system has no locks, nobody is kept out.
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(lock_);
  fail(path_.string(), " is in use by another run");
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), metrics_(std::move(other.metrics_)), lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

RunFolder RunFolder::create(const fs::path& path, const std::string& options) {
  require_own_place(path);
  RunFolder folder(path);
  folder.require_new();
  remove_unfinished(path / kCheckpoints);
  folder.write_options(options);
  folder.open_metrics(std::ios::trunc);
  return folder;
}

void RunFolder::require_new() const {
  const auto steps = steps_in(path_);
  require(steps.empty(), path_.string(), " holds a run that came to step ", steps.empty() ? 0 : steps[0],
          ": resume it or take another folder");
  const bool left_behind = fs::exists(path_ / kOptions);  // by a run that was killed before its first checkpoint
  for (const auto& name : kFiles) {
    const bool ours = left_behind && (name == kMetrics || name == kOptions);
    require(ours || !fs::exists(path_ / name), path_.string(), " holds a ", name, " already: take another folder");
  }
}

/// Comes before everything else that is written: with it, the folder of a run that ends before its first checkpoint, say
/// on a full disk, can be taken again.
void RunFolder::write_options(const std::string& options) const {
  write_file_atomically(path_ / kOptions, [&](std::ostream& stream) { stream << options; });
  std::error_code error;
  fs::create_directory(path_ / kCheckpoints, error);
  require(!error, path_ / kCheckpoints, " cannot be made a folder: ", error.message());
}

RunFolder RunFolder::resume(const fs::path& path, const fs::path& checkpoint, const RunState& state) {
  const fs::path source = run_of(checkpoint);
  const bool same = same_file(path, source);
  if (!same) require_own_place(path);
  RunFolder folder(path);
  if (!same) folder.require_new();
  const auto steps = steps_in(path);
  const auto newest = steps.empty() ? 0 : steps[0];
  require(!same || newest == state.step, path.string(), " has come to step ", newest, "; to go on after step ",
          state.step, " instead, take another folder");
  remove_unfinished(path, kFiles);
  remove_unfinished(path / kCheckpoints);
  folder.write_options(state.options);
  if (!source.empty()) copy_metrics(source / kMetrics, path / kMetrics, state.step);
  folder.open_metrics(std::ios::app);
  return folder;
}

void RunFolder::drop_model() {
  for (const char* name : {"config.json", "model.safetensors"}) fs::remove(path_ / name);
}

void RunFolder::open_metrics(std::ios::openmode mode) {
  metrics_.open(path_ / kMetrics, mode);
  require(metrics_.is_open(), "cannot write ", path_ / kMetrics, ": ", std::strerror(errno));
}

fs::path RunFolder::checkpoint(std::int64_t step) const {
  return path_ / kCheckpoints / (std::string(kStep) + std::to_string(step));
}

void RunFolder::log(const RunState& state, const StepResult& result, double epoch, double tokens_per_second) {
  const Json line{{"step", result.finite() ? state.step : state.step + 1},
                  {"epoch", epoch},
                  {"loss", result.loss},
                  {"accuracy", result.accuracy},
                  {"learning_rate", result.learning_rate},
                  {"gradient_norm", result.gradient_norm},
                  {"tokens_per_second", std::round(tokens_per_second)}};
  metrics_ << line.dump() << "\n";
}

void RunFolder::log_evaluation(const RunState& state) {
  const auto& [step, score] = state.last.value();
  const Json line{{"step", step},
                  {"evaluation_loss", score.loss},
                  {"evaluation_accuracy", score.accuracy},
                  {"evaluation_answers", score.answers}};
  metrics_ << line.dump() << "\n";
}

void RunFolder::flush() {
  metrics_.flush();
  require(metrics_.good(), "cannot write ", path_ / kMetrics, ": ", std::strerror(errno));
}

void RunFolder::save(const Trainer& trainer, const RunState& state, const Vocabulary& vocabulary, std::int64_t keep) {
  flush();
  save_checkpoint(checkpoint(state.step), trainer, state, vocabulary);
  for (const auto step : steps_in(path_)) {
    const bool best = state.best && step == state.best->step;
    if (keep-- <= 0 && !best) remove_folder_atomically(checkpoint(step));
  }
}

fs::path run_of(const fs::path& checkpoint) {
  fs::path named = fs::absolute(checkpoint);
  if (!named.has_filename()) named = named.parent_path();  // "step-5/"
  // The names tell where they are those of a run: its checkpoints may be a link to another disk.
  if (!step_of(named)) named = real_path(named);
  const fs::path parent = named.parent_path();
  return parent.filename() == kCheckpoints ? parent.parent_path() : fs::path();
}

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kOptions, error) && fs::is_directory(folder / kCheckpoints, error);
}

fs::path checkpoints_around(const fs::path& path) {
  std::error_code error;
  for (fs::path at = real_path(path); at.has_relative_path(); at = at.parent_path()) {
    const bool of_run = at.filename() == kCheckpoints && is_run(at.parent_path());
    // With its weights: folders of other kinds may have a training.json.
    if (of_run || (is_checkpoint(at) && fs::exists(at / "model.safetensors", error))) return at;
  }
  return {};
}

fs::path read_checkpoint(const fs::path& path, const std::function<void(const fs::path&)>& read) {
  fs::path checkpoint;
  while (true) {
    const fs::path last = std::exchange(checkpoint, find_checkpoint(path));
    try {
      read(checkpoint);
      return checkpoint;
    } catch (...) {
      if (checkpoint == last || fs::exists(checkpoint)) throw;
    }
  }
}

fs::path find_checkpoint(const fs::path& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  require(type != fs::file_type::not_found, "no such folder: ", path.string());
  require(type != fs::file_type::none, "cannot read ", path.string(), ": ", error.message());
  require(type == fs::file_type::directory, path.string(), " is not a folder");
  if (is_checkpoint(path)) return path;
  const auto steps = steps_in(path);
  require(!steps.empty(), path.string(), " holds no checkpoint");
  return path / kCheckpoints / (std::string(kStep) + std::to_string(steps[0]));
}

}  // namespace prenorm
