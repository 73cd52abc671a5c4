#include "prenorm/training/vocabulary.h"

#include <fstream>

#include "folder.h"
#include "prenorm/error.h"
#include "prenorm/file.h"
#include "support.h"

namespace vocabulary_test {

using prenorm::Error;
using prenorm::first_not_utf8;
using prenorm::split_text;
using prenorm::Vocabulary;
using Split = prenorm::Vocabulary::Split;

namespace {

using Ids = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;
using namespace std::string_literals;

Texts split(const std::string& text, Split how) {
  const auto tokens = split_text(text, how);
  return {tokens.begin(), tokens.end()};
}

const std::string kValid = R"({"version": 1, "split": "spaces", "per": "token", "unknown": 0,
  "tokens": ["<unk>", "a"], "answers": ["x", "y"]})";

/// The error of loading kValid with its first `from` replaced, without the path with which it starts.
std::string load_error(const std::string& from, const std::string& to) {
  const Folder folder;
  const auto path = folder.path / "vocabulary.json";
  std::string json = kValid;
  std::ofstream(path) << json.replace(json.find(from), from.size(), to);
  const std::string error = message_of<Error>([&] { Vocabulary::load(path); });
  const std::string start = path.string() + ": ";
  return error.starts_with(start) ? error.substr(start.size()) : "without the path: " + error;
}

void check_equal(const Vocabulary& a, const Vocabulary& b) {
  CHECK(a.tokens() == b.tokens());
  CHECK(a.answers() == b.answers());
  CHECK(a.per_sequence() == b.per_sequence());
  CHECK(a.split() == b.split());
  CHECK(a.unknown() == b.unknown());
}

}  // namespace

TEST_CASE("the first byte that is not UTF-8 is found where Python finds it") {
  CHECK(first_not_utf8("") == 0);
  CHECK(first_not_utf8("abc") == 0);
  CHECK(first_not_utf8("a\0b\x7f"s) == 0);
  CHECK(first_not_utf8("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") == 0);
  CHECK(first_not_utf8("\xf4\x8f\xbf\xbf") == 0);
  CHECK(first_not_utf8("abcdefgh\xff") == 9);
  CHECK(first_not_utf8("ab\xc3") == 3);
  CHECK(first_not_utf8("ab\xc3(") == 3);
  CHECK(first_not_utf8("\xc0\xaf") == 1);
  CHECK(first_not_utf8("\xe0\x80\xaf") == 1);
  CHECK(first_not_utf8("\xed\xa0\x80") == 1);
  CHECK(first_not_utf8("\xf4\x90\x80\x80") == 1);
  CHECK(first_not_utf8("\xf0\x80\x80\xaf") == 1);
  CHECK(first_not_utf8("\xf5\x80\x80\x80") == 1);
  CHECK(first_not_utf8("\xf0\x9f\x98\x41") == 1);
  CHECK(first_not_utf8("12345678\xe2\x82") == 9);
  CHECK(first_not_utf8("a\x80") == 2);
  CHECK(first_not_utf8("1234567\xc3\xa9\xc3\xa9"
                       "12345\xe9") == 17);
  CHECK(first_not_utf8("\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80x\xfe") == 11);
}

TEST_CASE("a target is compared answer by answer") {
  const Vocabulary chars({"a"}, {" ", "X"}, false, Split::chars);
  CHECK(chars.is_target("  X", {0, 0, 1}));
  CHECK_FALSE(chars.is_target("  X", {0, 1, 1}));
  CHECK_FALSE(chars.is_target("  X", {1, 0, 1}));
  CHECK_FALSE(chars.is_target("X", {0, 0, 1}));
  CHECK_FALSE(chars.is_target("  X ", {0, 0, 1}));
  CHECK_FALSE(chars.is_target("", {0}));
  const Vocabulary words({"a"}, {"no", "yes"}, false);
  CHECK(words.is_target(" no   yes ", {0, 1}));
  CHECK_FALSE(words.is_target("no never", {0, 1}));
  CHECK_FALSE(words.is_target("noyes", {0, 1}));
  const Vocabulary labels({"a"}, {"at all", "no"}, true, Split::chars);
  CHECK(labels.is_target("  at all ", {0}));
  CHECK_FALSE(labels.is_target("at  all", {0}));
  CHECK_FALSE(labels.is_target("at all", {}));
  CHECK_THROWS_AS(labels.is_target("\xff", {0}), Error);
  CHECK_THROWS_AS(labels.is_target("no", {2}), Error);
}

