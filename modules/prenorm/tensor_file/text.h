#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prenorm {

/// Text out of a file as it may stand in a message of one line: in double quotes, control characters and bytes that are
/// not UTF-8 escaped, cut after 200 bytes. (`quoted` would lose to std::quoted.)
std::string in_quotes(std::string_view text);

bool is_utf8(const std::string& text);

/// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace prenorm
