#include "prenorm/training/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/json.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {
namespace {

using Split = Vocabulary::Split;

constexpr int kVocabularyVersion = 1;
constexpr std::array kKeys{"version", "split", "per", "unknown", "tokens", "answers"};

/// The bytes of the character with which `text`, which is not empty, begins; 0 when it is not UTF-8.
std::size_t character_size(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < size) return 0;
  // The second byte's range excludes overlong forms, surrogates and what lies past U+10FFFF.
  const unsigned lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return size;
}

void require_strings(const char* what, const std::vector<std::string>& strings) {
  require(!strings.empty(), "the vocabulary has no ", what, "s");
  std::unordered_set<std::string_view> seen;
  for (const auto& string : strings) {
    require(!string.empty(), "the vocabulary has an empty ", what);
    require(first_not_utf8(string) == 0, "the ", what, " ", InQuotes(string), " is not UTF-8");
    require(seen.insert(string).second, "the ", what, " ", InQuotes(string), " stands twice in the vocabulary");
  }
}

const std::string& named(const char* what, const std::vector<std::string>& strings, std::int64_t number) {
  require(number >= 0 && number < std::ssize(strings), what, " ", number, " is not in [0, ", strings.size(), ")");
  return strings[static_cast<std::size_t>(number)];
}

std::string joined(const char* what, const std::vector<std::string>& strings, const std::vector<std::int64_t>& numbers,
                   Split split) {
  std::string text;
  for (const auto number : numbers) {
    if (split == Split::spaces && !text.empty()) text += ' ';
    text += named(what, strings, number);
  }
  return text;
}

/// A value of the JSON as it may stand in a message.
std::string shown(const Json& json) {
  if (json.is_string()) return InQuotes(json.get_ref<const std::string&>());
  return json.is_structured() ? std::string("an ") + json.type_name() : json.dump();
}

/// Whether the value of `key` is `yes`; throws Error unless it is that or `no`.
bool choice(const Json& json, const char* key, const char* yes, const char* no) {
  const Json& value = json[key];
  require(value == yes || value == no, key, " is ", shown(value), ", not \"", yes, "\" or \"", no, "\"");
  return value == yes;
}

std::vector<std::string> strings(const Json& json, const char* key) {
  require(json[key].is_array(), key, " is ", shown(json[key]), ", not an array");
  for (const auto& value : json[key]) {
    if (!value.is_string()) fail(key, " holds ", shown(value), ", not a string");
  }
  return json[key].get<std::vector<std::string>>();
}

std::optional<std::int64_t> unknown_id(const Json& json) {
  const Json& value = json["unknown"];
  if (value.is_null()) return std::nullopt;
  const bool is_id = value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  require(is_id, "unknown is ", shown(value), ", not null or the id of a token");
  return value.get<std::int64_t>();
}

Vocabulary from_json(const std::string& text) {
  const Json json = parse_json(text);
  require(json.is_object(), "the vocabulary is not a JSON object");
  for (const char* key : kKeys) require(json.contains(key), key, " is missing");
  require(json["version"] == kVocabularyVersion, "version is ", shown(json["version"]), "; this program reads version ",
          kVocabularyVersion);
  for (const auto& [key, value] : json.items()) {
    require(std::ranges::count(kKeys, key) > 0, "unknown key ", InQuotes(key));
  }
  const bool per_sequence = choice(json, "per", "sequence", "token");
  const Split split = choice(json, "split", "chars", "spaces") ? Split::chars : Split::spaces;
  return {strings(json, "tokens"), strings(json, "answers"), per_sequence, split, unknown_id(json)};
}

}  // namespace

std::size_t first_not_utf8(std::string_view text) {
  constexpr std::uint64_t kNotAscii = 0x8080808080808080;
  for (std::size_t at = 0; at < text.size();) {
    if (std::uint64_t word = 0; text.size() - at >= sizeof(word)) {  // most text is ASCII: eight bytes at once
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kNotAscii) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const std::size_t size = character_size(text.substr(at));
    if (size == 0) return at + 1;
    at += size;
  }
  return 0;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::vector<std::string_view> split_text(std::string_view text, Split split) {
  const std::size_t wrong = first_not_utf8(text);
  require(wrong == 0, "not UTF-8 at byte ", wrong);
  std::vector<std::string_view> tokens;
  while (true) {
    if (split == Split::spaces) text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) return tokens;
    const std::size_t size = split == Split::chars ? character_size(text) : std::min(text.find(' '), text.size());
    tokens.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<std::string> answers, bool per_sequence,
                       Split split, std::optional<std::int64_t> unknown)
    : tokens_(std::move(tokens)),
      answers_(std::move(answers)),
      per_sequence_(per_sequence),
      split_(split),
      unknown_(unknown) {
  require_strings("token", tokens_);
  require_strings("answer", answers_);
  if (unknown_) {
    require(*unknown_ >= 0 && *unknown_ < size(), "the id for unknown tokens ", *unknown_, " is not in [0, ", size(),
            ")");
  }
  id_of_.reserve(tokens_.size());
  for (const auto& token : tokens_) id_of_.emplace(token, std::ssize(id_of_));
}

std::vector<std::int64_t> Vocabulary::ids(std::string_view text) const {
  std::vector<std::int64_t> ids;
  for (const auto token : split_text(text, split_)) {
    const auto found = id_of_.find(token);
    require(found != id_of_.end() || unknown_, "the token ", InQuotes(token), " is not in the vocabulary");
    ids.push_back(found != id_of_.end() ? found->second : *unknown_);
  }
  return ids;
}

std::string Vocabulary::input_text(const std::vector<std::int64_t>& ids) const {
  return joined("the token id", tokens_, ids, split_);
}

std::string Vocabulary::answer_text(const std::vector<std::int64_t>& classes) const {
  return joined("the class", answers_, classes, split_);
}

bool Vocabulary::is_target(std::string_view target, const std::vector<std::int64_t>& classes) const {
  auto answers = split_text(target, split_);
  if (per_sequence_) answers = {trimmed(target)};
  return std::ranges::equal(answers, classes, {}, {}, [this](std::int64_t number) -> std::string_view {
    return named("the class", answers_, number);
  });
}

void Vocabulary::save(const std::filesystem::path& path) const {
  const Json json{{"version", kVocabularyVersion},
                  {"split", split_ == Split::chars ? "chars" : "spaces"},
                  {"per", per_sequence_ ? "sequence" : "token"},
                  {"unknown", unknown_ ? Json(*unknown_) : Json(nullptr)},
                  {"tokens", tokens_},
                  {"answers", answers_}};
  write_file_atomically(path, [&](std::ostream& stream) { stream << json.dump(1) << "\n"; });
}

Vocabulary Vocabulary::load(const std::filesystem::path& path) {
  return parse_file(path, from_json);
}

}  // namespace prenorm
