#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/config.h"
#include "prenorm/module.h"

namespace prenorm {

/// What the model has to learn of a sequence of symbols:
///
///   copy, reverse, sort   another order of the symbols                               T answers
///   histogram             how often each position's symbol occurs in the sequence    T answers
///   majority              1 when symbols of the upper half of the alphabet prevail   1 answer, odd lengths only
///   parity                1 when the sum of the symbols is odd                       1 answer
enum class TaskKind { copy, reverse, sort, histogram, majority, parity };

template <>
const std::vector<std::pair<std::string, TaskKind>>& enum_names();

/// Symbols in, answers out: as many as symbols, or one for the whole sequence.
struct Example {
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> target;
};

/// Examples padded to the longest of them.
struct Batch {
  Tensor ids;                         ///< [B,T] int64, 0 past each length
  Tensor targets;                     ///< [B,T], kIgnored past each length, or [B]
  std::vector<std::int64_t> lengths;  ///< B

  std::int64_t tokens() const;
  Batch to(torch::Device device) const;
};

/// The target of a position that is padding.
constexpr std::int64_t kIgnored = -100;

/// One batch of `examples`; all of them have one answer (`per_sequence`) or all as many as symbols.
Batch collate(const std::vector<Example>& examples, bool per_sequence);

struct TaskOptions {
  TaskKind kind = TaskKind::sort;
  std::int64_t symbols = 10;
  std::int64_t min_length = 4;  ///< lengths are uniform in [min_length, max_length]
  std::int64_t max_length = 16;
};

/// Random sequences with their answers. A hash of the sequence assigns a quarter of all sequences to evaluation, so
/// that none is ever trained on.
class Task {
 public:
  /// Throws c10::Error naming the value when the options make no task or their sequences are too few to hold
  /// `kEvaluationSize` for evaluation.
  explicit Task(const TaskOptions& options);

  /// The number of different sequences that are evaluated.
  static constexpr std::int64_t kEvaluationSize = 10000;

  const TaskOptions& options() const { return options_; }
  bool per_sequence() const;
  std::int64_t num_classes() const;
  std::vector<std::int64_t> answer(const std::vector<std::int64_t>& input) const;

  /// Draws `size` examples for training.
  std::vector<Example> training_examples(std::int64_t size, std::mt19937_64& random) const;

  /// The evaluation examples, all different and the same in every run.
  std::vector<Example> evaluation_examples() const;

 private:
  Example draw(std::mt19937_64& random, bool evaluation) const;

  TaskOptions options_;
  std::int64_t shortest_ = 0;  // the lengths are this one and every stride_-th up to max_length
  std::int64_t stride_ = 1;
};

/// The share of examples that the best constant answer gets right.
double chance(const std::vector<Example>& examples);

}  // namespace prenorm
