#include <algorithm>
#include <filesystem>
#include <iostream>

#include "folder.h"
#include "prenorm/training/checkpoint.h"
#include "prenorm/training/task.h"
#include "prenorm/weights/weights.h"
#include "support.h"

namespace cuda_test {

using prenorm::AttentionMask;
using prenorm::EncoderModel;
using prenorm::Head;
using prenorm::ModelConfig;
using prenorm::Position;
using torch::Tensor;

// Catch2 2 cannot skip: CTest reads this line.
#define REQUIRE_CUDA                          \
  if (!torch::cuda::is_available()) {         \
    std::cout << "SKIPPED: no CUDA device\n"; \
    return;                                   \
  }

namespace {

EncoderModel model(Position position = Position::sinusoidal) {
  return in_eval(EncoderModel(ModelConfig{.vocab_size = 9,
                                          .d_model = 32,
                                          .num_heads = 4,
                                          .num_layers = 2,
                                          .position = position,
                                          .head = Head::token,
                                          .num_classes = 5}));
}

/// Of a model that learns the copy task.
ModelConfig copy_config() {
  auto config = model()->config;
  config.vocab_size = config.num_classes = 10;
  return config;
}

const Tensor kIds = torch::tensor({{1, 2, 3, 4, 5, 6}, {6, 0, 1, 0, 0, 0}, {8, 0, 0, 0, 0, 0}});

std::vector<AttentionMask> masks() {
  const Tensor real = torch::arange(6) < torch::tensor({6, 3, 0}).unsqueeze(1);
  return {AttentionMask(),
          AttentionMask::causal(),
          AttentionMask::lengths({6, 3, 0}),
          AttentionMask::lengths({6, 3, 0}) & AttentionMask::causal(),
          AttentionMask::padding(real),
          AttentionMask::padding(real.flip(1)) & AttentionMask::causal(),
          AttentionMask(torch::randn({6, 6}))};
}

}  // namespace

TEST_CASE("CPU and CUDA agree in double for every mask") {
  REQUIRE_CUDA
  torch::manual_seed(1);
  auto on_cpu = model();
  on_cpu->to(torch::kDouble);
  EncoderModel on_gpu(std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(on_cpu->clone(torch::Device(torch::kCUDA))));
  for (const auto& mask : masks()) {
    CHECK(close(on_gpu(kIds.to(torch::kCUDA), mask).cpu(), on_cpu(kIds, mask)));
    const auto gpu = on_gpu->inspect(kIds.to(torch::kCUDA), mask), cpu = on_cpu->inspect(kIds, mask);
    CHECK(close(gpu.output.cpu(), cpu.output));
    CHECK(close(gpu.attention_weights[1].cpu(), cpu.attention_weights[1]));
  }
}

TEST_CASE("every floating type runs on CUDA, masked, with finite gradients") {
  REQUIRE_CUDA
  torch::manual_seed(2);
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    auto on_gpu = model();
    on_gpu->to(torch::kCUDA, type);
    for (const auto& mask : masks()) {
      const Tensor output = on_gpu(kIds.to(torch::kCUDA), mask);
      CHECK(output.scalar_type() == type);
      CHECK(output.isfinite().all().item<bool>());
      CHECK(gradients_finite(*on_gpu, output));
    }
  }
}

TEST_CASE("a model moves to CUDA and back with its positions") {
  REQUIRE_CUDA
  for (const auto position : {Position::sinusoidal, Position::learned}) {
    auto moved = model(position);
    const Tensor before = moved(kIds);
    moved->to(torch::kCUDA);
    CHECK(torch::allclose(moved(kIds.to(torch::kCUDA)).cpu(), before, 0.0, 1e-4));
    moved->to(torch::kCPU);
    CHECK(same(moved(kIds), before));
  }
}

