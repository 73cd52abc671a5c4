#include "prenorm/training/checkpoint.h"

#include <filesystem>
#include <fstream>

#include "folder.h"
#include "prenorm/file.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/training/task.h"
#include "support.h"

namespace checkpoint_test {

namespace fs = std::filesystem;
using prenorm::EncoderModel;
using prenorm::load_checkpoint;
using prenorm::RunState;
using prenorm::save_checkpoint;
using prenorm::Trainer;
using torch::Tensor;

namespace {

const prenorm::Task kCopy({.kind = prenorm::TaskKind::copy, .max_length = 8});
const prenorm::ModelConfig kConfig{.vocab_size = 10,
                                   .d_model = 16,
                                   .num_heads = 2,
                                   .num_layers = 1,
                                   .dropout = 0.3,
                                   .head = prenorm::Head::token,
                                   .num_classes = 10};

/// A folder of its own for each test, removed with it.
double step(Trainer& trainer) {
  return trainer.step(prenorm::collate(kCopy.training_examples(1, 16 * trainer.steps_done(), 16), false)).loss;
}

/// The message of the error of either kind, its first line.
std::string problem(const fs::path& folder, Trainer& trainer) {
  try {
    load_checkpoint(folder, trainer);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const prenorm::Error& error) {
    return error.what();
  }
  return {};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Everything that load_checkpoint may change.
std::vector<Tensor> everything(const Trainer& trainer) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : trainer.model()->parameters()) tensors.push_back(parameter.detach().clone());
  for (const auto& [name, tensor] : trainer.optimizer().state()) tensors.push_back(tensor.clone());
  tensors.push_back(at::globalContext().defaultGenerator(torch::kCPU).get_state());
  tensors.push_back(torch::tensor(trainer.steps_done()));
  return tensors;
}

}  // namespace

TEST_CASE("a loaded checkpoint goes on bit for bit, dropout included, and only the whole of it does") {
  const Folder folder;
  const fs::path saved = folder.path / "saved";
  torch::manual_seed(1);
  Trainer original(EncoderModel(kConfig), {});
  for (int i = 0; i < 5; ++i) step(original);
  const RunState state{.step = 5,
                       .examples = 80,
                       .schedule_steps = 1000,
                       .data = 0xfedcba9876543210,
                       .training_data = 0x8123456789abcdef,
                       .last = {{5, {2.5, 0.25, 0.5}}},
                       .best = {{3, {0.1, 0.75, 0.8}}},
                       .options = R"({"task":"copy"})"};
  save_checkpoint(saved, original, state, kCopy.vocabulary());
  std::vector<double> losses;
  for (int i = 0; i < 5; ++i) losses.push_back(step(original));
  const auto expected = everything(original);

  torch::manual_seed(2);
  Trainer other(EncoderModel(kConfig), {});
  step(other);
  const RunState loaded = load_checkpoint(saved, other);
  CHECK(loaded.step == 5);
  CHECK(loaded.examples == 80);
  CHECK(loaded.schedule_steps == 1000);
  CHECK(loaded.data == state.data);
  CHECK(loaded.training_data == state.training_data);
  CHECK(loaded.last->score.loss == 2.5);
  CHECK(loaded.best->step == 3);
  CHECK(loaded.best->score.answers == 0.8);
  CHECK(loaded.options == state.options);
  for (const double loss : losses) CHECK(step(other) == loss);
  CHECK(std::ranges::equal(everything(other), expected, same));

  // Each part alone makes a difference: the moments, the random generator, the step of the schedule.
  const auto differs = [&](const auto& forget) {
    load_checkpoint(saved, other);
    forget();
    for (int i = 0; i < 5; ++i) step(other);
    return !same(other.model()->parameters()[0].detach(), expected[0]);
  };
  CHECK(differs([&] {
    for (const auto& [name, tensor] : other.optimizer().state()) tensor.zero_();
  }));
  CHECK(differs([] { torch::manual_seed(3); }));
  CHECK_FALSE(differs([] {}));
}

