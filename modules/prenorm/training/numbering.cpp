#include "prenorm/training/numbering.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "prenorm/error.h"

namespace prenorm {
namespace {

std::optional<std::int64_t> decimal_integer(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && read == end ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::int32_t> Numbering::number(std::string_view text) {
  const auto found = entries_.find(text);
  if (found == entries_.end()) return sorted_ ? ++missed_, std::nullopt : std::optional(add(text));
  ++found->second.count;
  return found->second.number;
}

std::int32_t Numbering::add(std::string_view text) {
  require(by_number_.size() < std::size_t{INT32_MAX}, "more than ", INT32_MAX, " different ", what_);
  const auto number = static_cast<std::int32_t>(by_number_.size());
  by_number_.push_back(&*entries_.emplace(text, Counted{number, 1}).first);
  return number;
}

std::vector<std::string> Numbering::strings() const {
  std::vector<std::string> strings;
  for (const auto* entry : by_number_) strings.push_back(entry->first);
  return strings;
}

void Numbering::sort_by_frequency(std::ptrdiff_t first, std::vector<std::int32_t>& numbers) {
  const auto before = [](const auto* a, const auto* b) { return a->second.count > b->second.count; };
  std::stable_sort(by_number_.begin() + first, by_number_.end(), before);
  renumber(numbers);
}

void Numbering::sort_by_value(std::vector<std::int32_t>& numbers) {
  const bool integers =
      std::ranges::all_of(by_number_, [](const auto* entry) { return decimal_integer(entry->first).has_value(); });
  const auto key = [integers](const auto* entry) {
    return std::pair<std::int64_t, std::string_view>(integers ? *decimal_integer(entry->first) : 0, entry->first);
  };
  std::ranges::sort(by_number_, {}, key);
  renumber(numbers);
}

void Numbering::renumber(std::vector<std::int32_t>& numbers) {
  std::vector<std::int32_t> new_number(by_number_.size());
  for (std::size_t i = 0; i < by_number_.size(); ++i) {
    auto& number = by_number_[i]->second.number;
    new_number[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(i);
    number = static_cast<std::int32_t>(i);
  }
  for (auto& number : numbers) number = new_number[static_cast<std::size_t>(number)];
  sorted_ = true;
}

}  // namespace prenorm
