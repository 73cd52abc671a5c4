#include "prenorm/training/task.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace prenorm {

template <>
const std::vector<std::pair<std::string, TaskKind>>& enum_names() {
  static const std::vector<std::pair<std::string, TaskKind>> names{
      {"copy", TaskKind::copy},           {"reverse", TaskKind::reverse},   {"sort", TaskKind::sort},
      {"histogram", TaskKind::histogram}, {"majority", TaskKind::majority}, {"parity", TaskKind::parity}};
  return names;
}

namespace {

constexpr std::uint64_t kEvaluationShare = 4;  // one sequence in four

/// SplitMix64's finalizer (Steele et al. 2014) over the symbols: every bit of the result depends on each of them.
std::uint64_t hash(const std::vector<std::int64_t>& sequence) {
  std::uint64_t state = sequence.size();
  for (const auto symbol : sequence) {
    state += 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(symbol);
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return state;
}

/// How many sequences of these lengths there are, or `limit` when there are more.
std::int64_t sequence_count(const TaskOptions& options, std::int64_t first, std::int64_t stride, std::int64_t limit) {
  std::int64_t total = 0;
  for (auto length = first; length <= options.max_length && total < limit; length += stride) {
    std::int64_t of_length = 1;
    for (std::int64_t i = 0; i < length && of_length < limit; ++i) {
      of_length *= std::min(limit, options.symbols);
    }
    total += of_length;
  }
  return std::min(limit, total);
}

}  // namespace

std::int64_t Batch::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

Batch Batch::to(torch::Device device) const {
  return {ids.to(device), targets.to(device), lengths};
}

Batch collate(const std::vector<Example>& examples, bool per_sequence) {
  Batch batch;
  std::int64_t longest = 0;
  for (const auto& example : examples) {
    batch.lengths.push_back(static_cast<std::int64_t>(example.input.size()));
    longest = std::max(longest, batch.lengths.back());
  }
  const auto size = static_cast<std::int64_t>(examples.size());
  const std::int64_t answers = per_sequence ? 1 : longest;
  batch.ids = torch::zeros({size, longest}, torch::kLong);
  batch.targets = torch::full({size, answers}, kIgnored, torch::kLong);
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const auto& example : examples) {
    std::ranges::copy(example.input, ids);
    std::ranges::copy(example.target, targets);
    ids += longest;
    targets += answers;
  }
  if (per_sequence) batch.targets = batch.targets.squeeze(1);
  return batch;
}

Task::Task(const TaskOptions& options) : options_(options) {
  const auto& [kind, symbols, min_length, max_length] = options_;
  TORCH_CHECK(symbols >= 2, "the number of symbols is ", symbols, ", fewer than 2");
  TORCH_CHECK(min_length >= 1, "the shortest length is ", min_length, ", less than 1");
  TORCH_CHECK(max_length >= min_length, "the longest length ", max_length, " is less than the shortest, ", min_length);
  const bool odd_only = kind == TaskKind::majority;
  stride_ = odd_only ? 2 : 1;
  shortest_ = min_length + (odd_only && min_length % 2 == 0 ? 1 : 0);
  TORCH_CHECK(shortest_ <= max_length, "majority needs an odd length, and the only one is ", min_length);
  // Twice what evaluation takes of its share, so that drawing different ones ends soon.
  constexpr auto needed = static_cast<std::int64_t>(2 * kEvaluationShare) * kEvaluationSize;
  const auto available = sequence_count(options_, shortest_, stride_, needed);
  TORCH_CHECK(available >= needed, "there are only ", available, " sequences of ", symbols, " symbols and lengths ",
              min_length, " to ", max_length, "; keeping training and evaluation apart takes at least ", needed,
              ": more symbols or longer sequences");
}

bool Task::per_sequence() const {
  return options_.kind == TaskKind::majority || options_.kind == TaskKind::parity;
}

std::int64_t Task::num_classes() const {
  if (per_sequence()) return 2;
  return options_.kind == TaskKind::histogram ? options_.max_length + 1 : options_.symbols;
}

std::vector<std::int64_t> Task::answer(const std::vector<std::int64_t>& input) const {
  std::vector<std::int64_t> target = input;
  switch (options_.kind) {
    case TaskKind::copy:
      return target;
    case TaskKind::reverse:
      std::ranges::reverse(target);
      return target;
    case TaskKind::sort:
      std::ranges::sort(target);
      return target;
    case TaskKind::histogram:
      std::ranges::transform(input, target.begin(), [&](auto symbol) { return std::ranges::count(input, symbol); });
      return target;
    case TaskKind::majority: {
      const auto upper = std::ranges::count_if(input, [&](auto symbol) { return 2 * symbol >= options_.symbols; });
      return {2 * upper > static_cast<std::int64_t>(input.size()) ? 1 : 0};
    }
    case TaskKind::parity:
      return {std::accumulate(input.begin(), input.end(), std::int64_t{0}) % 2};
  }
  TORCH_CHECK(false, "the task has the unknown value ", static_cast<int>(options_.kind));
}

Example Task::draw(std::mt19937_64& random, bool evaluation) const {
  std::uniform_int_distribution<std::int64_t> strides(0, (options_.max_length - shortest_) / stride_);
  std::uniform_int_distribution<std::int64_t> symbol(0, options_.symbols - 1);
  Example example;
  do {
    example.input.resize(static_cast<size_t>(shortest_ + stride_ * strides(random)));
    std::ranges::generate(example.input, [&] { return symbol(random); });
  } while ((hash(example.input) % kEvaluationShare == 0) != evaluation);
  example.target = answer(example.input);
  return example;
}

std::vector<Example> Task::training_examples(std::int64_t size, std::mt19937_64& random) const {
  std::vector<Example> examples(static_cast<size_t>(size));
  std::ranges::generate(examples, [&] { return draw(random, /*evaluation=*/false); });
  return examples;
}

std::vector<Example> Task::evaluation_examples() const {
  std::mt19937_64 random;
  std::set<std::vector<std::int64_t>> seen;
  std::vector<Example> examples;
  while (static_cast<std::int64_t>(examples.size()) < kEvaluationSize) {
    Example example = draw(random, /*evaluation=*/true);
    if (seen.insert(example.input).second) examples.push_back(std::move(example));
  }
  return examples;
}

double chance(const std::vector<Example>& examples) {
  std::map<std::vector<std::int64_t>, std::int64_t> frequency;
  std::int64_t most = 0;
  for (const auto& example : examples) most = std::max(most, ++frequency[example.target]);
  return static_cast<double>(most) / static_cast<double>(examples.size());
}

}  // namespace prenorm