TEST_CASE("a tied head is resumed as one tensor, with one pair of moments") {
  const Folder folder;
  const fs::path saved = folder.path / "saved";
  auto config = kConfig;
  config.tie_head = true;
  torch::manual_seed(1);
  Trainer original(EncoderModel(config), {});
  for (int i = 0; i < 3; ++i) step(original);
  save_checkpoint(saved, original, {.step = 3}, kCopy.vocabulary());
  const double loss = step(original);
  Trainer other(EncoderModel(config), {});
  load_checkpoint(saved, other);
  CHECK(step(other) == loss);
  CHECK(std::ranges::equal(everything(other), everything(original), same));
  CHECK(other.model()->head->weight.is_same(other.model()->embeddings->token->weight));
  CHECK(prenorm::TensorFile::open(saved / "training.safetensors").find("exp_avg.head.weight") == nullptr);

  Trainer apart(EncoderModel(kConfig), {});
  CHECK(problem(saved, apart).ends_with("config.json: tie_head is true, here it is false"));
  save_checkpoint(saved, apart, {.step = 1}, kCopy.vocabulary());
  CHECK(problem(saved, other).ends_with("config.json: tie_head is false, here it is true"));
  EncoderModel by_hand = apart.model();
  by_hand->head->weight = by_hand->embeddings->token->weight;
  save_checkpoint(saved, apart, {.step = 1}, kCopy.vocabulary());
  CHECK(prenorm::ModelConfig::load(saved / "config.json").tie_head);
}

TEST_CASE("a checkpoint has the files and names that it documents") {
  const Folder folder;
  const fs::path saved = folder.path / "saved";
  Trainer trainer(EncoderModel(kConfig), {});
  step(trainer);
  save_checkpoint(saved, trainer, {.step = 1}, kCopy.vocabulary());
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(saved)) files.insert(entry.path().filename().string());
  CHECK(files == std::set<std::string>{"config.json", "model.safetensors", "training.json", "training.safetensors",
                                       "vocabulary.json"});
  const auto file = prenorm::TensorFile::open(saved / "training.safetensors");
  CHECK(file.find("exp_avg.head.weight")->shape == std::vector<int64_t>{10, 16});
  CHECK(file.find("exp_avg_sq.embeddings.token.weight") != nullptr);
  CHECK(file.find("step.head.bias")->shape.empty());
  CHECK(file.find("generator.cpu") != nullptr);
  CHECK(file.tensors().size() == 3 * trainer.model()->parameters().size() + 1);
}

