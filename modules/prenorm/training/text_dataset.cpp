#include "prenorm/training/text_dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <span>
#include <unordered_set>
#include <utility>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/tensor_file/text.h"
#include "prenorm/training/numbering.h"
#include "prenorm/training/random.h"

namespace prenorm {

template <>
const std::vector<std::pair<std::string, Answers>>& enum_names() {
  static const std::vector<std::pair<std::string, Answers>> names{
      {"automatic", Answers::automatic}, {"token", Answers::token}, {"sequence", Answers::sequence}};
  return names;
}

namespace {

using Split = Vocabulary::Split;

constexpr std::size_t kLongestLine = std::size_t{1} << 24;
constexpr auto kUnknown = "<unk>";

std::string count_of(std::size_t tokens) {
  return std::to_string(tokens) + (tokens == 1 ? " token" : " tokens");
}

void require_range(std::int64_t first, std::int64_t size, std::int64_t all) {
  require(first >= 0 && size >= 0 && first <= all - size, "there are no ", size, " examples from number ", first,
          " on; there are ", all);
}

}  // namespace

/// Whether the line's end, or more than a line may have, is in the buffer.
bool LineReader::find_end() {
  searched_ = std::min(buffer_.find('\n', searched_), buffer_.size());
  return searched_ < buffer_.size() || searched_ - begin_ > kLongestLine;
}

/// Reads what is there, and waits for a first byte; false at the end.
bool LineReader::read() {
  constexpr std::size_t kPiece = 1 << 13;
  const int first = stream_.get();
  if (first == std::istream::traits_type::eof()) return false;
  buffer_.erase(0, begin_);
  searched_ -= std::exchange(begin_, 0);
  buffer_ += static_cast<char>(first);
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kPiece);
  buffer_.resize(size + static_cast<std::size_t>(stream_.readsome(buffer_.data() + size, kPiece)));
  return true;
}

bool LineReader::ready() {
  while (!find_end()) {
    if (stream_.rdbuf()->in_avail() <= 0) return false;
    if (!read()) return true;
  }
  return true;
}

