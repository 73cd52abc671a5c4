#include "prenorm/training/trainer.h"

#include "support.h"

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
  std::mt19937_64 random(1);
  double loss = 0;
  while (trainer.steps_done() < steps) {
    const auto result = trainer.step(prenorm::collate(kCopy.training_examples(32, random), false));
    if (trainer.steps_done() > steps - 10) loss += result.loss.item<double>() / 10;
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
  CHECK(close(result.loss, expected));
  CHECK(result.exact.item<int64_t>() == exact);
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

TEST_CASE("predictions are as long as the targets, and the mode is put back") {
  EncoderModel model(config(NormPlacement::pre, 1));
  const auto examples = kCopy.evaluation_examples();
  const std::vector<prenorm::Example> few(examples.begin(), examples.begin() + 7);
  const auto in_one = prenorm::predict(model, few), in_many = prenorm::predict(model, few, 2);
  CHECK(model->is_training());
  CHECK(in_one == in_many);
  for (size_t i = 0; i < few.size(); ++i) CHECK(in_one[i].size() == few[i].target.size());
}

TEST_CASE("a model without a head is not trained") {
  ModelConfig headless = config(NormPlacement::pre, 1);
  headless.head = Head::none;
  CHECK(error_of([&] { Trainer(EncoderModel(headless), {}); }) == "a model without a head has no answers to train on");
}
