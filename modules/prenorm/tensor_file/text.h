#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace prenorm {

/// Text out of a file as it may stand in a message of one line: in double quotes, control characters and bytes that are
/// not UTF-8 escaped, cut after 200 bytes. It is made when it is printed, for `require` in long loops.
struct InQuotes {
  explicit InQuotes(std::string_view quoted) : text(quoted) {}
  operator std::string() const;
  std::string_view text;
};
std::ostream& operator<<(std::ostream& stream, const InQuotes& quoted);

/// "[2, 3]", made when it is printed.
struct ShapeText {
  explicit ShapeText(const std::vector<std::int64_t>& sizes) : shape(sizes) {}
  const std::vector<std::int64_t>& shape;
};
std::ostream& operator<<(std::ostream& stream, const ShapeText& text);

bool is_utf8(const std::string& text);

}  // namespace prenorm
