#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace prenorm {

/// For lookup by string_view without making a string.
struct StringHash : std::hash<std::string_view> {
  using is_transparent = void;
};

/// What the ids of a model's tokens and the numbers of its classes stand for: text to ids, answers to text. Saved as
/// JSON beside the model.
class Vocabulary {
 public:
  /// A text's tokens. `spaces`: what stands between runs of ASCII spaces, of which those at the ends do not count.
  /// `chars`: each Unicode code point, spaces too; a combining accent is a token of its own.
  enum class Split { spaces, chars };

  /// There is at least one token and one answer. They are not empty, UTF-8 and differ from each other; `unknown` is the
  /// id that stands for every token that is not there. Throws Error naming the one that is wrong.
  Vocabulary(std::vector<std::string> tokens, std::vector<std::string> answers, bool per_sequence,
             Split split = Split::spaces, std::optional<std::int64_t> unknown = std::nullopt);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t num_classes() const { return static_cast<std::int64_t>(answers_.size()); }

  /// By id, by class.
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::string>& answers() const { return answers_; }

  /// Whether there is one answer for the whole sequence, not one for each token.
  bool per_sequence() const { return per_sequence_; }
  Split split() const { return split_; }
  std::optional<std::int64_t> unknown() const { return unknown_; }

  /// The ids of a text's tokens; none for a text without tokens. Throws Error when the text is not UTF-8, or holds a
  /// token that is not there and nothing stands for those.
  std::vector<std::int64_t> ids(std::string_view text) const;

  /// The text of ids, of classes; as `split` says, with single spaces or nothing between them. Throws Error naming one
  /// that is out of range.
  std::string input_text(const std::vector<std::int64_t>& ids) const;
  std::string answer_text(const std::vector<std::int64_t>& classes) const;

  /// Whether a target, as it stands in a line, is these classes: as many answers, each the same. A target that is one
  /// label may have spaces at its ends. Throws Error as `answer_text` does, and when the target is not UTF-8.
  bool is_target(std::string_view target, const std::vector<std::int64_t>& classes) const;

  /// `{"version": 1, "split": "spaces"|"chars", "per": "token"|"sequence", "unknown": 0|null, "tokens": [...],
  /// "answers": [...]}`, one string a line, written atomically.
  void save(const std::filesystem::path& path) const;

  /// Throws Error naming the file when it is not what `save` writes.
  static Vocabulary load(const std::filesystem::path& path);

 private:
  std::vector<std::string> tokens_, answers_;
  bool per_sequence_;
  Split split_;
  std::optional<std::int64_t> unknown_;
  std::unordered_map<std::string, std::int64_t, StringHash, std::equal_to<>> id_of_;
};

/// The text without the spaces at its ends.
std::string_view trimmed(std::string_view text);

/// Cuts a text into tokens. Throws Error naming the byte when it is not UTF-8.
std::vector<std::string_view> split_text(std::string_view text, Vocabulary::Split split);

/// Where the first byte stands that begins no UTF-8 character, from 1; 0: nowhere. Surrogates, overlong forms and what
/// lies past U+10FFFF are no characters (Unicode 15, table 3-7); NUL and the other control characters are.
std::size_t first_not_utf8(std::string_view text);

}  // namespace prenorm
