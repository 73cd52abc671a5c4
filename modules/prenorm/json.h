#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prenorm/error.h"
#include "prenorm/file.h"

namespace prenorm {

/// Documents of ours: members stand in the order in which they were written.
using Json = nlohmann::ordered_json;
/// Documents of others, of any size: members are found by name without walking over all of them.
using SortedJson = nlohmann::json;

constexpr int kMaxJsonDepth = 100;

/// For `parse`: refuses what is nested more deeply than a recursion over it, such as writing it out, bears.
template <typename Document>
bool refuse_deep(int depth, typename Document::parse_event_t, Document&) {
  require(depth <= kMaxJsonDepth, "JSON nested more than ", kMaxJsonDepth, " deep");
  return true;
}

/// For `parse`: refuses a key that an object has twice, too.
template <typename Document>
class StrictJson {
 public:
  bool operator()(int depth, typename Document::parse_event_t event, Document& parsed) {
    using Event = typename Document::parse_event_t;
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) require(keys_.back().insert(parsed).second, "the key ", parsed, " stands twice");
    return refuse_deep(depth, event, parsed);
  }

 private:
  std::vector<std::set<std::string>> keys_ = {};  // of the objects that are open
};

/// The byte, counted from 1, where a text opens more brackets than that; nothing when it nowhere does.
inline std::optional<std::size_t> deep_byte(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (text[i] == '{' || text[i] == '[')) {
      if (++depth > kMaxJsonDepth) return i + 1;
    } else if (!quoted && (text[i] == '}' || text[i] == ']')) {
      --depth;
    }
  }
  return std::nullopt;
}

/// A text as JSON, of keys that stand once. Throws Error, which says where, when it is none.
template <typename Document = Json>
Document parse_json(std::string_view text) {
  if (const auto byte = deep_byte(text)) fail("JSON nested more than ", kMaxJsonDepth, " deep at byte ", *byte);
  try {
    return Document::parse(text, StrictJson<Document>());
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
