#include "prenorm/training/checkpoint.h"

#include <torch/version.h>

#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/json.h"
#include "prenorm/saved_config.h"
#include "prenorm/weights/pretrained.h"
#include "prenorm/weights/state.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

constexpr int kCheckpointVersion = 1;
constexpr const char* kState = "training.json";
constexpr const char* kTensors = "training.safetensors";

torch::Device device_of(const Trainer& trainer) {
  return trainer.model()->embeddings->token->weight.device();
}

/// The random generators that a model on this device draws from, and their names in a checkpoint.
std::vector<std::pair<std::string, at::Generator>> generators(torch::Device device) {
  std::vector<std::pair<std::string, at::Generator>> found{
      {"generator.cpu", at::globalContext().defaultGenerator(torch::kCPU)}};
  if (device.is_cuda()) found.emplace_back("generator.cuda", at::globalContext().defaultGenerator(device));
  return found;
}

/// What a generator, from which other threads may draw meanwhile, will draw from.
Tensor state_of(at::Generator& generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

std::vector<detail::StateEntry> optimizer_entries(const Trainer& trainer) {
  std::vector<detail::StateEntry> entries;
  for (auto& [name, tensor] : trainer.optimizer().state()) entries.push_back({name, tensor});
  return entries;
}

void require_finite(const std::vector<detail::StateEntry>& entries, std::int64_t step) {
  for (const auto& [name, tensor] : entries) {
    TORCH_CHECK(!tensor.is_floating_point() || tensor.isfinite().all().item<bool>(), name,
                " is no longer finite after step ", step, "; no checkpoint is written of that");
  }
}

Json to_json(const std::optional<ScoredStep>& scored) {
  if (!scored) return nullptr;
  const auto& [step, score] = *scored;
  return {{"step", step}, {"loss", score.loss}, {"accuracy", score.accuracy}, {"answers", score.answers}};
}

/// The members of a JSON object, each of which has to be there and of its type.
class Members {
 public:
  Members(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    require(json_.is_object(), where_, " is not a JSON object");
  }

  const Json& at(const char* name) const {
    require(json_.contains(name), where_, ": ", name, " is missing");
    return json_[name];
  }

  std::int64_t count(const char* name) const {
    const Json& value = at(name);
    require(value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX, where_, ": ", name, " is ", value,
            ", not a number of things");
    return value.get<std::int64_t>();
  }

  std::uint64_t fingerprint(const char* name) const {
    const Json& value = at(name);
    require(value.is_number_unsigned(), where_, ": ", name, " is ", value, ", not a fingerprint");
    return value.get<std::uint64_t>();
  }

  double number(const char* name) const {
    const Json& value = at(name);
    require(value.is_number() || value.is_null(), where_, ": ", name, " is ", value, ", not a number");
    return value.is_null() ? NAN : value.get<double>();
  }

  std::optional<ScoredStep> scored(const char* name) const {
    if (at(name).is_null()) return std::nullopt;
    const Members members(at(name), where_ + ": " + name);
    return ScoredStep{members.count("step"),
                      {members.number("loss"), members.number("accuracy"), members.number("answers")}};
  }

 private:
  const Json& json_;
  std::string where_;
};

/// Throws Error naming the first field in which the model of a checkpoint is not the trainer's.
void require_same_model(const fs::path& path, const ModelConfig& ours) {
  const auto saved = ModelConfig::load(path);
  if (saved == ours) return;
  Json theirs = Json::parse(saved.to_json()), here = Json::parse(ours.to_json());
  theirs["tie_head"] = saved.tie_head;  // which files have only where it is true
  here["tie_head"] = ours.tie_head;
  for (const auto& [name, value] : here.items()) {
    require(theirs[name] == value, path.string(), ": ", name, " is ", theirs[name], ", here it is ", value);
  }
}

}  // namespace

