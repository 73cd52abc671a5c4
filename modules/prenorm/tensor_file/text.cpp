#include "prenorm/tensor_file/text.h"

#include <nlohmann/json.hpp>

namespace prenorm {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  const std::string shown(text.size() > kLongest ? std::string(text.substr(0, kLongest)) + "..." : std::string(text));
  return nlohmann::json(shown).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

bool is_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size() && i < 20; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() > 20 ? ", ...]" : "]");
}

}  // namespace prenorm
