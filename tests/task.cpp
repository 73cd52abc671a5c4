#include "prenorm/training/task.h"

#include <set>

#include "support.h"

using prenorm::Example;
using prenorm::kIgnored;
using prenorm::Task;
using prenorm::TaskKind;
using prenorm::TaskOptions;

namespace {

using Symbols = std::vector<int64_t>;

Symbols answer(TaskKind kind, const Symbols& input) {
  return Task({.kind = kind}).answer(input);
}

}  // namespace

TEST_CASE("each task has its right answer") {
  const Symbols input{7, 5, 9, 5, 2};
  CHECK(answer(TaskKind::copy, input) == input);
  CHECK(answer(TaskKind::reverse, input) == Symbols{2, 5, 9, 5, 7});
  CHECK(answer(TaskKind::sort, input) == Symbols{2, 5, 5, 7, 9});
  CHECK(answer(TaskKind::histogram, input) == Symbols{1, 2, 1, 2, 1});
  CHECK(answer(TaskKind::majority, input) == Symbols{1});
  CHECK(answer(TaskKind::majority, {4, 4, 9}) == Symbols{0});
  CHECK(answer(TaskKind::parity, input) == Symbols{0});
  CHECK(answer(TaskKind::parity, {0, 0, 1}) == Symbols{1});
}

TEST_CASE("sequences keep to their symbols and lengths, and answers to their classes") {
  std::mt19937_64 random(1);
  for (const auto& [name, kind] : prenorm::enum_names<TaskKind>()) {
    INFO(name);
    const Task task({.kind = kind, .symbols = 6, .min_length = 3, .max_length = 10});
    std::set<size_t> lengths;
    for (const auto& [input, target] : task.training_examples(2000, random)) {
      lengths.insert(input.size());
      const auto within = [](const Symbols& values, int64_t limit) {
        return std::ranges::all_of(values, [=](int64_t value) { return value >= 0 && value < limit; });
      };
      REQUIRE(within(input, 6));
      REQUIRE(within(target, task.num_classes()));
      REQUIRE(target.size() == (task.per_sequence() ? 1 : input.size()));
    }
    const std::set<size_t> odd{3, 5, 7, 9}, all{3, 4, 5, 6, 7, 8, 9, 10};
    CHECK(lengths == (kind == TaskKind::majority ? odd : all));
  }
}

TEST_CASE("no evaluation sequence is ever trained on, and all of them differ") {
  const Task task({.symbols = 3, .min_length = 2, .max_length = 10});
  const auto evaluation = task.evaluation_examples();
  CHECK(evaluation.size() == Task::kEvaluationSize);
  std::set<Symbols> seen;
  for (const auto& example : evaluation) seen.insert(example.input);
  CHECK(seen.size() == evaluation.size());
  std::mt19937_64 random(3);
  for (const auto& example : task.training_examples(50000, random)) REQUIRE_FALSE(seen.contains(example.input));
  CHECK(task.evaluation_examples().front().input == evaluation.front().input);
}

TEST_CASE("a batch is padded to its longest sequence") {
  const std::vector<Example> examples{{{1, 2, 3}, {3, 2, 1}}, {{4}, {4}}};
  const auto batch = prenorm::collate(examples, /*per_sequence=*/false);
  CHECK(same(batch.ids, torch::tensor({{1, 2, 3}, {4, 0, 0}})));
  CHECK(same(batch.targets, torch::tensor(std::vector<int64_t>{3, 2, 1, 4, kIgnored, kIgnored}).view({2, 3})));
  CHECK(batch.lengths == Symbols{3, 1});
  CHECK(batch.tokens() == 4);
  const auto classes = prenorm::collate({{{1, 2}, {1}}, {{3}, {0}}}, /*per_sequence=*/true);
  CHECK(same(classes.targets, torch::tensor({1, 0})));
}

TEST_CASE("chance is the best constant answer") {
  CHECK(prenorm::chance({{{}, {1}}, {{}, {2}}, {{}, {2}}, {{}, {2, 2}}}) == 0.5);
}

TEST_CASE("a task that cannot be set is refused") {
  const auto error = [](const TaskOptions& options) { return error_of([&] { Task{options}; }); };
  CHECK(error({.symbols = 1}) == "the number of symbols is 1, fewer than 2");
  CHECK(error({.min_length = 0}) == "the shortest length is 0, less than 1");
  CHECK(error({.min_length = 5, .max_length = 4}) == "the longest length 4 is less than the shortest, 5");
  CHECK(error({.kind = TaskKind::majority, .min_length = 4, .max_length = 4}) ==
        "majority needs an odd length, and the only one is 4");
  CHECK(error({.symbols = 2, .min_length = 1, .max_length = 3}) ==
        "there are only 14 sequences of 2 symbols and lengths 1 to 3; keeping training and evaluation apart takes at "
        "least 80000: more symbols or longer sequences");
  CHECK(error({.symbols = 1000000, .min_length = 1, .max_length = 1000000}).empty());
}
