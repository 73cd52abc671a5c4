#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prenorm/config.h"
#include "prenorm/training/dataset.h"

namespace prenorm {

/// Lines of a text: without the end (LF after any number of CR, which the last may lack) and, on the first, without a
/// UTF-8 byte-order mark. A line is there as soon as its end has come, so that people can type them.
class LineReader {
 public:
  explicit LineReader(std::istream& stream) : stream_(stream) {}

  /// Reads the next line; false at the end. Throws Error when reading fails, the line is longer than 16 MiB, which is
  /// no text, or has a CR in it; the caller knows the file's name and adds `number()`.
  bool next();

  /// Whether `next` has what it needs; where not, it would wait for whoever writes the stream.
  bool ready();

  const std::string& line() const { return line_; }
  std::int64_t number() const { return number_; }  ///< of the line, from 1

 private:
  bool find_end();
  bool read();

  std::istream& stream_;
  std::string buffer_;                    // what was read
  std::size_t begin_ = 0, searched_ = 0;  // in it: where the next line begins, and up to where no line ends
  std::string line_;
  std::int64_t number_ = 0;
};

/// Whether a sequence has an answer for each token or one for all. `automatic`: the first line whose input has more
/// than one token decides; for each token when the target has as many, otherwise one label; one label, too, when there
/// is no such line.
enum class Answers { automatic, token, sequence };

template <>
const std::vector<std::pair<std::string, Answers>>& enum_names();

/// A line's two sides; without a TAB there is no target.
struct TextLine {
  std::string_view input;
  std::optional<std::string_view> target;
};

/// Cuts a line at its TAB. Throws Error when it is not UTF-8 or has more than one.
TextLine cut_line(std::string_view line);

struct TextDatasetOptions {
  std::filesystem::path train;
  std::filesystem::path valid;
  Vocabulary::Split split = Vocabulary::Split::spaces;
  Answers answers = Answers::automatic;
  bool skip_header = false;  ///< passes over line 1 of both files
};

/// An input has at most so many tokens: attention takes the square of that in time.
constexpr std::int64_t kLongestInput = 16384;

/// Examples from two files of lines `input<TAB>target`, UTF-8, read once from begin to end, so that pipes will do. Empty
/// lines, or of spaces only, are passed over but counted.
///
/// The input's tokens are those of `split_text`. The target has as many tokens; or it is one label: a single token, with
/// `chars` the whole text but for the spaces at its ends. All lines of both files are of one kind.
///
/// The vocabulary is that of the training file. Tokens: "<unk>" for all others (id 0; the same string in a file is that
/// token), then by frequency, of equally frequent ones the earlier first. Answers ascend: as numbers when all are
/// decimal integers of 64 bits, otherwise by bytes. What only the validation file has becomes id 0 or kUnknownAnswer.
///
/// Holds four bytes a token (for a moment eight, while the arrays grow) and eight a line, and eight more for the order
/// of an epoch: each is the training file in a new order. The last one is kept, so const calls on one object must not
/// come from several threads at once.
class TextDataset : public Dataset {
 public:
  /// Throws Error naming the file and the number of the first line that is wrong, or the file when it cannot be read,
  /// has no examples, for training only one answer, or to judge by none that training has.
  explicit TextDataset(const TextDatasetOptions& options);

  const Vocabulary& vocabulary() const override { return *vocabulary_; }

  /// Of both files.
  std::int64_t max_length() const override { return std::max(train_.longest, valid_.longest); }
  std::int64_t max_training_length() const override { return train_.longest; }
  std::string longest_examples() const override { return longest_examples_; }

  /// Example n of the stream is number n % N of the order of epoch n / N, which depends on the seed and the epoch alone.
  std::int64_t epoch_size() const override { return train_.size(); }
  std::vector<Example> training_examples(std::uint64_t seed, std::int64_t first, std::int64_t size) const override;

  std::int64_t evaluation_size() const override { return valid_.size(); }
  std::vector<Example> evaluation_examples(std::int64_t first, std::int64_t size) const override;

  /// A hash of every example and the vocabulary: equal for equal examples in equal order, wherever the files are and
  /// however their lines end.
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::uint64_t training_fingerprint() const override { return training_fingerprint_; }

  bool evaluates_unseen() const override { return evaluates_unseen_; }

  /// How many tokens, and how many answers, of the validation file the training file never has; each occurrence counts.
  std::int64_t unknown_tokens() const { return unknown_tokens_; }
  std::int64_t unknown_answers() const { return unknown_answers_; }

  /// An answer of the training file's line 1 that no other line has: the line may be a header.
  const std::optional<std::string>& lone_answer() const { return lone_answer_; }

 private:
  class Reader;

  /// The examples of a file one after the other: nothing is allocated for a single one.
  struct Examples {
    std::vector<std::int32_t> inputs, targets;
    std::vector<std::uint64_t> begins{0};           // of each example in `inputs`, and the end of the last
    std::int64_t longest = 0, line_of_longest = 0;  // in tokens; the first such line
    std::int64_t size() const { return static_cast<std::int64_t>(begins.size()) - 1; }
    Example at(std::uint64_t index, bool per_sequence) const;
  };

  /// The order of the training examples in one epoch.
  struct Order {
    std::uint64_t seed = 0;
    std::int64_t epoch = -1;
    std::vector<std::uint64_t> indices;
  };
  const std::vector<std::uint64_t>& order(std::uint64_t seed, std::int64_t epoch) const;

  void hash();
  bool find_unseen() const;

  Examples train_, valid_;
  std::optional<Vocabulary> vocabulary_;  // set by the constructor, once the training file is read
  std::int64_t unknown_tokens_ = 0, unknown_answers_ = 0;
  std::optional<std::string> lone_answer_;
  std::string longest_examples_;
  std::uint64_t fingerprint_ = 0, training_fingerprint_ = 0;
  bool evaluates_unseen_ = true;
  mutable Order order_;
};

}  // namespace prenorm
