#include "prenorm/tensor_file/text.h"

#include <nlohmann/json.hpp>

namespace prenorm {

InQuotes::operator std::string() const {
  constexpr std::size_t kLongest = 200;
  const std::string shown = std::string(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
  return nlohmann::json(shown).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::ostream& operator<<(std::ostream& stream, const InQuotes& quoted) {
  return stream << std::string(quoted);
}

std::ostream& operator<<(std::ostream& stream, const ShapeText& text) {
  constexpr std::size_t kMost = 20;
  stream << "[";
  for (std::size_t i = 0; i < text.shape.size() && i < kMost; ++i) stream << (i ? ", " : "") << text.shape[i];
  return stream << (text.shape.size() > kMost ? ", ...]" : "]");
}

bool is_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace prenorm