void save_checkpoint(const fs::path& path, const Trainer& trainer, const RunState& state,
                     const Vocabulary& vocabulary) {
  std::error_code error;
  require(!fs::exists(path, error) || is_checkpoint(path) || (fs::is_directory(path) && fs::is_empty(path)),
          path.string(), " holds something that is no checkpoint");
  auto tensors = optimizer_entries(trainer);
  require_finite(detail::state_entries(*trainer.model()), state.step);
  require_finite(tensors, state.step);
  for (auto& [name, generator] : generators(device_of(trainer))) {
    tensors.push_back({name, state_of(generator)});
  }
  const Json json{{"model_type", "prenorm checkpoint"},
                  {"version", kCheckpointVersion},
                  {"prenorm", PRENORM_VERSION},
                  {"libtorch", TORCH_VERSION},
                  {"step", state.step},
                  {"examples", state.examples},
                  {"schedule_steps", state.schedule_steps},
                  {"data", state.data},
                  {"training_data", state.training_data},
                  {"last", to_json(state.last)},
                  {"best", to_json(state.best)},
                  {"options", Json::parse(state.options)}};
  write_folder_atomically(path, [&](const fs::path& folder) {
    save_pretrained(trainer.model(), folder);
    detail::save_state(tensors, folder / kTensors, {}, {});
    vocabulary.save(folder / "vocabulary.json");
    write_file_atomically(folder / kState, [&](std::ostream& stream) { stream << json.dump(2) << "\n"; });
  });
}

bool is_checkpoint(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / kState, error) || fs::exists(path / kTensors, error);
}

RunState read_run_state(const fs::path& path) {
  const fs::path file = path / kState;
  require(fs::is_directory(path), path.string(), " is not a folder");
  require(fs::exists(file), path.string(), " is not a checkpoint: it has no ", kState);
  const Json json = Json::parse(read_file(file), refuse_deep<Json>, /*allow_exceptions=*/false);
  require(!json.is_discarded(), file.string(), " is not valid JSON, perhaps cut off");
  const Members members(json, file.string());
  const Json &type = members.at("model_type"), &version = members.at("version");
  require(type == "prenorm checkpoint", file.string(), ": model_type is ", type, ", not \"prenorm checkpoint\"");
  require(version == kCheckpointVersion, file.string(), ": version is ", version, "; this program reads version ",
          kCheckpointVersion);
  require(members.at("options").is_object(), file.string(), ": options is not a JSON object");
  return {.step = members.count("step"),
          .examples = members.count("examples"),
          .schedule_steps = members.count("schedule_steps"),
          .data = members.fingerprint("data"),
          .training_data = json.contains("training_data") ? members.fingerprint("training_data") : 0,
          .last = members.scored("last"),
          .best = members.scored("best"),
          .options = members.at("options").dump()};
}

RunState load_checkpoint(const fs::path& path, Trainer& trainer) {
  RunState state = read_run_state(path);
  require_same_model(path / "config.json", saved_config(*trainer.model()));
  const fs::path weights = path / "model.safetensors", tensors = path / kTensors;
  const TensorFile file = TensorFile::open(tensors);
  const auto moments = optimizer_entries(trainer);
  std::vector<at::Generator> drawn;
  std::vector<detail::StateEntry> drawn_states;
  for (auto& [name, generator] : generators(device_of(trainer))) {
    if (name != "generator.cpu" && file.find(name) == nullptr) continue;  // saved where there was no such device
    drawn.push_back(generator);
    drawn_states.push_back({name, torch::empty_like(state_of(generator))});
  }
  for (const auto* entries : {&moments, &std::as_const(drawn_states)}) {
    for (const auto& [name, tensor] : *entries) {
      require(file.find(name) != nullptr, tensors.string(), ": ", name, " is missing");
    }
  }
  // The file holds more than each of the two, and perhaps the generator of a device that is not in use here.
  const LoadOptions partly{.strict = false, .convert_dtype = false};
  EncoderModel model = trainer.model();
  detail::check_state(detail::state_entries(*model), weights, {.convert_dtype = false});
  detail::check_state(moments, tensors, partly);
  detail::load_state(drawn_states, tensors, partly);
  for (size_t i = 0; i < drawn.size(); ++i) {
    try {
      const std::scoped_lock lock(drawn[i].mutex());
      drawn[i].clone().set_state(drawn_states[i].tensor);
    } catch (const c10::Error&) {
      fail(tensors.string(), ": ", drawn_states[i].name, " is not a state of that random generator");
    }
  }

  detail::load_state(moments, tensors, partly);
  load_weights(*model, weights);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const std::scoped_lock lock(drawn[i].mutex());
    drawn[i].set_state(drawn_states[i].tensor);
  }
  trainer.set_steps_done(state.step);
  return state;
}

}  // namespace prenorm
