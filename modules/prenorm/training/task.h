#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/config.h"
#include "prenorm/training/dataset.h"
#include "prenorm/training/random.h"

namespace prenorm {

/// What the model has to learn of a sequence of symbols:
///
///   copy, reverse, sort   another order of the symbols                               T answers
///   histogram             how often each position's symbol occurs in the sequence    T answers
///   majority              1 when symbols of the upper half of the alphabet prevail   1 answer, odd lengths only
///   parity                1 when the sum of the symbols is odd                       1 answer
///   brackets              1 when every closing bracket is of the kind that was       1 answer, even lengths only
///                         opened last, and none is left open
///
/// Of brackets, symbol 2k opens and 2k + 1 closes kind k. Half of the sequences are balanced; the others are near
/// misses, balanced ones in which two symbols are exchanged or, seldom, one is replaced. Nine in ten of those open
/// every kind as often as they close it; where the closing brackets of two nested pairs are exchanged, no kind is
/// closed before it is opened either. A model has to find each bracket's partner, as with a stack: with the
/// defaults, no count and no look at neighbours is right about more than 80 % (tests/task.cpp). Of a single kind,
/// the depth at each symbol tells all.
enum class TaskKind { copy, reverse, sort, histogram, majority, parity, brackets };

template <>
const std::vector<std::pair<std::string, TaskKind>>& enum_names();

struct TaskOptions {
  TaskKind kind = TaskKind::sort;
  std::int64_t symbols = 10;
  std::int64_t min_length = 4;  ///< lengths are uniform in [min_length, max_length]
  std::int64_t max_length = 16;
  std::int64_t max_depth = 4;  ///< brackets only: how deep they nest at most
};

/// Random sequences with their answers, made as they are needed. A hash of the sequence assigns a quarter of all
/// sequences to evaluation, so that none is ever trained on. Half of the brackets that are evaluated are balanced.
class Task : public Dataset {
 public:
  /// Throws Error naming the value when the options make no task or their sequences are too few to hold
  /// `kEvaluationSize` for evaluation.
  explicit Task(const TaskOptions& options);

  /// The number of different sequences that are evaluated.
  static constexpr std::int64_t kEvaluationSize = 10000;

  const TaskOptions& options() const { return options_; }
  std::vector<std::int64_t> answer(const std::vector<std::int64_t>& input) const;

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::int64_t max_length() const override { return options_.max_length; }
  std::int64_t epoch_size() const override { return 0; }
  std::vector<Example> training_examples(std::uint64_t seed, std::int64_t first, std::int64_t size) const override;
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::int64_t evaluation_size() const override { return kEvaluationSize; }
  std::vector<Example> evaluation_examples(std::int64_t first, std::int64_t size) const override;

 private:
  Example draw(SplitMix64& random, bool evaluation) const;

  TaskOptions options_;
  std::int64_t shortest_ = 0;  // the lengths are this one and every stride_-th up to max_length
  std::int64_t stride_ = 1;
  Vocabulary vocabulary_;
  std::vector<Example> evaluation_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace prenorm