TEST_CASE("training steps on CUDA lower the loss") {
  REQUIRE_CUDA
  torch::manual_seed(3);
  EncoderModel trained(copy_config());
  trained->to(torch::kCUDA);
  prenorm::Trainer trainer(trained, {});
  const prenorm::Task task({.kind = prenorm::TaskKind::copy});
  double first = 0, last = 0;
  while (trainer.steps_done() < 100) {
    last = trainer.step(prenorm::collate(task.training_examples(1, 32 * trainer.steps_done(), 32), false)).loss;
    if (trainer.steps_done() == 1) first = last;
  }
  CHECK(last < 0.5 * first);
}

TEST_CASE("weights go from CUDA to a file and back") {
  REQUIRE_CUDA
  const Folder folder;
  const auto path = folder.path / "weights.safetensors";
  auto original = model(), other = model(), on_cpu = model();
  original->to(torch::kCUDA);
  other->to(torch::kCUDA);
  for (const auto& layout : {prenorm::Layout{}, prenorm::gpt2_layout(), prenorm::bert_layout()}) {
    prenorm::save_weights(*original, path, layout);
    prenorm::load_weights(*other, path, {.layout = layout});
    prenorm::load_weights(*on_cpu, path, {.layout = layout});
    CHECK(std::ranges::equal(other->parameters(), original->parameters(), same));
    CHECK(same(on_cpu->head->weight, original->head->weight.cpu()));
    for (auto& parameter : other->parameters()) parameter.data().zero_();
  }
}

TEST_CASE("a checkpoint goes from CUDA to the CPU and back") {
  REQUIRE_CUDA
  const Folder temporary;
  const auto folder = temporary.path / "checkpoint";
  const prenorm::Task task({.kind = prenorm::TaskKind::copy});
  auto config = copy_config();
  const auto batch = prenorm::collate(task.training_examples(1, 0, 32), false);
  for (const auto& [from, to] : {std::pair(torch::kCUDA, torch::kCPU), std::pair(torch::kCPU, torch::kCUDA)}) {
    EncoderModel original(config), other(config);
    original->to(from);
    other->to(to);
    prenorm::Trainer saved(original, {}), loaded(other, {});
    saved.step(batch);
    prenorm::save_checkpoint(folder, saved, {.step = 1}, task.vocabulary());
    CHECK(prenorm::load_checkpoint(folder, loaded).step == 1);
    for (size_t i = 0; i < original->parameters().size(); ++i) {
      CHECK(same(original->parameters()[i].cpu(), other->parameters()[i].cpu()));
    }
    CHECK(loaded.step(batch).finite());
  }
}

TEST_CASE("a run that is resumed on CUDA draws the same dropout") {
  REQUIRE_CUDA
  const Folder temporary;
  const auto folder = temporary.path / "checkpoint";
  const prenorm::Task task({.kind = prenorm::TaskKind::copy});
  auto config = copy_config();
  config.dropout = 0.3;
  const auto batch = prenorm::collate(task.training_examples(1, 0, 32), false);
  EncoderModel original(config);
  original->to(torch::kCUDA);
  prenorm::Trainer saved(original, {});
  saved.step(batch);
  prenorm::save_checkpoint(folder, saved, {.step = 1}, task.vocabulary());
  const double expected = saved.step(batch).loss;
  prenorm::load_checkpoint(folder, saved);
  CHECK(saved.step(batch).loss == Approx(expected).epsilon(1e-6));
}

TEST_CASE("bfloat16 trains on CUDA") {
  REQUIRE_CUDA
  const prenorm::Task task({.kind = prenorm::TaskKind::copy});
  EncoderModel trained(copy_config());
  trained->to(torch::kCUDA);
  prenorm::TrainingOptions options;
  options.precision = prenorm::Precision::bfloat16;
  prenorm::Trainer trainer(trained, options);
  for (int64_t step = 0; step < 20; ++step) {
    CHECK(trainer.step(prenorm::collate(task.training_examples(1, 32 * step, 32), false)).finite());
  }
}

}  // namespace cuda_test