TEST_CASE("a text's tokens stand between spaces, or are its characters") {
  CHECK(split("  ab  c\td  ", Split::spaces) == Texts{"ab", "c\td"});
  CHECK(split("ab", Split::spaces) == Texts{"ab"});
  CHECK(split("   ", Split::spaces).empty());
  CHECK(split("", Split::spaces).empty());
  CHECK(split(" a\u00a0b ", Split::spaces) == Texts{"a\u00a0b"});  // a no-break space is no ASCII space

  CHECK(split(" ab ", Split::chars) == Texts{" ", "a", "b", " "});
  CHECK(split("é€😀", Split::chars) == Texts{"é", "€", "😀"});
  CHECK(split("e\u0301", Split::chars) == Texts{"e", "\u0301"});
  CHECK(split("a\0\r"s, Split::chars) == Texts{"a", "\0"s, "\r"});
  CHECK(split("", Split::chars).empty());

  for (const auto how : {Split::spaces, Split::chars}) {
    CHECK(message_of<Error>([&] { split_text("ab \xc3 c", how); }) == "not UTF-8 at byte 4");
  }
}

TEST_CASE("a vocabulary turns text into ids and back") {
  const Vocabulary words({"<unk>", "the", "cat"}, {"no", "yes"}, false, Split::spaces, 0);
  CHECK(words.size() == 3);
  CHECK(words.num_classes() == 2);
  CHECK_FALSE(words.per_sequence());
  CHECK(words.ids(" cat the  dog cat") == Ids{2, 1, 0, 2});
  CHECK(words.ids(" ").empty());
  CHECK(words.input_text({2, 1, 0}) == "cat the <unk>");
  CHECK(words.input_text({}).empty());
  CHECK(words.answer_text({1, 0}) == "yes no");
  CHECK(message_of<Error>([&] { words.ids("a\xff"); }) == "not UTF-8 at byte 2");
  CHECK(message_of<Error>([&] { words.input_text({3}); }) == "the token id 3 is not in [0, 3)");
  CHECK(message_of<Error>([&] { words.answer_text({0, -1}); }) == "the class -1 is not in [0, 2)");

  const Vocabulary characters({"a", " ", "é"}, {"0", "1"}, true, Split::chars);
  CHECK(characters.per_sequence());
  CHECK(characters.ids("é a") == Ids{2, 1, 0});
  CHECK(characters.input_text({2, 1, 0}) == "é a");
  CHECK(characters.answer_text({1}) == "1");
  CHECK(message_of<Error>([&] { characters.ids("ax"); }) == "the token \"x\" is not in the vocabulary");
  CHECK(message_of<Error>([&] { characters.ids("\n"); }) == "the token \"\\n\" is not in the vocabulary");
}

TEST_CASE("a vocabulary that cannot tell its strings apart is refused") {
  const auto error = [](const Texts& tokens, const Texts& answers, std::optional<std::int64_t> unknown = {}) {
    return message_of<Error>([&] { Vocabulary(tokens, answers, false, Split::spaces, unknown); });
  };
  CHECK(error({"a"}, {"x"}, 0).empty());
  CHECK(error({}, {"x"}) == "the vocabulary has no tokens");
  CHECK(error({"a"}, {}) == "the vocabulary has no answers");
  CHECK(error({"a", ""}, {"x"}) == "the vocabulary has an empty token");
  CHECK(error({"a"}, {""}) == "the vocabulary has an empty answer");
  CHECK(error({"a", "b", "a"}, {"x"}) == "the token \"a\" stands twice in the vocabulary");
  CHECK(error({"a"}, {"x", "x"}) == "the answer \"x\" stands twice in the vocabulary");
  CHECK(error({"a\xff"}, {"x"}) == "the token \"a\\ufffd\" is not UTF-8");
  CHECK(error({"a"}, {"x"}, 1) == "the id for unknown tokens 1 is not in [0, 1)");
  CHECK(error({"a"}, {"x"}, -1) == "the id for unknown tokens -1 is not in [0, 1)");
}

