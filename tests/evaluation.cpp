#include "prenorm/training/evaluation.h"

#include "prenorm/training/task.h"
#include "support.h"

namespace evaluation_test {

using prenorm::EncoderModel;
using prenorm::Example;
using prenorm::Head;
using prenorm::kUnknownAnswer;
using torch::Tensor;

namespace {

EncoderModel model(Head head) {
  torch::manual_seed(1);
  return EncoderModel(prenorm::ModelConfig{
      .vocab_size = 3, .d_model = 8, .num_heads = 2, .num_layers = 1, .head = head, .num_classes = 3});
}

/// The examples that it is given.
class Given : public prenorm::Dataset {
 public:
  Given(std::vector<Example> examples, bool per_sequence)
      : examples_(std::move(examples)), vocabulary_({"a", "b", "c"}, {"x", "y", "z"}, per_sequence) {}

  const prenorm::Vocabulary& vocabulary() const override { return vocabulary_; }
  int64_t max_length() const override { return 4; }
  int64_t epoch_size() const override { return 0; }
  uint64_t fingerprint() const override { return 0; }
  std::vector<Example> training_examples(uint64_t, int64_t, int64_t) const override { return {}; }
  int64_t evaluation_size() const override { return std::ssize(examples_); }
  std::vector<Example> evaluation_examples(int64_t first, int64_t size) const override {
    return {examples_.begin() + first, examples_.begin() + first + size};
  }

 private:
  std::vector<Example> examples_;
  prenorm::Vocabulary vocabulary_;
};

}  // namespace

TEST_CASE("predictions are as many as tokens, or one, and the mode is put back") {
  std::vector<Example> examples;
  for (int64_t i = 0; i < 300; ++i)
    examples.push_back({std::vector<int64_t>(static_cast<size_t>(1 + i % 4), i % 3), {}});
  for (const auto head : {Head::token, Head::sequence_mean}) {
    auto trained = model(head);
    const auto predictions = prenorm::predict(trained, examples);
    CHECK(trained->is_training());
    REQUIRE(predictions.size() == examples.size());
    trained->eval();
    for (size_t i = 0; i < examples.size(); i += 37) {
      const Tensor answers = trained(torch::tensor(examples[i].input).unsqueeze(0)).argmax(-1).flatten();
      CHECK(same(torch::tensor(predictions[i]), answers));
    }
  }
}

TEST_CASE("the score is the mean over answers and over sequences, computed by hand") {
  const std::vector<Example> examples{{{0, 1, 2}, {0, 1, 2}}, {{1}, {2}}, {{2, 2}, {1, kUnknownAnswer}}};
  auto judged = in_eval(model(Head::token));
  double loss = 0, right = 0, exact = 0;
  for (const auto& [input, target] : examples) {
    const Tensor log_p = torch::log_softmax(judged(torch::tensor(input).unsqueeze(0))[0].to(torch::kDouble), -1);
    bool all = true;
    for (size_t t = 0; t < target.size(); ++t) {
      if (target[t] != kUnknownAnswer) loss -= log_p[static_cast<int64_t>(t)][target[t]].item<double>() / 5;
      const bool hit = log_p[static_cast<int64_t>(t)].argmax().item<int64_t>() == target[t];
      right += hit / 6.0;
      all = all && hit;
    }
    exact += all / 3.0;
  }
  judged->train();
  const auto before = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  const auto score = prenorm::evaluate(judged, Given(examples, false)).value();
  CHECK(score.loss == Approx(loss).epsilon(1e-6));
  CHECK(score.answers == Approx(right));
  CHECK(score.accuracy == Approx(exact));
  CHECK(judged->is_training());
  CHECK(same(at::globalContext().defaultGenerator(torch::kCPU).get_state(), before));
}

TEST_CASE("an evaluation can be interrupted and repeated") {
  const prenorm::Task task({.kind = prenorm::TaskKind::majority});
  auto judged = EncoderModel(prenorm::ModelConfig{
      .vocab_size = 10, .d_model = 8, .num_heads = 2, .num_layers = 1, .head = Head::sequence_mean, .num_classes = 2});
  CHECK_FALSE(prenorm::evaluate(judged, task, [] { return true; }));
  const auto first = prenorm::evaluate(judged, task).value(), again = prenorm::evaluate(judged, task).value();
  CHECK(first.loss == again.loss);
  CHECK(first.accuracy == again.accuracy);
}

TEST_CASE("chance is the best constant answer") {
  CHECK(prenorm::chance(Given({{{0}, {1}}, {{0}, {2}}, {{0}, {2}}, {{0, 0}, {2, 2}}}, false)) == 0.5);
  constexpr auto none = kUnknownAnswer;
  CHECK(prenorm::chance(Given({{{0}, {none}}, {{0}, {none}}, {{0}, {2}}, {{0, 0}, {2, none}}}, false)) == 0.25);
  CHECK(prenorm::chance(Given({{{0}, {none}}}, true)) == 0.0);
}

TEST_CASE("without an answer that training has there is nothing to judge by") {
  const Given unknown({{{0, 1}, {kUnknownAnswer, kUnknownAnswer}}}, false);
  CHECK(error_of([&] { prenorm::evaluate(model(Head::token), unknown); }) ==
        "training has none of the answers of the evaluation examples");
}

}  // namespace evaluation_test
