#include "prenorm/params/report.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "prenorm/error.h"

namespace prenorm::params {
namespace {

double percent(Count part, Count whole) {
  return 100.0 * static_cast<double>(part.value()) / static_cast<double>(whole.value());
}

/// "7b", "0.5B" or "8x7B" at the start of a word, alone or before a file's extension.
std::optional<SizeLabel> label_in(std::string_view word) {
  std::size_t at = 0;
  const auto is_digit = [&](std::size_t i) {
    return i < word.size() && std::isdigit(static_cast<unsigned char>(word[i]));
  };
  const auto digits = [&] {
    const std::size_t begin = at;
    while (is_digit(at)) ++at;
    return std::string(word.substr(begin, at - begin));
  };
  const auto letter = [&] { return at < word.size() ? std::tolower(static_cast<unsigned char>(word[at])) : 0; };
  std::string number = digits();
  std::string experts = "1";
  if (letter() == 'x') {
    ++at;
    experts = std::exchange(number, digits());
  }
  if (number.empty() || number.size() > 4 || experts.empty() || experts.size() > 3) return std::nullopt;
  if (letter() == '.' && is_digit(at + 1)) {
    ++at;
    number += ".";
    number += digits();
  }
  if (letter() == 0 || std::string_view("kmbt").find(static_cast<char>(letter())) == std::string_view::npos) {
    return std::nullopt;
  }
  number += word[at++];
  if (at < word.size() && word[at] != '.') return std::nullopt;
  if (number.size() > 10 || number.find_first_of("123456789") == std::string::npos || std::stoi(experts) == 0) {
    return std::nullopt;
  }
  return SizeLabel{std::string(word.substr(0, at)), Count(std::stoi(experts)) * parse_total(number)};
}

Count widest(const Component& component) {
  Count width = component.layer_width;
  for (const Component& child : component.children) width = std::max(width, widest(child));
  return width;
}

void take_tree(Report& report, const Component& tree) {
  report.tree = tree;
  report.total = tree.total();
  report.active = tree.active();
  report.embedding = tree.embeddings();
  report.layers = tree.layers();
  report.d_model = widest(tree);
  if (report.layers > 0) report.rule = tree.rule();
}

}  // namespace

double SizeLabel::off_percent(Count total) const {
  return percent(total - claimed, claimed);
}

std::optional<double> Report::extras_percent() const {
  if (!rule || total == 0) return std::nullopt;
  return percent(total - *rule, total);
}

std::vector<std::pair<const char*, Count>> memory(Count total) {
  return {{"float32", Count(4) * total},     {"bfloat16", Count(2) * total},       {"int8", total},
          {"int4", (total.value() + 1) / 2}, {"adamw_float32", Count(16) * total}, {"adamw_mixed", Count(16) * total}};
}

std::optional<SizeLabel> size_label(const Report& report) {
  if (report.source == "dimensions") return std::nullopt;
  // As far up as the names tell: what ".." is only the system knows.
  std::filesystem::path rest;
  for (const auto& part : std::filesystem::path(report.input)) {
    if (part == "..") rest.clear();
    if (part != "." && part != ".." && !part.empty()) rest /= part;
  }
  // The file and its folder; of the cache of the Hugging Face hub, the folder above the snapshots.
  const bool cached = rest.parent_path().parent_path().filename() == "snapshots";
  for (int up = 0; up < (cached ? 4 : 2) && !rest.empty(); ++up, rest = rest.parent_path()) {
    const std::string name = rest.filename().string();
    for (std::size_t begin = 0; begin < name.size();) {
      const std::size_t end = std::min(name.find_first_of("-_ ", begin), name.size());
      if (const auto label = label_in(std::string_view(name).substr(begin, end - begin))) return label;
      begin = end + 1;
    }
  }
  return std::nullopt;
}

Report report_config(const std::string& input, const ConfigCount& count) {
  Report report{.input = input,
                .source = "config",
                .exact = count.exact,
                .model_type = count.model_type,
                .architecture = count.architecture};
  take_tree(report, count.tree);
  report.config_total = report.total;
  report.notes = count.notes;
  return report;
}

Report report_dimensions(const std::string& input, const ModelConfig& config) {
  Report report{.input = input, .source = "dimensions"};
  const Component tree = count_model(config);
  take_tree(report, tree);
  const auto layers = std::find_if(tree.children.begin(), tree.children.end(),
                                   [](const Component& part) { return part.layer_width > 0; });
  const Count layer = layers->one();
  const Count lesson = lesson_layer(config);
  std::string note = "one layer: " + grouped(layer) + " parameters";
  if (layer != lesson) {
    note += "; the lesson's rounded 4 d^2 + 2 d F + 4 d is " + grouped(lesson) + " and leaves out " +
            grouped(layer - lesson) + " biases";
  }
  report.notes.push_back(note);
  return report;
}

Report report_solution(const std::string& input, const std::vector<Candidate>& candidates, Count asked) {
  require(!candidates.empty(), "no model of these dimensions is as small as ", grouped(asked), " parameters");
  Report report = report_dimensions(input, candidates.front().config);
  report.exact = candidates.front().total == asked;
  report.candidates = candidates;
  report.notes.insert(report.notes.begin(), "asked for " + grouped(asked) + "; the nearest candidate is shown");
  return report;
}

}  // namespace prenorm::params
