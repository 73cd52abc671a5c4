#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "prenorm/error.h"
#include "prenorm/file.h"

namespace prenorm {

/// For `Json::parse`: refuses what is nested more deeply than a recursion over it, such as writing it out, bears.
template <typename Json>
bool refuse_deep(int depth, typename Json::parse_event_t, Json&) {
  require(depth <= 100, "JSON nested more than 100 deep");
  return true;
}

/// A text as JSON. Throws Error when it is none.
template <typename Json>
Json parse_json(std::string_view text) {
  try {
    return Json::parse(text, refuse_deep<Json>);
  } catch (const typename Json::parse_error& error) {
    fail("not valid JSON at byte ", error.byte);
  } catch (const typename Json::exception&) {
    fail("not valid JSON: a number is out of range");
  }
}

/// What `parse` makes of a file's text; its errors then name the file.
template <typename Parse>
auto parse_file(const std::filesystem::path& path, const Parse& parse) {
  const std::string text = read_file(path);
  try {
    return parse(text);
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what());
  }
}

}  // namespace prenorm
