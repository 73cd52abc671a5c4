#include "prenorm/training/task.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>

#include "prenorm/error.h"
#include "prenorm/training/random.h"

namespace prenorm {

template <>
const std::vector<std::pair<std::string, TaskKind>>& enum_names() {
  static const std::vector<std::pair<std::string, TaskKind>> names{
      {"copy", TaskKind::copy},           {"reverse", TaskKind::reverse},   {"sort", TaskKind::sort},
      {"histogram", TaskKind::histogram}, {"majority", TaskKind::majority}, {"parity", TaskKind::parity},
      {"brackets", TaskKind::brackets}};
  return names;
}

namespace {

using Symbols = std::vector<std::int64_t>;

constexpr std::uint64_t kEvaluationShare = 4;  // one sequence in four
constexpr std::int64_t kMaxSymbols = 1'000'000, kMaxLength = 10'000;

std::uint64_t hash(const std::vector<std::int64_t>& sequence) {
  std::uint64_t state = sequence.size();
  for (const auto symbol : sequence) {
    state = hash_with(state, static_cast<std::uint64_t>(symbol));
  }
  return state;
}

bool closes(std::int64_t symbol) {
  return symbol % 2 == 1;
}

/// The opening brackets before `end` that are not closed before it, as places; nullopt where one is closed by another
/// kind or a closing bracket has none to close.
std::optional<std::vector<size_t>> open_brackets(const Symbols& word, size_t end) {
  std::vector<size_t> open;
  for (size_t i = 0; i < end; ++i) {
    if (!closes(word[i])) {
      open.push_back(i);
    } else if (!open.empty() && word[open.back()] + 1 == word[i]) {
      open.pop_back();
    } else {
      return std::nullopt;
    }
  }
  return open;
}

bool balanced(const Symbols& word) {
  const auto open = open_brackets(word, word.size());
  return open && open->empty();
}

/// A balanced word, built from left to right by a fair coin where both an opening and a closing bracket may follow.
Symbols balanced_word(const TaskOptions& options, std::int64_t length, SplitMix64& random) {
  Symbols word, open;
  for (auto left = length; left > 0; --left) {
    const auto depth = std::ssize(open);
    if (depth == 0 || (depth < std::min(left, options.max_depth) && below(random, 2) == 0)) {
      open.push_back(2 * below(random, options.symbols / 2));
      word.push_back(open.back());
    } else {
      word.push_back(open.back() + 1);
      open.pop_back();
    }
  }
  return word;
}

/// The closing bracket of a pair around the one that `inner` closes, drawn at random; `inner` itself if there is none.
size_t closing_around(const Symbols& word, size_t inner, SplitMix64& random) {
  const auto around = std::ssize(*open_brackets(word, inner)) - 1;
  if (around == 0) return inner;
  // Every other one more often: it closes at a place as even or odd as the inner one, which leaves one clue fewer.
  const auto outer_depth = around >= 2 && below(random, 2) == 0 ? around - 2 : below(random, around);
  auto outer = inner;
  for (auto depth = around; depth > outer_depth; depth += closes(word[outer]) ? -1 : 1) ++outer;
  return outer;
}

/// Makes a near miss of a balanced word, in one of four ways: exchanges the closing brackets of two nested pairs, those
/// of any two pairs, or any two symbols, or replaces one symbol. Not every exchange is possible or unbalances the word:
/// it is tried a few times, then any two symbols are. Replacing one always unbalances it.
void unbalance(Symbols& word, std::int64_t symbols, SplitMix64& random) {
  enum { replace, any_two, two_closings, nested };
  const auto place = [&] { return static_cast<size_t>(below(random, std::ssize(word))); };
  // Not the closing bracket of an empty pair: one of another kind right after the opening one is seen at a glance.
  const auto closes_some = [&](size_t i) { return closes(word[i]) && closes(word[i - 1]); };
  const std::array ways{replace, any_two, two_closings, two_closings, nested, nested, nested, nested};
  auto way = ways[static_cast<size_t>(below(random, std::ssize(ways)))];
  for (int tries = 0; way != replace && tries < 48; ++tries) {
    if (symbols == 2 || tries == 32) way = any_two;
    const auto one = place();
    if (way != any_two && !closes_some(one)) continue;
    const auto other = way == nested ? closing_around(word, one, random) : place();
    if (way == two_closings && !closes_some(other)) continue;
    std::swap(word[one], word[other]);
    if (!balanced(word)) return;
    std::swap(word[one], word[other]);
  }
  auto& symbol = word[place()];
  symbol = (symbol + 1 + below(random, symbols - 1)) % symbols;
}

/// How many balanced words of these lengths, kinds and depths there are, or `limit` when there are more.
std::int64_t balanced_count(const TaskOptions& options, std::int64_t first, std::int64_t limit) {
  const auto kinds = std::min(limit, options.symbols / 2);
  const auto deepest = static_cast<size_t>(std::min(options.max_depth, options.max_length / 2));
  std::vector<std::int64_t> ways(deepest + 2), next(deepest + 2);  // of being at each depth; one more stays 0
  ways[0] = 1;
  std::int64_t total = 0;
  for (std::int64_t length = 1; length <= options.max_length && total < limit; ++length) {
    for (size_t depth = 0; depth <= deepest; ++depth) {
      next[depth] = std::min(limit, (depth > 0 ? kinds * ways[depth - 1] : 0) + ways[depth + 1]);
    }
    std::swap(ways, next);
    if (length >= first) total += ways[0];
  }
  return std::min(limit, total);
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

bool per_sequence(TaskKind kind) {
  return kind == TaskKind::majority || kind == TaskKind::parity || kind == TaskKind::brackets;
}

std::vector<std::string> numbers(std::int64_t count) {
  std::vector<std::string> names(static_cast<size_t>(count));
  for (size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
  return names;
}

/// ( ) [ ] { } < > (4 )4 (5 )5 ...
std::vector<std::string> brackets(std::int64_t count) {
  std::vector<std::string> names{"(", ")", "[", "]", "{", "}", "<", ">"};
  names.resize(static_cast<size_t>(count));
  for (size_t i = 8; i < names.size(); ++i) names[i].append(1, i % 2 == 0 ? '(' : ')').append(std::to_string(i / 2));
  return names;
}

Vocabulary vocabulary_of(const TaskOptions& options) {
  const auto& [kind, symbols, min_length, max_length, max_depth] = options;
  require(symbols >= 2, "the number of symbols is ", symbols, ", fewer than 2");
  require(symbols <= kMaxSymbols, "the number of symbols is ", symbols, ", more than ", kMaxSymbols);
  require(min_length >= 1, "the shortest length is ", min_length, ", less than 1");
  require(max_length >= min_length, "the longest length ", max_length, " is less than the shortest, ", min_length);
  require(max_length <= kMaxLength, "the longest length is ", max_length, ", more than ", kMaxLength);
  const bool of_brackets = kind == TaskKind::brackets;
  require(!of_brackets || symbols % 2 == 0, "the number of symbols is ", symbols,
          "; brackets needs an even one, two for each kind");
  require(!of_brackets || max_depth >= 1, "the largest depth is ", max_depth, ", less than 1");
  std::int64_t classes = kind == TaskKind::histogram ? max_length + 1 : symbols;
  if (per_sequence(kind)) classes = 2;
  return {of_brackets ? brackets(symbols) : numbers(symbols), numbers(classes), per_sequence(kind)};
}

}  // namespace

Task::Task(const TaskOptions& options) : options_(options), vocabulary_(vocabulary_of(options)) {
  const auto& [kind, symbols, min_length, max_length, max_depth] = options_;
  const bool odd_only = kind == TaskKind::majority, even_only = kind == TaskKind::brackets;
  stride_ = odd_only || even_only ? 2 : 1;
  shortest_ = min_length + ((odd_only && min_length % 2 == 0) || (even_only && min_length % 2 == 1) ? 1 : 0);
  require(shortest_ <= max_length, enum_name(kind), " needs an ", odd_only ? "odd" : "even",
          " length, and the only one is ", min_length);
  // Twice what evaluation takes of its share, so that drawing different ones ends soon. Half of the brackets have to be
  // balanced; there are as many near misses at least, since replacing a symbol leads from any sequence to equally many.
  constexpr auto twice = static_cast<std::int64_t>(2 * kEvaluationShare) * kEvaluationSize;
  const auto needed = even_only ? twice / 2 : twice;
  const auto available =
      even_only ? balanced_count(options_, shortest_, needed) : sequence_count(options_, shortest_, stride_, needed);
  require(available >= needed, "there are only ", available, even_only ? " balanced" : "", " sequences of ", symbols,
          " symbols and lengths ", min_length, " to ", max_length,
          even_only ? std::string(", at most ").append(std::to_string(max_depth)).append(" deep") : "",
          "; keeping training and evaluation apart takes at least ", needed, ": more symbols or longer sequences");
  SplitMix64 random(0);
  std::set<std::uint64_t> seen;  // hashes: two sequences of one hash only cost a draw
  std::array<std::int64_t, 2> left{kEvaluationSize / 2, kEvaluationSize / 2};
  while (std::ssize(evaluation_) < kEvaluationSize) {
    Example example = draw(random, /*evaluation=*/true);
    if (!seen.insert(hash(example.input)).second) continue;
    if (even_only && left[static_cast<size_t>(example.target[0])]-- <= 0) continue;
    fingerprint_ = hash_with(fingerprint_, hash(example.input));
    evaluation_.push_back(std::move(example));
  }
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
    case TaskKind::brackets:
      return {balanced(input) ? 1 : 0};
  }
  fail("the task has the unknown value ", static_cast<int>(options_.kind));
}

Example Task::draw(SplitMix64& random, bool evaluation) const {
  Example example;
  do {
    const auto length = shortest_ + stride_ * below(random, (options_.max_length - shortest_) / stride_ + 1);
    if (options_.kind == TaskKind::brackets) {
      example.input = balanced_word(options_, length, random);
      if (below(random, 2) == 0) unbalance(example.input, options_.symbols, random);
    } else {
      example.input.resize(static_cast<size_t>(length));
      std::ranges::generate(example.input, [&] { return below(random, options_.symbols); });
    }
  } while ((hash(example.input) % kEvaluationShare == 0) != evaluation);
  example.target = answer(example.input);
  return example;
}

std::vector<Example> Task::training_examples(std::uint64_t seed, std::int64_t first, std::int64_t size) const {
  std::vector<Example> examples;
  for (std::int64_t place = first; place < first + size; ++place) {
    SplitMix64 random = generator_at(seed, place);
    examples.push_back(draw(random, /*evaluation=*/false));
  }
  return examples;
}

std::vector<Example> Task::evaluation_examples(std::int64_t first, std::int64_t size) const {
  const auto begin = evaluation_.begin() + first;
  return {begin, begin + size};
}

}  // namespace prenorm