bool LineReader::next() {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  ++number_;
  while (!find_end() && read()) {
  }
  if (stream_.bad()) fail("reading failed: ", std::strerror(errno));
  require(searched_ - begin_ <= kLongestLine, "the line is longer than ", kLongestLine, " bytes");
  const bool ended = searched_ < buffer_.size();  // the last line may lack its end
  line_.assign(buffer_, begin_, searched_ - begin_);
  if (ended) ++searched_;
  begin_ = searched_;
  if (!ended && line_.empty()) return false;
  if (number_ == 1 && line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
  line_.resize(line_.find_last_not_of('\r') + 1);
  require(line_.find('\r') == std::string::npos, "a carriage return in the line; lines end in LF or CRLF");
  return true;
}

TextLine cut_line(std::string_view line) {
  const std::size_t wrong = first_not_utf8(line);
  require(wrong == 0, "not UTF-8 at byte ", wrong, " of the line");
  const auto tabs = std::ranges::count(line, '\t');
  require(tabs <= 1, tabs, " TABs, one stands between input and target");
  if (tabs == 0) return {line, std::nullopt};
  const std::size_t tab = line.find('\t');
  return {line.substr(0, tab), line.substr(tab + 1)};
}

/// Reads the training file, then the validation file; what it learns of the first holds for the second.
class TextDataset::Reader {
 public:
  explicit Reader(const TextDatasetOptions& options)
      : split_(options.split),
        skip_header_(options.skip_header),
        kind_(options.answers),
        decider_("the options ask for") {
    tokens_.add(kUnknown);
  }

  Examples read_training(const std::filesystem::path& path) {
    Examples examples = read(path);
    // The validation file's errors name the training file.
    if (decided_at_ > 0) decider_ = "line " + std::to_string(decided_at_) + " of " + path.string() + " has";
    for (const auto answer : std::span(examples.targets).first(answers_of_line_1_)) {
      if (answers_.count(answer) == 1) lone_answer_ = answers_.strings()[static_cast<std::size_t>(answer)];
    }
    tokens_.sort_by_frequency(1, examples.inputs);
    answers_.sort_by_value(examples.targets);
    const auto answers = answers_.strings();
    require(answers.size() > 1, path.string(), ": the only answer is ", InQuotes(answers.front()),
            "; there is nothing to learn");
    return examples;
  }

  Vocabulary vocabulary() const {
    return {tokens_.strings(), answers_.strings(), kind_ == Answers::sequence, split_, 0};
  }

  Examples read(const std::filesystem::path& path) {
    Examples examples;
    std::ifstream stream = open_file(path);
    LineReader lines(stream);
    try {
      if (skip_header_) lines.next();
      while (lines.next()) add(lines.line(), lines.number(), examples);
      if (kind_ == Answers::automatic && examples.size() > 0) settle(Answers::sequence, path.string() + " has");
    } catch (const Error& error) {
      fail(path.string(), ":", blamed_.value_or(lines.number()), ": ", error.what());
    }
    require(examples.size() > 0, path.string(), ": no examples, which are lines of an input, a TAB and a target");
    return examples;
  }

  std::int64_t unknown_tokens() const { return tokens_.missed(); }
  std::int64_t unknown_answers() const { return answers_.missed(); }
  const std::optional<std::string>& lone_answer() const { return lone_answer_; }

 private:
  /// How many tokens a line has on both sides, and whether its target has only spaces.
  struct Sizes {
    std::size_t inputs, targets;
    bool blank;
  };
  struct Misfit {
    std::int64_t line;
    Sizes sizes;
  };

  void add(std::string_view line, std::int64_t number, Examples& examples) {
    if (trimmed(line).empty()) return;
    const auto [input, target] = cut_line(line);
    require(target.has_value(), "no TAB between input and target");
    const auto inputs = split_text(input, split_);
    const auto targets = split_text(*target, split_);
    const auto label = trimmed(*target);
    require(!inputs.empty(), "the input has no tokens");
    require(std::ssize(inputs) <= kLongestInput, "the input has ", count_of(inputs.size()), ", more than ",
            kLongestInput);
    require(!targets.empty(), "the target has no tokens");
    follow_kind({inputs.size(), targets.size(), label.empty()}, number);

    for (const auto token : inputs) examples.inputs.push_back(tokens_.number(token).value_or(0));
    examples.begins.push_back(examples.inputs.size());
    // While the kind is open there is one answer, which is the label for both kinds unless that is a space.
    if (kind_ == Answers::token || label.empty()) {
      for (const auto token : targets) add_answer(token, examples);
    } else {
      add_answer(label, examples);
    }
    if (std::ssize(inputs) > examples.longest) {
      examples.longest = std::ssize(inputs);
      examples.line_of_longest = number;
    }
    if (number == 1) answers_of_line_1_ = examples.targets.size();
  }

  void add_answer(std::string_view answer, Examples& examples) {
    constexpr auto kUnknownNumber = static_cast<std::int32_t>(kUnknownAnswer);
    examples.targets.push_back(answers_.number(answer).value_or(kUnknownNumber));
  }

  bool fits(const Sizes& sizes, Answers kind) const {
    if (kind == Answers::token) return sizes.targets == sizes.inputs;
    return split_ == Split::chars ? !sizes.blank : sizes.targets == 1;
  }

  /// Lets the line decide on the kind, if it can and that is open; throws Error when it does not fit.
  void follow_kind(const Sizes& sizes, std::int64_t line) {
    if (kind_ != Answers::automatic) {
      if (!fits(sizes, kind_)) refuse(sizes);
      return;
    }
    require(fits(sizes, Answers::token) || fits(sizes, Answers::sequence), "the target has ", count_of(sizes.targets),
            " for ", sizes.inputs, " of the input; it is one label or has as many tokens as the input");
    if (sizes.inputs > 1) {
      decided_at_ = line;
      settle(fits(sizes, Answers::token) ? Answers::token : Answers::sequence, "line " + std::to_string(line) + " has");
      return;
    }
    if (!misfit_for_token_ && !fits(sizes, Answers::token)) misfit_for_token_ = {line, sizes};
    if (!misfit_for_sequence_ && !fits(sizes, Answers::sequence)) misfit_for_sequence_ = {line, sizes};
  }

  /// Decides on the kind; throws Error when an earlier line does not fit.
  void settle(Answers kind, const std::string& decider) {
    kind_ = kind;
    decider_ = decider;
    const auto& misfit = kind == Answers::token ? misfit_for_token_ : misfit_for_sequence_;
    if (!misfit) return;
    blamed_ = misfit->line;
    refuse(misfit->sizes);
  }

  [[noreturn]] void refuse(const Sizes& sizes) const {
    const bool per_token = kind_ == Answers::token;
    const std::string rule = decider_ + " one answer for " + (per_token ? "each token" : "the whole sequence");
    if (!per_token && sizes.blank) fail("the target has only spaces; ", rule);
    fail("the target has ", count_of(sizes.targets), " for ", sizes.inputs, " of the input; ", rule);
  }

  Split split_;
  bool skip_header_;
  Answers kind_;  // automatic: still open
  Numbering tokens_{"tokens"}, answers_{"answers"};
  std::string decider_;  // who decided on the kind, as the beginning of a sentence
  std::int64_t decided_at_ = 0;
  std::size_t answers_of_line_1_ = 0;
  std::optional<std::string> lone_answer_;
  std::optional<std::int64_t> blamed_;  // the line an error is about, unless the one being read
  std::optional<Misfit> misfit_for_token_, misfit_for_sequence_;  // the first lines that do not fit a kind still open
};

TextDataset::TextDataset(const TextDatasetOptions& options) {
  Reader reader(options);
  train_ = reader.read_training(options.train);
  vocabulary_ = reader.vocabulary();
  valid_ = reader.read(options.valid);
  unknown_tokens_ = reader.unknown_tokens();
  unknown_answers_ = reader.unknown_answers();
  require(unknown_answers_ < std::ssize(valid_.targets), options.valid.string(), ": none of its answers is in ",
          options.train.string(), "; there is nothing to judge by");
  lone_answer_ = reader.lone_answer();
  const auto longest = [](const std::filesystem::path& path, const Examples& examples) {
    return path.string() + ":" + std::to_string(examples.line_of_longest) + " with " +
           count_of(static_cast<std::size_t>(examples.longest));
  };
  longest_examples_ = longest(options.train, train_) + ", " + longest(options.valid, valid_);
  hash();
  evaluates_unseen_ = find_unseen();
}

void TextDataset::hash() {
  std::uint64_t state = 0;
  const auto add = [&state](auto word) { state = hash_with(state, static_cast<std::uint64_t>(word)); };
  const auto add_all = [&add](const auto& values) {
    add(values.size());
    for (const auto value : values) add(value);
  };
  add(vocabulary_->per_sequence());
  add(vocabulary_->split());
  for (const auto* strings : {&vocabulary_->tokens(), &vocabulary_->answers()}) {
    add(strings->size());
    for (const auto& string : *strings) add_all(string);
  }
  for (const auto* examples : {&train_, &valid_}) {
    add_all(examples->begins);
    add_all(examples->inputs);
    add_all(examples->targets);
    (examples == &train_ ? training_fingerprint_ : fingerprint_) = state;
  }
}

bool TextDataset::find_unseen() const {
  const auto hash_of = [](const Examples& examples, std::size_t i) {
    std::uint64_t state = 0;
    for (auto at = examples.begins[i]; at < examples.begins[i + 1]; ++at) {
      state = hash_with(state, static_cast<std::uint64_t>(examples.inputs[at]));
    }
    return state;
  };
  std::unordered_set<std::uint64_t> unseen;
  for (std::size_t i = 0; i + 1 < valid_.begins.size(); ++i) unseen.insert(hash_of(valid_, i));
  for (std::size_t i = 0; i + 1 < train_.begins.size() && !unseen.empty(); ++i) unseen.erase(hash_of(train_, i));
  return !unseen.empty();
}

const std::vector<std::uint64_t>& TextDataset::order(std::uint64_t seed, std::int64_t epoch) const {
  auto& [seed_of, epoch_of, indices] = order_;
  if (seed_of == seed && epoch_of == epoch) return indices;
  seed_of = seed;
  epoch_of = epoch;
  indices.resize(static_cast<std::size_t>(train_.size()));
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  // Fisher and Yates, not std::shuffle, whose order differs between libraries.
  SplitMix64 random = generator_at(seed, epoch);
  for (std::size_t i = indices.size(); i > 1; --i) std::swap(indices[i - 1], indices[random() % i]);
  return indices;
}

Example TextDataset::Examples::at(std::uint64_t index, bool per_sequence) const {
  const auto begin = static_cast<std::ptrdiff_t>(begins[index]), end = static_cast<std::ptrdiff_t>(begins[index + 1]);
  const auto first = per_sequence ? static_cast<std::ptrdiff_t>(index) : begin;
  const auto last = per_sequence ? first + 1 : end;
  return {{inputs.begin() + begin, inputs.begin() + end}, {targets.begin() + first, targets.begin() + last}};
}

std::vector<Example> TextDataset::training_examples(std::uint64_t seed, std::int64_t first, std::int64_t size) const {
  require_range(first, size, INT64_MAX);
  std::vector<Example> examples;
  for (std::int64_t n = first; n < first + size; ++n) {
    const auto& indices = order(seed, n / train_.size());
    examples.push_back(train_.at(indices[static_cast<std::size_t>(n % train_.size())], vocabulary_->per_sequence()));
  }
  return examples;
}

std::vector<Example> TextDataset::evaluation_examples(std::int64_t first, std::int64_t size) const {
  require_range(first, size, valid_.size());
  std::vector<Example> examples;
  for (std::int64_t n = first; n < first + size; ++n) {
    examples.push_back(valid_.at(static_cast<std::uint64_t>(n), vocabulary_->per_sequence()));
  }
  return examples;
}

}  // namespace prenorm