TEST_CASE("a vocabulary survives its file") {
  const Folder folder;
  const auto path = folder.path / "vocabulary.json";
  const Vocabulary odd({"<unk>", "\"\\", "\0\n"s, "é😀", "\u2028"}, {"two words", "1"}, true, Split::chars, 0);
  odd.save(path);
  check_equal(Vocabulary::load(path), odd);
  CHECK(Vocabulary::load(path).ids("\"?") == Ids{0, 0});

  const Vocabulary plain({"a", "b"}, {"x"}, false);
  plain.save(path);
  check_equal(Vocabulary::load(path), plain);
  CHECK(Vocabulary::load(path).ids("b a") == Ids{1, 0});
  CHECK(prenorm::read_file(path) == R"({
 "version": 1,
 "split": "spaces",
 "per": "token",
 "unknown": null,
 "tokens": [
  "a",
  "b"
 ],
 "answers": [
  "x"
 ]
}
)");

  const std::string whole = prenorm::read_file(path);
  for (std::size_t size = 0; size + 2 < whole.size(); ++size) {  // without the brace it is cut, without the newline not
    std::ofstream(path) << whole.substr(0, size);
    REQUIRE(message_of<Error>([&] { Vocabulary::load(path); }).starts_with(path.string() + ": not valid JSON at "));
  }
  std::filesystem::remove(path);
  CHECK(message_of<Error>([&] { Vocabulary::load(path); }) == "no such file: \"" + path.string() + "\"");
  CHECK_THROWS_AS(plain.save(path / "missing"), Error);
}

TEST_CASE("a vocabulary file that is wrong is refused by the name of what is wrong") {
  CHECK(load_error("\"a\"", "1") == "tokens holds 1, not a string");
  CHECK(load_error("\"a\"", "[]") == "tokens holds an array, not a string");
  CHECK(load_error("\"a\"", "\"<unk>\"") == "the token \"<unk>\" stands twice in the vocabulary");
  CHECK(load_error("\"a\"", "\"\"") == "the vocabulary has an empty token");
  CHECK(load_error("\"a\"", "\"\xff\"").starts_with("not valid JSON at byte"));
  CHECK(load_error("\"y\"", "null") == "answers holds null, not a string");
  CHECK(load_error("[\"x\", \"y\"]", "[]") == "the vocabulary has no answers");
  CHECK(load_error("[\"x\", \"y\"]", "{}") == "answers is an object, not an array");
  CHECK(load_error("\"answers\"", "\"answer\"") == "answers is missing");
  CHECK(load_error("\"version\"", "\"more\": 1, \"version\"") == "unknown key \"more\"");
  CHECK(load_error("1", "2") == "version is 2; this program reads version 1");
  CHECK(load_error("1", "\"1\"") == "version is \"1\"; this program reads version 1");
  CHECK(load_error("1", "1e999") == "not valid JSON: a number is out of range");
  CHECK(load_error("\"spaces\"", "\"sp\\nce\"") == "split is \"sp\\nce\", not \"chars\" or \"spaces\"");
  CHECK(load_error("\"token\"", "true") == "per is true, not \"sequence\" or \"token\"");
  CHECK(load_error("0", "2") == "the id for unknown tokens 2 is not in [0, 2)");
  for (const std::string id : {"-1", "0.0", "\"<unk>\"", "18446744073709551615", "false"}) {
    CHECK(load_error("0", id) == "unknown is " + id + ", not null or the id of a token");
  }
  CHECK(load_error(kValid, "[1]") == "the vocabulary is not a JSON object");
  CHECK(load_error(kValid, "") == "not valid JSON at byte 1");
}

}  // namespace vocabulary_test