TEST_CASE("what does not fit or is broken is named, and nothing changes") {
  const Folder folder;
  const fs::path saved = folder.path / "saved";
  torch::manual_seed(1);
  Trainer trainer(EncoderModel(kConfig), {});
  step(trainer);
  save_checkpoint(saved, trainer, {.step = 1}, kCopy.vocabulary());
  step(trainer);
  const auto before = everything(trainer);
  const auto check = [&](const std::string& expected) {
    const auto message = problem(saved, trainer);
    INFO(message);
    CHECK(message.find(expected) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.find(saved.string()) != std::string::npos);
    CHECK(std::ranges::equal(everything(trainer), before, same));
  };
  const auto spoil = [&](const char* name, const auto& change, const std::string& expected) {
    const fs::path file = saved / name;
    const std::string bytes = prenorm::read_file(file);
    write(file, change(bytes));
    check(expected);
    write(file, bytes);
  };
  const auto half = [](const std::string& bytes) { return bytes.substr(0, bytes.size() / 2); };
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](std::string bytes) { return bytes.replace(bytes.find(from), from.size(), to); };
  };
  spoil("training.json", half, "training.json is not valid JSON, perhaps cut off");
  spoil("training.json", replace("\"step\": 1", "\"step\": -1"), "step is -1");
  spoil("training.json", replace("\"examples\"", "\"exmaples\""), "examples is missing");
  spoil("training.json", replace("\"version\": 1", "\"version\": 2"), "version is 2; this program reads version 1");
  spoil("training.json", replace("prenorm checkpoint", "somebody else's"), "model_type is \"somebody else's\"");
  spoil(
      "training.json", [](const std::string&) { return "[]"; }, "training.json is not a JSON object");
  spoil("model.safetensors", half, "model.safetensors");
  spoil("training.safetensors", half, "training.safetensors");
  spoil("training.safetensors", replace("generator.cpu", "generator.cup"), "generator.cpu is missing");
  spoil("training.safetensors", replace("exp_avg.head.bias", "exp_avg.haed.bias"), "exp_avg.head.bias is missing");
  spoil("config.json", replace("\"dropout\": 0.3", "\"dropout\": 0.2"), "dropout is 0.2, here it is 0.3");
  for (const char* name : {"training.json", "training.safetensors", "model.safetensors", "config.json"}) {
    fs::rename(saved / name, saved / "away");
    check(name);
    fs::rename(saved / "away", saved / name);
  }
  // The generator's state is the last thing that can be wrong.
  auto tensors = prenorm::read_file(saved / "training.safetensors");
  const auto info = *prenorm::TensorFile::open(saved / "training.safetensors").find("generator.cpu");
  std::fill(tensors.begin() + static_cast<int64_t>(info.begin), tensors.begin() + static_cast<int64_t>(info.end),
            '\xff');
  write(saved / "training.safetensors", tensors);
  CHECK_FALSE(problem(saved, trainer).empty());
  CHECK(std::ranges::equal(everything(trainer), before, same));
}

TEST_CASE("numbers that are none are not saved, and the old checkpoint stays") {
  const Folder folder;
  const fs::path saved = folder.path / "saved";
  Trainer trainer(EncoderModel(kConfig), {});
  step(trainer);
  save_checkpoint(saved, trainer, {.step = 1}, kCopy.vocabulary());
  const auto old = prenorm::read_file(saved / "model.safetensors");
  step(trainer);
  const auto refused = [&](const Tensor& tensor, float value, const std::string& name) {
    const Tensor kept = tensor.clone();
    const torch::NoGradGuard no_grad;
    tensor.flatten()[0] = value;
    CHECK(error_of([&] { save_checkpoint(saved, trainer, {.step = 2}, kCopy.vocabulary()); }) ==
          name + " is no longer finite after step 2; no checkpoint is written of that");
    tensor.copy_(kept);
  };
  refused(trainer.model()->head->weight.detach(), NAN, "head.weight");
  refused(trainer.model()->head->bias.detach(), INFINITY, "head.bias");
  refused(trainer.optimizer().state()[1].second, INFINITY, "exp_avg_sq.embeddings.token.weight");
  CHECK(prenorm::read_file(saved / "model.safetensors") == old);
  CHECK(prenorm::read_run_state(saved).step == 1);
}

TEST_CASE("a checkpoint takes the place of a checkpoint, however its folder is called, and of nothing else") {
  const Folder folder;
  const fs::path saved = folder.path / "saved";
  Trainer trainer(EncoderModel(kConfig), {});
  for (const fs::path& path : {saved, saved / "", saved / "."}) {
    const auto step = path == saved ? 1 : prenorm::read_run_state(saved).step + 1;
    save_checkpoint(path, trainer, {.step = step}, kCopy.vocabulary());
    CHECK(prenorm::read_run_state(saved).step == step);
  }
  for (const char* name : {"file", "folder"}) {
    const fs::path path = saved / name;
    if (name == std::string("folder")) fs::create_directory(path);
    write(name == std::string("folder") ? path / "precious" : path, "mine");
    CHECK(message_of<prenorm::Error>([&] { save_checkpoint(path, trainer, {}, kCopy.vocabulary()); }) ==
          path.string() + " holds something that is no checkpoint");
  }
  CHECK(prenorm::read_file(saved / "folder" / "precious") == "mine");
}

}  // namespace checkpoint_test
