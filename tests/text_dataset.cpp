#include "prenorm/training/text_dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "folder.h"
#include "prenorm/error.h"
#include "support.h"

namespace text_dataset_test {

using prenorm::Answers;
using prenorm::Error;
using prenorm::Example;
using prenorm::kUnknownAnswer;
using prenorm::LineReader;
using prenorm::TextDataset;
using prenorm::TextDatasetOptions;
using Split = prenorm::Vocabulary::Split;

namespace {

using Ids = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;
using namespace std::string_literals;

/// A folder for train.txt and valid.txt while a test runs.
TextDatasetOptions options_in(const Folder& folder) {
  return {.train = folder.path / "train.txt", .valid = folder.path / "valid.txt"};
}

TextDataset dataset(const Folder& folder, const std::string& train, const std::string& valid, Split split,
                    Answers answers) {
  auto options = options_in(folder);
  folder.write("train.txt", train);
  folder.write("valid.txt", valid);
  options.split = split;
  options.answers = answers;
  return TextDataset(options);
}

TextDataset dataset(const std::string& train, const std::string& valid, Split split = Split::spaces,
                    Answers answers = Answers::automatic) {
  return dataset(Folder(), train, valid, split, answers);
}

/// The error, without the folder's name.
std::string error(const std::string& train, const std::string& valid, Split split = Split::spaces,
                  Answers answers = Answers::automatic) {
  const Folder folder;
  std::string message = message_of<Error>([&] { dataset(folder, train, valid, split, answers); });
  const std::string name = folder.path.string() + "/";
  for (auto at = message.find(name); at != std::string::npos; at = message.find(name)) message.erase(at, name.size());
  return message;
}

std::string chars_error(const std::string& train, const std::string& valid, Answers answers = Answers::automatic) {
  return error(train, valid, Split::chars, answers);
}

std::vector<std::pair<Ids, Ids>> pairs(const std::vector<Example>& examples) {
  std::vector<std::pair<Ids, Ids>> pairs;
  for (const auto& [input, target] : examples) pairs.emplace_back(input, target);
  return pairs;
}

std::vector<std::pair<Ids, Ids>> evaluation(const TextDataset& dataset) {
  return pairs(dataset.evaluation_examples(0, dataset.evaluation_size()));
}

/// Ten examples, example i with the input "t<i>", so that an epoch's order can be read from it.
TextDataset ten() {
  std::string lines;
  for (const char digit : "0123456789"s) lines += "t"s + digit + "\t" + digit + "\n";
  return dataset(lines, lines);
}

Ids stream(const TextDataset& dataset, std::uint64_t seed, std::int64_t first, std::int64_t size) {
  Ids numbers;
  for (const auto& example : dataset.training_examples(seed, first, size)) numbers.push_back(example.target.front());
  return numbers;
}

}  // namespace

TEST_CASE("lines end in LF or CRLF, or with the file") {
  const auto lines = [](const std::string& text) {
    std::istringstream stream(text);
    LineReader reader(stream);
    Texts read;
    while (reader.next()) {
      read.push_back(reader.line());
      CHECK(reader.number() == std::ssize(read));
    }
    return read;
  };
  CHECK(lines("").empty());
  CHECK(lines("\n") == Texts{""});
  CHECK(lines("a\nb\r\n\r\n\nc") == Texts{"a", "b", "", "", "c"});
  CHECK(lines("a\r\r\n\r\r\nb\r\r\r") == Texts{"a", "", "b"});
  CHECK(message_of<Error>([&] { lines("a\rb\r\n"); }) == "a carriage return in the line; lines end in LF or CRLF");
  CHECK(lines("a\0b\n"s) == Texts{"a\0b"s});
  CHECK(lines("\xEF\xBB\xBF"
              "a\n\xEF\xBB\xBF"
              "b") == Texts{"a",
                            "\xEF\xBB\xBF"
                            "b"});
  CHECK(lines("\xEF\xBB\xBF") == Texts{""});
  CHECK(lines("\xEF\xBB") == Texts{"\xEF\xBB"});
  for (std::size_t size = 4090; size < 4100; ++size) {  // around the size of the pieces in which lines are read
    const std::string longer(size, 'x'), twice(2 * size, 'y');
    CHECK(lines(longer + "\n" + twice + "\r\nz\n" + longer) == Texts{longer, twice, "z", longer});
  }
  const std::string longest(std::size_t{1} << 24, 'x');
  CHECK(lines(longest + "\n" + longest) == Texts{longest, longest});
  CHECK(message_of<Error>([&] { lines(longest + "x\n"); }) == "the line is longer than 16777216 bytes");
}

TEST_CASE("a reader knows whether it would have to wait") {
  const Folder folder;
  REQUIRE(::mkfifo((folder.path / "pipe").c_str(), 0600) == 0);
  std::fstream pipe(folder.path / "pipe");  // opened for both, so that nobody waits
  LineReader reader(pipe);
  CHECK_FALSE(reader.ready());
  const int other = ::open((folder.path / "pipe").c_str(), O_WRONLY);
  const auto write = [&](const std::string& text) {
    REQUIRE(::write(other, text.data(), text.size()) == std::ssize(text));
  };
  write("first\nsec");
  CHECK(reader.ready());
  CHECK(reader.next());
  CHECK(reader.line() == "first");
  CHECK_FALSE(reader.ready());
  write("ond\n\n");
  for (const std::string line : {"second", ""}) {
    CHECK(reader.ready());
    CHECK(reader.next());
    CHECK(reader.line() == line);
  }
  CHECK_FALSE(reader.ready());
  ::close(other);
}

TEST_CASE("a failure to read is not the end of the file") {
  struct : std::streambuf {
    int underflow() override { throw std::runtime_error("the disk is gone"); }
  } broken;
  std::istream stream(&broken);
  CHECK(message_of<Error>([&] { LineReader(stream).next(); }).starts_with("reading failed: "));
}

TEST_CASE("a file with an answer for each token") {
  const auto data = dataset("b a b\t2 10 2\n\n  \n a  b \t 10  -3\nc\t2\n", "c b\t2 2\nx a <unk> x\t7 10 2 2\n");
  const auto& vocabulary = data.vocabulary();
  CHECK(vocabulary.tokens() == Texts{"<unk>", "b", "a", "c"});  // b 3, a 2, c 1
  CHECK(vocabulary.answers() == Texts{"-3", "2", "10"});
  CHECK_FALSE(vocabulary.per_sequence());
  CHECK(vocabulary.split() == Split::spaces);
  CHECK(vocabulary.ids("c q") == Ids{3, 0});
  CHECK(data.epoch_size() == 3);
  CHECK(data.evaluation_size() == 2);
  CHECK(data.max_length() == 4);
  CHECK(evaluation(data) ==
        std::vector<std::pair<Ids, Ids>>{{{3, 1}, {1, 1}}, {{0, 2, 0, 0}, {kUnknownAnswer, 2, 1, 1}}});
  auto train = pairs(data.training_examples(0, 0, 3));
  std::ranges::sort(train);
  CHECK(train == std::vector<std::pair<Ids, Ids>>{{{1, 2, 1}, {1, 2, 1}}, {{2, 1}, {2, 0}}, {{3}, {1}}});
  CHECK(data.unknown_tokens() == 2);  // "x" twice; "<unk>" is in the vocabulary
  CHECK(data.unknown_answers() == 1);
}

TEST_CASE("a file with one answer for the whole sequence") {
  const auto data = dataset("good\tyes\nso so\tno\nso bad\t no \n", "so good\tmaybe\nbad\tyes");
  CHECK(data.vocabulary().per_sequence());
  CHECK(data.vocabulary().tokens() == Texts{"<unk>", "so", "good", "bad"});
  CHECK(data.vocabulary().answers() == Texts{"no", "yes"});
  CHECK(evaluation(data) == std::vector<std::pair<Ids, Ids>>{{{1, 2}, {kUnknownAnswer}}, {{3}, {1}}});
  CHECK(data.unknown_tokens() == 0);
  CHECK(data.unknown_answers() == 1);
  auto train = pairs(data.training_examples(0, 0, 3));
  std::ranges::sort(train);
  CHECK(train == std::vector<std::pair<Ids, Ids>>{{{1, 1}, {0}}, {{1, 3}, {0}}, {{2}, {1}}});
}

TEST_CASE("a header is passed over where the options say so, and suspected where an answer is in line 1 alone") {
  const std::string header = "sentence\tlabel\n", lines = "good\tpos\nbad\tneg\nfine\tpos\n";
  const auto suspect = [](const std::string& train) { return dataset(train, train).lone_answer(); };
  CHECK(suspect(header + lines) == "label");
  CHECK_FALSE(suspect(lines));
  CHECK_FALSE(suspect("\n" + header + lines));
  CHECK(suspect("the words\tthe tags\na the\tb the\n") == "tags");

  const Folder folder;
  auto options = options_in(folder);
  options.skip_header = true;
  folder.write("train.txt", "no\ttable\there\n" + lines);
  folder.write("valid.txt", "\xff\nbad\tneg\n");
  const TextDataset data(options);
  CHECK(data.vocabulary().answers() == Texts{"neg", "pos"});
  CHECK(data.epoch_size() == 3);
  CHECK(data.evaluation_size() == 1);
  CHECK_FALSE(data.lone_answer());
  folder.write("valid.txt", header + "bad\n");
  CHECK(
      message_of<Error>([&] { TextDataset wrong(options); }).ends_with("valid.txt:2: no TAB between input and target"));
}

TEST_CASE("the longest lines are known") {
  const Folder folder;
  const auto data = dataset(folder, "a b\tx\n\nc d\ty\n", "a\tx\n\nb c d\ty\n", Split::spaces, Answers::automatic);
  CHECK(data.max_length() == 3);
  CHECK(data.max_training_length() == 2);
  const auto path = [&](const char* name) { return (folder.path / name).string(); };
  CHECK(data.longest_examples() == path("train.txt") + ":1 with 2 tokens, " + path("valid.txt") + ":3 with 3 tokens");

  const std::string longest(16384, 'x');
  const auto with = [](const std::string& input) { return "a\tx\n" + input + "\ty\n"; };
  CHECK(dataset(with(longest), "a\tx\n", Split::chars).max_length() == 16384);
  CHECK(chars_error(with(longest + "x"), "a\tx\n") == "train.txt:2: the input has 16385 tokens, more than 16384");
  CHECK(chars_error("a\tx\nb\ty\n", with(longest + "x")) == "valid.txt:2: the input has 16385 tokens, more than 16384");
}

TEST_CASE("characters, spaces among them") {
  const auto data = dataset(" né\tJJN\n", "é?\tNX\n", Split::chars);
  CHECK(data.vocabulary().tokens() == Texts{"<unk>", " ", "n", "é"});
  CHECK(data.vocabulary().answers() == Texts{"J", "N"});
  CHECK(evaluation(data) == std::vector<std::pair<Ids, Ids>>{{{3, 0}, {1, kUnknownAnswer}}});

  const auto labels = dataset("abc\t  two words \nab\tto\n", "c\ttwo words\n", Split::chars);
  CHECK(labels.vocabulary().per_sequence());
  CHECK(labels.vocabulary().answers() == Texts{"to", "two words"});
  CHECK(evaluation(labels) == std::vector<std::pair<Ids, Ids>>{{{3}, {1}}});

  const auto controls = dataset("\x01\x7f\0\ta b\n"s, "\x01\ta\n", Split::chars);
  CHECK(controls.vocabulary().tokens() == Texts{"<unk>", "\x01", "\x7f", "\0"s});
}

TEST_CASE("the first input of several tokens decides on the kind of answers") {
  const auto per_sequence = [](const std::string& lines, Split split, Answers answers = Answers::automatic) {
    return dataset(lines, lines, split, answers).vocabulary().per_sequence();
  };
  CHECK_FALSE(per_sequence("a\tx\na b\tx y\n", Split::spaces));
  CHECK(per_sequence("a\tx\na b\ty\n", Split::spaces));
  CHECK(per_sequence("a\tx\nb\ty\n", Split::spaces));  // no line has more than one
  CHECK_FALSE(per_sequence("a\tx\nb\ty\n", Split::spaces, Answers::token));
  CHECK_FALSE(per_sequence("a\t \nab\txy\n", Split::chars));
  CHECK(per_sequence("a\tx\nab\txyz\n", Split::chars));
  CHECK(per_sequence("a\tyes\nb\tno\n", Split::chars));
  CHECK(per_sequence("ab\tno\nabc\tyes\nabc\tno\n", Split::chars, Answers::sequence));

  CHECK(error("a b c\tx y\n", "") ==
        "train.txt:1: the target has 2 tokens for 3 of the input; it is one label or has as many tokens as the input");
  CHECK(error("a\tx y\n", "") ==
        "train.txt:1: the target has 2 tokens for 1 of the input; it is one label or has as many tokens as the input");
  CHECK(error("a b\tx y\na\ty\n\na b c d e\tx\n", "") ==
        "train.txt:4: the target has 1 token for 5 of the input; line 1 has one answer for each token");
  CHECK(error("a\tx\na b\ty\na b\tx y\n", "") ==
        "train.txt:3: the target has 2 tokens for 2 of the input; line 2 has one answer for the whole sequence");
  CHECK(error("a b\tx y\n", "a b\tx y\na b\tx\n") ==
        "valid.txt:2: the target has 1 token for 2 of the input; line 1 of train.txt has one answer for each token");
  CHECK(error("a\tx\nb\ty\n", "a b\tx y\n") ==
        "valid.txt:1: the target has 2 tokens for 2 of the input; train.txt has one answer for the whole sequence");
  CHECK(error("a b\tx\n", "", Split::spaces, Answers::token) ==
        "train.txt:1: the target has 1 token for 2 of the input; the options ask for one answer for each token");
  CHECK(error("a b\tx y\n", "", Split::spaces, Answers::sequence) ==
        "train.txt:1: the target has 2 tokens for 2 of the input; the options ask for one answer for the whole "
        "sequence");

  // Lines before the one that decides: the first that does not follow is named.
  CHECK(chars_error("a\tx\nb\txyz\nc\txy\nab\txy\n", "") ==
        "train.txt:2: the target has 3 tokens for 1 of the input; line 4 has one answer for each token");
  CHECK(chars_error("a\tx\nb\t \nab\txyz\n", "") ==
        "train.txt:2: the target has only spaces; line 3 has one answer for the whole sequence");
  CHECK(chars_error("a\tx\nb\t \n", "") ==
        "train.txt:2: the target has only spaces; train.txt has one answer for the whole sequence");
  CHECK(chars_error("a\t  \n", "") ==
        "train.txt:1: the target has 2 tokens for 1 of the input; it is one label or has as many tokens as the input");
  CHECK(chars_error("ab\txyz\nab\t  \n", "") ==
        "train.txt:2: the target has only spaces; line 1 has one answer for the whole sequence");
  CHECK(chars_error("ab\tno\nabc\tno\n", "") ==
        "train.txt:2: the target has 2 tokens for 3 of the input; line 1 has one answer for each token");
}

TEST_CASE("answers ascend, as numbers when all are integers") {
  const auto answers = [](const Texts& unsorted) {
    std::string lines;
    for (const auto& answer : unsorted) lines.append("a\t").append(answer).append("\n");
    return dataset(lines, lines).vocabulary().answers();
  };
  CHECK(answers({"10", "9", "-1", "-10", "009"}) == Texts{"-10", "-1", "009", "9", "10"});
  CHECK(answers({"10", "9", "x"}) == Texts{"10", "9", "x"});
  CHECK(answers({"10", "9", "1.5"}) == Texts{"1.5", "10", "9"});
  CHECK(answers({"10", "9", "+1"}) == Texts{"+1", "10", "9"});
  CHECK(answers({"9223372036854775808", "9"}) == Texts{"9", "9223372036854775808"});
  CHECK(answers({"é", "z", "a"}) == Texts{"a", "z", "é"});
}

TEST_CASE("every line that is wrong is named") {
  CHECK(error("a b\tx y\n\n \r\na b\n", "") == "train.txt:4: no TAB between input and target");
  CHECK(error("a\tx\ty\n", "") == "train.txt:1: 2 TABs, one stands between input and target");
  CHECK(error("a\tx\n \ty\n", "") == "train.txt:2: the input has no tokens");
  CHECK(error("a\tx\nb\t\r\n", "") == "train.txt:2: the target has no tokens");
  CHECK(error("a\tx\nb\t \n", "") == "train.txt:2: the target has no tokens");
  CHECK(error("\xEF\xBB\xBF"
              "a b\xff\tx\n",
              "") == "train.txt:1: not UTF-8 at byte 4 of the line");
  CHECK(error("a\tx\nb\ty\xc3\n", "") == "train.txt:2: not UTF-8 at byte 4 of the line");
  CHECK(error("\xff\xfe"
              "a\0\t\0"s,
              "") == "train.txt:1: not UTF-8 at byte 1 of the line");
  CHECK(chars_error("\tx\n", "") == "train.txt:1: the input has no tokens");
  CHECK(chars_error("ab\t\n", "") == "train.txt:1: the target has no tokens");
  CHECK(error("a\tx\nb\ty\n", "\nb\n") == "valid.txt:2: no TAB between input and target");
  CHECK(error("a\tx\n"s.append((1 << 24) + 1, 'x'), "") == "train.txt:2: the line is longer than 16777216 bytes");

  const auto empty = [](const std::string& name) {
    return name + ": no examples, which are lines of an input, a TAB and a target";
  };
  CHECK(error("", "a\tx\n") == empty("train.txt"));
  CHECK(error("\xEF\xBB\xBF\r\n  \n", "a\tx\n") == empty("train.txt"));
  CHECK(error("a\tx\nb\ty\n", "\n") == empty("valid.txt"));
  CHECK(error("a b\tx\nb\ty\n", "b\tz\na\tZ\n") ==
        "valid.txt: none of its answers is in train.txt; there is nothing to judge by");
  CHECK(error("a\tx\nb\ty\ra\tx\r", "") == "train.txt:2: a carriage return in the line; lines end in LF or CRLF");
  CHECK(error("a\tx\nb\tx\n", "a\tx\n") == "train.txt: the only answer is \"x\"; there is nothing to learn");
  CHECK(chars_error("abc\tx\x1bx y\n", "") ==
        "train.txt: the only answer is \"x\\u001bx y\"; there is nothing to learn");
}

TEST_CASE("a file that cannot be read is named, a pipe can") {
  const Folder folder;
  const auto options = options_in(folder);
  const auto error = [&] { return message_of<Error>([&] { TextDataset data(options); }); };
  CHECK(error() == "no such file: \"" + options.train.string() + "\"");
  std::ofstream(options.train) << "a\tx\nb\ty\n";
  CHECK(error() == "no such file: \"" + options.valid.string() + "\"");
  std::filesystem::create_directory(options.valid);
  CHECK(error() == "\""s.append(options.valid.string()).append("\" is a folder, not a file"));

  std::filesystem::remove(options.valid);
  REQUIRE(::mkfifo(options.valid.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(options.valid) << "b\tx\n"; });
  const TextDataset data(options);
  writer.join();
  CHECK(evaluation(data) == std::vector<std::pair<Ids, Ids>>{{{2}, {0}}});
}

TEST_CASE("the fingerprint is of the examples, not of the files") {
  const std::string train = "a b\t1 2\nc\t2\n", valid = "c a\t1 1\n";
  const auto fingerprint = dataset(train, valid).fingerprint();
  CHECK(dataset("\xEF\xBB\xBF"
                "a b\t1 2\r\n\r\n c \t2",
                "\n\nc  a\t1 1")
            .fingerprint() == fingerprint);
  std::set<std::uint64_t> others{fingerprint};
  for (const auto& [other_train, other_valid] : std::vector<std::pair<std::string, std::string>>{
           {"c\t2\na b\t1 2\n", valid},            // other order
           {"a b\t2 1\nc\t2\n", valid},            // other answers
           {"d b\t1 2\nc\t2\n", "c d\t1 1\n"},     // another token with the same number
           {"a b\t1 3\nc\t3\n", valid},            // another answer with the same number
           {train, "c b\t1 1\n"},                  // other validation input
           {train, "c a\t1 2\n"},                  // other validation answers
           {train, "c\t1\na\t1\n"},                // the same tokens, cut otherwise
           {"a b\t1 2\nc\t2\nc a\t1 1\n", valid},  // one example more
       }) {
    CHECK(others.insert(dataset(other_train, other_valid).fingerprint()).second);
  }
  CHECK(dataset(train, "c b\t1 1\n").training_fingerprint() == dataset(train, valid).training_fingerprint());
  CHECK(dataset("a b\t2 1\nc\t2\n", valid).training_fingerprint() != dataset(train, valid).training_fingerprint());
  const std::string either = "a\t1\nb\t2\n";
  for (const auto split : {Split::spaces, Split::chars}) {
    for (const auto answers : {Answers::token, Answers::sequence}) {
      CHECK(others.insert(dataset(either, either, split, answers).fingerprint()).second);
    }
  }
}

TEST_CASE("examples are unseen unless the training file has them all") {
  const std::string train = "a b\t1 2\nc\t2\na a\t1 1\n";
  CHECK_FALSE(dataset(train, train).evaluates_unseen());
  CHECK_FALSE(dataset(train, "c\t1\n\na b\t1 1\n").evaluates_unseen());
  CHECK(dataset(train, "c\t1\nb a\t1 1\n").evaluates_unseen());
  CHECK(dataset(train, "new\t1\n").evaluates_unseen());
}

TEST_CASE("each epoch is the whole file in an order of its own") {
  const auto data = ten();
  Ids all(10);
  for (std::size_t i = 0; i < 10; ++i) all[i] = static_cast<std::int64_t>(i);
  std::set<Ids> orders;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      auto order = stream(data, seed, 10 * epoch, 10);
      CHECK(orders.insert(order).second);
      std::ranges::sort(order);
      CHECK(order == all);
    }
  }
  for (const auto& [input, target] : data.training_examples(3, 0, 10)) CHECK(input.front() == target.front() + 1);

  // Written out by the same algorithm in Python: a run resumed with another version goes on with the same examples.
  CHECK(stream(data, 0, 0, 10) == Ids{5, 2, 1, 6, 0, 3, 8, 9, 7, 4});
  CHECK(stream(data, 0, 10, 10) == Ids{8, 6, 1, 7, 2, 5, 0, 9, 3, 4});
  CHECK(stream(data, 7, 0, 10) == Ids{7, 0, 1, 5, 3, 4, 8, 9, 2, 6});
  CHECK(stream(data, 7, 10, 10) == Ids{2, 3, 6, 0, 4, 9, 5, 7, 8, 1});
}

