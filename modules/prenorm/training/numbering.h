#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "prenorm/training/vocabulary.h"

namespace prenorm {

/// Numbers the different strings of a file in the order in which they appear, and counts how often each does.
class Numbering {
 public:
  /// `what`: the strings' plural in error messages, which lives as long.
  explicit Numbering(const char* what) : what_(what) {}

  /// The number of `text`, a new one if need be; once sorted, nothing for a new one, and that is counted.
  std::optional<std::int32_t> number(std::string_view text);

  /// The number of a text that has none yet. Throws Error when there are more than 32 bits can number.
  std::int32_t add(std::string_view text);

  /// How often that string appeared.
  std::int64_t count(std::int32_t number) const { return by_number_[static_cast<std::size_t>(number)]->second.count; }

  std::int64_t missed() const { return missed_; }
  std::vector<std::string> strings() const;

  /// Numbers all strings from number `first` on anew, in descending order of frequency, then of appearance.
  void sort_by_frequency(std::ptrdiff_t first, std::vector<std::int32_t>& numbers);

  /// Numbers all strings anew in ascending order, of numbers when all are decimal integers, otherwise of bytes.
  void sort_by_value(std::vector<std::int32_t>& numbers);

 private:
  struct Counted {
    std::int32_t number;
    std::int64_t count;
  };
  using Entries = std::unordered_map<std::string, Counted, StringHash, std::equal_to<>>;

  /// Makes places in `by_number_` the numbers of the strings, and replaces the old ones in `numbers`.
  void renumber(std::vector<std::int32_t>& numbers);

  const char* what_;
  Entries entries_;
  std::vector<Entries::value_type*> by_number_;
  bool sorted_ = false;
  std::int64_t missed_ = 0;
};

}  // namespace prenorm
