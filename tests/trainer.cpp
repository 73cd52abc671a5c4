#include "prenorm/training/trainer.h"

#include "prenorm/training/task.h"
#include "support.h"

namespace trainer_test {

using prenorm::EncoderModel;
using prenorm::Head;
using prenorm::ModelConfig;
using prenorm::NormPlacement;
using prenorm::Task;
using prenorm::TaskKind;
using prenorm::Trainer;
using prenorm::TrainingOptions;
using torch::Tensor;

namespace {

const Task kCopy({.kind = TaskKind::copy, .max_length = 8});

ModelConfig config(NormPlacement placement, int64_t layers) {
  return {.vocab_size = 10,
          .d_model = 32,
          .num_heads = 4,
          .num_layers = layers,
          .norm_placement = placement,
          .head = Head::token,
          .num_classes = 10};
}

/// Mean loss of the last ten of `steps` steps on the copy task.
double trained_loss(EncoderModel model, int64_t steps, const TrainingOptions& options = {}) {
  Trainer trainer(model, options);
  double loss = 0;
  while (trainer.steps_done() < steps) {
    const auto examples = kCopy.training_examples(1, 32 * trainer.steps_done(), 32);
    const auto result = trainer.step(prenorm::collate(examples, false));
    if (trainer.steps_done() > steps - 10) loss += result.loss / 10;
  }
  return loss;
}

}  // namespace

TEST_CASE("the loss of a step is the mean cross-entropy over real tokens, and exact counts whole sequences") {
  torch::manual_seed(1);
  auto options = config(NormPlacement::pre, 1);
  options.dropout = 0;
  EncoderModel model(options);
  const auto batch = prenorm::collate({{{1, 2, 3}, {1, 2, 3}}, {{4}, {4}}}, false);
  const Tensor log_p = torch::log_softmax(model(batch.ids, prenorm::AttentionMask::lengths({3, 1})), -1);
  const Tensor expected = -(log_p[0][0][1] + log_p[0][1][2] + log_p[0][2][3] + log_p[1][0][4]) / 4;
  const auto right = [&](int64_t b, int64_t t) {
    return log_p[b][t].argmax().item<int64_t>() == batch.ids[b][t].item<int64_t>();
  };
  const int exact = int{right(0, 0) && right(0, 1) && right(0, 2)} + int{right(1, 0)};
  const auto result = Trainer(model, {}).step(batch);
  CHECK(result.loss == Approx(expected.item<double>()).epsilon(1e-6));
  CHECK(result.accuracy == 0.5 * exact);
  CHECK(result.tokens == 4);
}

TEST_CASE("a batch in parts makes the same step as in one piece") {
  for (const bool per_sequence : {false, true}) {
    auto options = config(NormPlacement::pre, 2);
    options.dropout = 0;
    if (per_sequence) options.head = Head::sequence_mean;
    auto examples = kCopy.training_examples(1, 0, 10);
    if (per_sequence) {
      for (auto& example : examples) example.target.resize(1);
    }
    const auto batch = prenorm::collate(examples, per_sequence);
    torch::manual_seed(4);
    EncoderModel whole(options);
    whole->to(torch::kDouble);
    for (const int64_t parts : {1, 3, 10, 99}) {
      EncoderModel model(std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(whole->clone()));
      EncoderModel in_parts(std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(whole->clone()));
      // Without AdamW's division by the gradient's size, which makes steps of rounding errors.
      const TrainingOptions training{.schedule = {}, .adamw = {.eps = 1.0}};
      auto split = training;
      split.accumulate = parts;
      const auto expected = Trainer(model, training).step(batch), result = Trainer(in_parts, split).step(batch);
      CHECK(result.loss == Approx(expected.loss).epsilon(1e-12));
      CHECK(result.gradient_norm == Approx(expected.gradient_norm).epsilon(1e-12));
      CHECK(result.accuracy == expected.accuracy);
      for (size_t i = 0; i < model->parameters().size(); ++i) {
        CHECK(close(in_parts->parameters()[i], model->parameters()[i]));
      }
    }
  }
}

TEST_CASE("a step whose loss or gradient is no number changes nothing") {
  const auto batch = prenorm::collate(kCopy.training_examples(1, 0, 4), false);
  for (const double bad : {double{NAN}, double{INFINITY}}) {
    EncoderModel model(config(NormPlacement::pre, 1));
    Trainer trainer(model, {});
    trainer.step(batch);
    std::vector<Tensor> before;
    model->encoder->layers[0]->as<prenorm::EncoderLayer>()->ff->parameters()[0].data()[0][0] = bad;
    for (const auto& parameter : model->parameters()) before.push_back(parameter.detach().clone());
    const auto result = trainer.step(batch);
    CHECK_FALSE(result.finite());
    CHECK(trainer.steps_done() == 1);
    for (size_t i = 0; i < before.size(); ++i) {
      CHECK(torch::equal(torch::nan_to_num(model->parameters()[i].detach()), torch::nan_to_num(before[i])));
    }
  }
  // The loss is a number, its gradient is none: the square root has none at 0.
  CHECK_FALSE(prenorm::StepResult{.loss = 1, .gradient_norm = NAN}.finite());
  CHECK_FALSE(prenorm::StepResult{.loss = 1, .gradient_norm = INFINITY}.finite());
  CHECK(prenorm::StepResult{.loss = 1, .gradient_norm = 1}.finite());
}

TEST_CASE("bfloat16 computes in that type, keeps the weights in float and learns") {
  torch::manual_seed(2);
  const EncoderModel model(config(NormPlacement::pre, 2));
  EncoderModel copy(std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(model->clone()));
  const auto batch = prenorm::collate(kCopy.training_examples(1, 0, 32), false);
  TrainingOptions options;
  options.precision = prenorm::Precision::bfloat16;
  torch::manual_seed(5);
  const auto half = Trainer(copy, options).step(batch);
  torch::manual_seed(5);
  const auto full =
      Trainer(EncoderModel(std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(model->clone())), {}).step(batch);
  CHECK(half.loss != full.loss);
  CHECK(half.loss == Approx(full.loss).epsilon(1e-2));
  for (const auto& parameter : copy->parameters()) CHECK(parameter.scalar_type() == torch::kFloat);
  options.schedule = {.peak = 3e-3, .warmup_steps = 20, .steps = 200};
  CHECK(trained_loss(model, 200, options) < 0.1);  // 2.3 before
}

TEST_CASE("copy is learned with the norms in either place") {
  for (const auto placement : {NormPlacement::pre, NormPlacement::post}) {
    torch::manual_seed(2);
    const EncoderModel model(config(placement, 2));
    TrainingOptions options;
    options.schedule = {.peak = 3e-3, .warmup_steps = 20, .steps = 200};
    CHECK(trained_loss(model, 200, options) < 0.1);  // 2.3 before
  }
}

TEST_CASE("twelve pre-norm layers train without warm-up") {
  torch::manual_seed(3);
  TrainingOptions options;
  options.schedule.peak = 1e-3;
  CHECK(trained_loss(EncoderModel(config(NormPlacement::pre, 12)), 100, options) < 0.5);  // 2.3 before
}

TEST_CASE("a model without a head is not trained") {
  ModelConfig headless = config(NormPlacement::pre, 1);
  headless.head = Head::none;
  CHECK(error_of([&] { Trainer(EncoderModel(headless), {}); }) == "a model without a head has no answers to train on");
}

}  // namespace trainer_test