TEST_CASE("every first place of an epoch's order is equally likely") {
  const auto data = ten();
  std::vector<int> counts(100);
  for (std::int64_t epoch = 0; epoch < 10000; ++epoch) {
    const auto order = stream(data, 1, 10 * epoch, 10);
    for (std::size_t place = 0; place < 10; ++place) ++counts[10 * place + static_cast<std::size_t>(order[place])];
  }
  // 1000 expected, standard deviation 30
  for (const int count : counts) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("the stream is the same in whatever pieces it is taken") {
  const auto data = ten();
  const auto whole = stream(data, 9, 0, 100);
  for (const std::int64_t size : {1, 3, 7, 10, 16, 33}) {
    Ids pieces;
    for (std::int64_t first = 0; first < 100; first += size) {
      std::ranges::copy(stream(data, 9, first, std::min<std::int64_t>(size, 100 - first)), std::back_inserter(pieces));
      stream(data, 10, first, 2);  // another stream between the pieces
    }
    CHECK(pieces == whole);
  }
  CHECK(stream(data, 9, 95, 5) == Ids(whole.end() - 5, whole.end()));
  CHECK(stream(data, 9, 5, 0).empty());
  CHECK(stream(data, 9, INT64_MAX - 10, 10).size() == 10);

  const auto one = dataset("a b\tx y\n", "a\tx\n");
  for (const auto& [input, target] : one.training_examples(0, 0, 5)) {
    CHECK(input == Ids{1, 2});
    CHECK(target == Ids{0, 1});
  }
}

TEST_CASE("examples that are not there are refused") {
  const auto data = ten();
  CHECK(pairs(data.evaluation_examples(8, 2)) == std::vector<std::pair<Ids, Ids>>{{{9}, {8}}, {{10}, {9}}});
  CHECK(data.evaluation_examples(10, 0).empty());
  CHECK(message_of<Error>([&] { data.evaluation_examples(8, 3); }) ==
        "there are no 3 examples from number 8 on; there are 10");
  CHECK_THROWS_AS(data.evaluation_examples(-1, 1), Error);
  CHECK_THROWS_AS(data.evaluation_examples(0, INT64_MAX), Error);
  CHECK_THROWS_AS(data.training_examples(0, -1, 1), Error);
  CHECK_THROWS_AS(data.training_examples(0, 0, -1), Error);
  CHECK_THROWS_AS(data.training_examples(0, INT64_MAX, 1), Error);
}

}  // namespace text_dataset_test
