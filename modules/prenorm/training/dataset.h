#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prenorm/training/vocabulary.h"

namespace prenorm {

/// Token ids in, answers out: one for each token, or one for the whole sequence.
struct Example {
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> target;
};

/// An answer that the training examples never have: always wrong, and no part of the loss.
constexpr std::int64_t kUnknownAnswer = -1;

/// Examples to train on, as one stream without end, and others to judge by. What stands at a place of the stream
/// depends on the seed and the place alone: who knows how far a run came can go on where it was.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual const Vocabulary& vocabulary() const = 0;

  /// The length of the longest sequence there is or can be, in tokens.
  virtual std::int64_t max_length() const = 0;

  /// The same of those to train on alone.
  virtual std::int64_t max_training_length() const { return max_length(); }

  /// Where the longest ones stand, for messages; empty where they stand nowhere.
  virtual std::string longest_examples() const { return {}; }

  /// After how many examples the stream begins anew, in another order; 0: it never does.
  virtual std::int64_t epoch_size() const = 0;

  /// The training examples `first` to `first + size - 1` of the stream of `seed`.
  virtual std::vector<Example> training_examples(std::uint64_t seed, std::int64_t first, std::int64_t size) const = 0;

  /// A hash of the examples: equal for equal ones, wherever they come from.
  virtual std::uint64_t fingerprint() const = 0;

  /// The same of the training examples alone, where they can be told from the others.
  virtual std::uint64_t training_fingerprint() const { return fingerprint(); }

  virtual std::int64_t evaluation_size() const = 0;

  /// Whether at least one evaluation example has an input that no training example has.
  virtual bool evaluates_unseen() const { return true; }

  /// The evaluation examples `first` to `first + size - 1`, the same in every run.
  virtual std::vector<Example> evaluation_examples(std::int64_t first, std::int64_t size) const = 0;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
};

}  // namespace prenorm
