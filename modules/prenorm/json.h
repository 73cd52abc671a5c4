#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "prenorm/error.h"
#include "prenorm/file.h"

namespace prenorm {

/// Documents of ours: members stand in the order in which they were written.
using Json = nlohmann::ordered_json;
/// Documents of others, of any size: members are found by name without walking over all of them.
using SortedJson = nlohmann::json;

/// For `parse`: refuses what is nested more deeply than a recursion over it, such as writing it out, bears.
template <typename Document>
bool refuse_deep(int depth, typename Document::parse_event_t, Document&) {
  require(depth <= 100, "JSON nested more than 100 deep");
  return true;
}

/// A text as JSON. Throws Error when it is none.
template <typename Document = Json>
Document parse_json(std::string_view text) {
  try {
    return Document::parse(text, refuse_deep<Document>);
  } catch (const typename Document::parse_error& error) {
    fail("not valid JSON at byte ", error.byte);
  } catch (const typename Document::exception&) {
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
