#include "prenorm/training/task.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "prenorm/error.h"
#include "support.h"

namespace task_test {

using prenorm::Example;
using prenorm::Task;
using prenorm::TaskKind;
using prenorm::TaskOptions;

namespace {

using Symbols = std::vector<int64_t>;

Symbols answer(TaskKind kind, const Symbols& input) {
  return Task({.kind = kind}).answer(input);
}

std::vector<Symbols> inputs(const std::vector<Example>& examples) {
  std::vector<Symbols> inputs;
  for (const auto& example : examples) inputs.push_back(example.input);
  return inputs;
}

int64_t ones(const std::vector<Example>& examples) {
  return std::ranges::count_if(examples, [](const Example& example) { return example.target == Symbols{1}; });
}

int64_t max_depth(const Symbols& brackets) {
  int64_t depth = 0, deepest = 0;
  for (const auto symbol : brackets) deepest = std::max(deepest, depth += symbol % 2 == 0 ? 1 : -1);
  return deepest;
}

/// Whether as many brackets open as close among those of each key (of a symbol and its place); with `in_order`, at no
/// place more have been closed than opened.
bool even(const Symbols& word, const std::function<int64_t(int64_t, int64_t)>& key, bool in_order) {
  std::map<int64_t, int64_t> open;
  for (int64_t place = 0; place < std::ssize(word); ++place) {
    const auto symbol = word[static_cast<size_t>(place)];
    auto& count = open[key(symbol, place)];
    count += symbol % 2 == 0 ? 1 : -1;
    if (in_order && count < 0) return false;
  }
  return std::ranges::all_of(open, [](const auto& entry) { return entry.second == 0; });
}

/// Whether no opening bracket has the closing one of another kind right after it.
bool neighbours_match(const Symbols& word) {
  return std::ranges::adjacent_find(word, [](int64_t one, int64_t next) {
           return one % 2 == 0 && next % 2 == 1 && next != one + 1;
         }) == word.end();
}

/// The share of the examples that have the answer that a clue gives.
double right(const std::vector<Example>& examples, const std::function<bool(const Symbols&)>& clue) {
  const auto count = std::ranges::count_if(
      examples, [&](const Example& example) { return example.target == Symbols{clue(example.input) ? 1 : 0}; });
  return static_cast<double>(count) / static_cast<double>(examples.size());
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

TEST_CASE("brackets are balanced when each closes the last open one of its kind") {
  const Task task({.kind = TaskKind::brackets});
  CHECK(task.vocabulary().input_text({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) == "( ) [ ] { } < > (4 )4");
  CHECK(task.vocabulary().num_classes() == 2);
  for (const Symbols& input : std::vector<Symbols>{
           {0, 1},                                // ()
           {2, 0, 1, 3, 8, 9},                    // [()](4)4
           {0, 2, 4, 6, 8, 8, 9, 9, 7, 5, 3, 1},  // deeper than any that is drawn
       }) {
    CHECK(task.answer(input) == Symbols{1});
  }
  for (const Symbols& input : std::vector<Symbols>{
           {1, 0},              // )(
           {0, 3},              // (]
           {0, 2, 1, 3},        // ([)]
           {0, 0, 1},           // (()
           {0, 1, 1},           // ())
           {0, 1, 1, 0, 0, 1},  // ())(()
           {8, 9, 0, 9},        // (4)4()4
       }) {
    CHECK(task.answer(input) == Symbols{0});
  }
}

TEST_CASE("sequences keep to their symbols and lengths, and answers to their classes") {
  for (const auto& [name, kind] : prenorm::enum_names<TaskKind>()) {
    INFO(name);
    const Task task({.kind = kind, .symbols = 10, .min_length = 3, .max_length = 10});
    const auto& vocabulary = task.vocabulary();
    CHECK(vocabulary.size() == 10);
    std::set<size_t> lengths;
    for (const auto& [input, target] : task.training_examples(/*seed=*/1, 0, 2000)) {
      lengths.insert(input.size());
      const auto within = [](const Symbols& values, int64_t limit) {
        return std::ranges::all_of(values, [=](int64_t value) { return value >= 0 && value < limit; });
      };
      REQUIRE(within(input, 10));
      REQUIRE(within(target, vocabulary.num_classes()));
      REQUIRE(target.size() == (vocabulary.per_sequence() ? 1 : input.size()));
      REQUIRE(target == task.answer(input));
    }
    const std::set<size_t> odd{3, 5, 7, 9}, even{4, 6, 8, 10}, all{3, 4, 5, 6, 7, 8, 9, 10};
    CHECK(lengths == (kind == TaskKind::majority ? odd : kind == TaskKind::brackets ? even : all));
  }
}

TEST_CASE("no evaluation sequence is ever trained on, and all of them differ") {
  for (const Task& task : {Task({.symbols = 3, .min_length = 2, .max_length = 10}),
                           Task({.kind = TaskKind::brackets, .symbols = 4, .min_length = 2})}) {
    const auto evaluation = inputs(task.evaluation_examples(0, task.evaluation_size()));
    CHECK(evaluation.size() == Task::kEvaluationSize);
    const std::set<Symbols> seen(evaluation.begin(), evaluation.end());
    CHECK(seen.size() == evaluation.size());
    for (const auto& input : inputs(task.training_examples(/*seed=*/3, 0, 50000))) REQUIRE_FALSE(seen.contains(input));
    CHECK(inputs(Task(task.options()).evaluation_examples(7000, 2)) == std::vector{evaluation[7000], evaluation[7001]});
  }
}

TEST_CASE("what stands at a place of the stream depends on the seed and the place alone") {
  for (const auto kind : {TaskKind::sort, TaskKind::brackets}) {
    const Task task({.kind = kind});
    CHECK(task.epoch_size() == 0);
    const auto whole = inputs(task.training_examples(/*seed=*/5, 0, 100));
    std::vector<Symbols> pieces;
    for (const auto& [first, size] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 63}, {64, 0}, {64, 36}}) {
      for (auto& input : inputs(Task(task.options()).training_examples(5, first, size))) pieces.push_back(input);
    }
    CHECK(pieces == whole);
    const std::set<Symbols> seen(whole.begin(), whole.end());
    const auto others = inputs(task.training_examples(/*seed=*/6, 0, 100));
    CHECK(std::ranges::count_if(others, [&](const Symbols& input) { return seen.contains(input); }) < 10);
    CHECK(inputs(task.training_examples(5, int64_t{1} << 40, 1)).front() != whole.front());
  }
}

TEST_CASE("half of the brackets are balanced, and those are as deep as they may be") {
  for (const int64_t symbols : {2, 10}) {
    for (const int64_t deepest : {2, 3, 7}) {
      const Task task({.kind = TaskKind::brackets, .symbols = symbols, .max_length = 40, .max_depth = deepest});
      CHECK(ones(task.evaluation_examples(0, task.evaluation_size())) == task.evaluation_size() / 2);
      const auto examples = task.training_examples(/*seed=*/1, 0, 20000);
      CHECK(ones(examples) == Approx(10000).margin(400));
      int64_t depth = 0;
      for (const auto& [input, target] : examples) depth = std::max(depth, target == Symbols{1} ? max_depth(input) : 0);
      CHECK(depth == deepest);
    }
  }
}

TEST_CASE("no simple clue tells whether brackets are balanced") {
  const auto all = [](int64_t, int64_t) { return int64_t{0}; };
  const auto kind = [](int64_t symbol, int64_t) { return symbol / 2; };
  // Partners have an even number of symbols between them.
  const auto kind_and_side = [](int64_t symbol, int64_t place) { return symbol / 2 * 2 + (symbol + place) % 2; };
  const auto examples = Task({.kind = TaskKind::brackets}).training_examples(/*seed=*/1, 0, 20000);
  // Measured: 0.526, 0.554, 0.654, 0.784, 0.779, 0.687, 0.602.
  CHECK(right(examples, [&](const Symbols& word) { return even(word, all, false); }) < 0.55);
  CHECK(right(examples, [&](const Symbols& word) { return even(word, kind, false); }) < 0.58);
  CHECK(right(examples, [&](const Symbols& word) { return even(word, all, true); }) < 0.68);
  CHECK(right(examples, [&](const Symbols& word) { return even(word, kind, true); }) < 0.8);
  CHECK(right(examples, [&](const Symbols& word) { return even(word, kind_and_side, false); }) < 0.8);
  CHECK(right(examples, neighbours_match) < 0.71);
  CHECK(right(examples, [](const Symbols& word) { return word.front() % 2 == 0 && word.back() % 2 == 1; }) < 0.63);
  // Of one kind, the depth is all there is to know, but counting is not.
  const auto single = Task({.kind = TaskKind::brackets, .symbols = 2, .max_length = 40}).training_examples(1, 0, 20000);
  CHECK(right(single, [&](const Symbols& word) { return even(word, all, true); }) == 1);
  CHECK(right(single, [&](const Symbols& word) { return even(word, all, false); }) < 0.6);
}

TEST_CASE("a task that cannot be set is refused") {
  const auto error = [](const TaskOptions& options) { return message_of<prenorm::Error>([&] { Task{options}; }); };
  CHECK(error({.symbols = 1}) == "the number of symbols is 1, fewer than 2");
  CHECK(error({.symbols = 1000001}) == "the number of symbols is 1000001, more than 1000000");
  CHECK(error({.symbols = 1000000, .min_length = 1, .max_length = 1}).empty());
  CHECK(error({.min_length = 0}) == "the shortest length is 0, less than 1");
  CHECK(error({.min_length = 5, .max_length = 4}) == "the longest length 4 is less than the shortest, 5");
  CHECK(error({.max_length = 10001}) == "the longest length is 10001, more than 10000");
  CHECK(error({.kind = TaskKind::majority, .min_length = 4, .max_length = 4}) ==
        "majority needs an odd length, and the only one is 4");
  CHECK(error({.symbols = 2, .min_length = 1, .max_length = 3}) ==
        "there are only 14 sequences of 2 symbols and lengths 1 to 3; keeping training and evaluation apart takes at "
        "least 80000: more symbols or longer sequences");
}

TEST_CASE("brackets that cannot be set are refused") {
  const auto error = [](TaskOptions options) {
    options.kind = TaskKind::brackets;
    return message_of<prenorm::Error>([&] { Task{options}; });
  };
  CHECK(error({.symbols = 5}) == "the number of symbols is 5; brackets needs an even one, two for each kind");
  CHECK(error({.max_depth = 0}) == "the largest depth is 0, less than 1");
  CHECK(error({.min_length = 5, .max_length = 5}) == "brackets needs an even length, and the only one is 5");
  const auto few = [](const std::string& what) {
    return "there are only " + what +
           " deep; keeping training and evaluation apart takes at least 40000: more symbols "
           "or longer sequences";
  };
  // Of 2n brackets of one kind there are 1, 2, 5, 14 words (Catalan's numbers), 2^(n-1) of them at most 2 deep.
  CHECK(error({.symbols = 2, .min_length = 1, .max_length = 8}) ==
        few("22 balanced sequences of 2 symbols and lengths 1 to 8, at most 4"));
  CHECK(
      error({.symbols = 6, .min_length = 7, .max_length = 8, .max_depth = 3}) ==
      few("1053 balanced sequences of 6 symbols and lengths 7 to 8, at most 3"));  // 13 of the 14, 3^4 choices of kinds
  CHECK(error({.symbols = 2, .min_length = 32, .max_length = 32, .max_depth = 2}) ==
        few("32768 balanced sequences of 2 symbols and lengths 32 to 32, at most 2"));
  CHECK(error({.symbols = 2, .min_length = 9000, .max_length = 10000, .max_depth = 1}) ==
        few("501 balanced sequences of 2 symbols and lengths 9000 to 10000, at most 1"));
  CHECK(error({.symbols = 2, .min_length = 34, .max_length = 34, .max_depth = 2}).empty());
  CHECK(error({.symbols = 1000000, .min_length = 2, .max_length = 2}).empty());
}

}  // namespace task_test
