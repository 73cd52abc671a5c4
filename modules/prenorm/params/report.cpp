#include "prenorm/params/report.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "prenorm/error.h"

namespace prenorm::params {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

double percent(Count part, Count whole) {
  return 100.0 * static_cast<double>(part.value()) / static_cast<double>(whole.value());
}

std::string decimals(double value, int places, bool sign = false) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), sign ? "%+.*f" : "%.*f", places, value);
  return text.data();
}

std::string share(Count part, Count whole) {
  return whole == 0 ? "" : decimals(percent(part, whole), 1) + " %";
}

/// "3.7 % less" or "3.7 % more".
std::string off(double off_percent) {
  return decimals(std::abs(off_percent), 1) + (off_percent < 0 ? " % less" : " % more");
}

std::string scaled(double value, double step, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  for (; value >= step * 0.9995 && unit + 1 != units.end(); ++unit) value /= step;
  const int places = unit == units.begin() ? 0 : value < 10 ? 2 : 1;
  return decimals(value, places) + " " + *unit;
}

std::string binary_size(Count bytes) {
  return scaled(static_cast<double>(bytes.value()), 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

/// Columns aligned, the first `texts` of them to the left; names of a file cannot bring in control characters.
std::string aligned(std::vector<Row> rows, std::size_t texts) {
  std::vector<std::size_t> widths;
  for (Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (char& letter : row[i]) letter = std::iscntrl(static_cast<unsigned char>(letter)) ? '?' : letter;
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      if (i > 0) line.append(2, ' ');
      line.append(i < texts ? row[i] : space).append(i < texts ? space : row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

void add_rows(std::vector<Row>& rows, const Component& component, Count copies, Count total, int level, int depth) {
  for (const Component& child : component.children) {
    const Count parameters = copies * child.total();
    if (parameters == 0 && child.formula.empty()) continue;
    const Count all = copies * child.copies;
    rows.push_back({std::string(static_cast<std::size_t>(2 * (level - 1)), ' ') + child.name, child.formula,
                    all > 1 ? grouped(child.one()) : "", all > 1 ? std::to_string(all.value()) : "",
                    grouped(parameters), share(parameters, total)});
    if (level < depth) add_rows(rows, child, all, total, level + 1, depth);
  }
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

/// Bytes of the weights, and of training: weights, gradients and AdamW's two moments in float32 (4 + 4 + 8), or
/// bfloat16 weights and gradients beside a float32 copy and moments (2 + 2 + 12).
std::vector<std::pair<const char*, Count>> memory(Count total) {
  return {{"float32", Count(4) * total},     {"bfloat16", Count(2) * total},       {"int8", total},
          {"int4", (total.value() + 1) / 2}, {"adamw_float32", Count(16) * total}, {"adamw_mixed", Count(16) * total}};
}

double label_off(const SizeLabel& label, Count total) {
  return percent(total - label.claimed, label.claimed);
}

std::string verdict(const SizeLabel& label, const Report& report) {
  const double difference = label_off(label, report.total);
  const char* judgement = std::abs(difference) <= 10 ? "fair" : "misleading";
  return "\"" + label.text + "\" in the name: it is " + rounded(report.total) + ", " + off(difference) + "; " +
         judgement;
}

std::string rule_text(const Report& report) {
  const bool one_width = *report.rule == Count(12) * report.d_model * report.d_model * report.layers;
  return "L = " + grouped(report.layers) + (one_width ? ", d = " : ", d up to ") + grouped(report.d_model);
}

std::string heading(const Report& report) {
  std::string line = report.input + ": " + report.source;
  for (const std::string& part : {report.model_type, report.architecture}) {
    if (!part.empty()) line += ", " + part;
  }
  return line + (report.exact ? "" : " (not exact: see the notes)") + "\n\n";
}

std::string candidate_table(const Report& report) {
  std::vector<Row> rows{{"d", "L", "parameters", "error"}};
  for (const Candidate& candidate : report.candidates) {
    rows.push_back({grouped(candidate.config.d_model), grouped(candidate.config.num_layers), grouped(candidate.total),
                    decimals(candidate.error_percent, 2, true) + " %"});
  }
  return aligned(rows, 0) + "\n";
}

Json tree_json(const Component& component) {
  Json children = Json::array();
  for (const Component& child : component.children) children.push_back(tree_json(child));
  return {{"name", component.name},
          {"formula", component.formula},
          {"copies", component.copies.value()},
          {"parameters", component.total().value()},
          {"children", children}};
}

template <typename Optional>
Json nullable(const Optional& count) {
  return count ? Json(count->value()) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json report_json(const Report& report) {
  Json by_dtype = Json::object();
  for (const auto& [dtype, count] : report.by_dtype) by_dtype[dtype] = count.value();
  Json bytes_for = Json::object();
  for (const auto& [name, bytes] : memory(report.total)) bytes_for[name] = bytes.value();
  Json differences = Json::array();
  for (const auto& [reason, elements] : report.differences) {
    differences.push_back({{"reason", reason}, {"elements", elements.value()}});
  }
  Json candidates = Json::array();
  for (const Candidate& candidate : report.candidates) {
    candidates.push_back({{"d_model", candidate.config.d_model},
                          {"num_layers", candidate.config.num_layers},
                          {"total", candidate.total.value()},
                          {"error_percent", candidate.error_percent}});
  }
  Json label = nullptr;
  if (const auto found = size_label(report)) {
    label = {
        {"text", found->text}, {"claimed", found->claimed.value()}, {"off_percent", label_off(*found, report.total)}};
  }
  const bool extras = report.rule && report.total > 0;
  return {{"input", report.input},
          {"source", report.source},
          {"exact", report.exact},
          {"model_type", text_or_null(report.model_type)},
          {"architecture", text_or_null(report.architecture)},
          {"total", report.total.value()},
          {"active", nullable(report.active)},
          {"embedding", nullable(report.embedding)},
          {"non_embedding", report.embedding ? Json((report.total - *report.embedding).value()) : Json(nullptr)},
          {"buffers", report.buffers.value()},
          {"bytes", nullable(report.bytes)},
          {"by_dtype", by_dtype},
          {"rule_12d2L", nullable(report.rule)},
          {"extras_percent", extras ? Json(percent(report.total - *report.rule, report.total)) : Json(nullptr)},
          {"layers", report.rule ? Json(report.layers.value()) : Json(nullptr)},
          {"d_model", report.rule ? Json(report.d_model.value()) : Json(nullptr)},
          {"label", label},
          {"memory", bytes_for},
          {"config_total", nullable(report.config_total)},
          {"file_total", nullable(report.file_total)},
          {"differences", differences},
          {"candidates", candidates},
          {"components", tree_json(report.tree)},
          {"notes", report.notes}};
}

std::string extras_text(const Report& report) {
  return "extras " + decimals(percent(report.total - *report.rule, report.total), 1) + " %";
}

}  // namespace

std::string grouped(Count count) {
  std::string digits = std::to_string(count.value());
  const std::ptrdiff_t sign = count < 0 ? 1 : 0;
  for (std::ptrdiff_t at = std::ssize(digits) - 3; at > sign; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string rounded(Count count) {
  std::string text = scaled(static_cast<double>(count.value()), 1000, {"", "K", "M", "B", "T"});
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::optional<SizeLabel> size_label(const Report& report) {
  if (report.source == "dimensions") return std::nullopt;
  std::filesystem::path rest = std::filesystem::path(report.input).lexically_normal();
  if (!rest.has_filename()) rest = rest.parent_path();
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

std::string table(const Report& report, int depth) {
  std::vector<Row> rows{{"component", "formula", "one", "copies", "parameters", "share"}};
  add_rows(rows, report.tree, 1, report.total, 1, depth);
  rows.push_back({"total", "", "", "", grouped(report.total), rounded(report.total)});
  if (report.active && *report.active != report.total) {
    rows.push_back({"active for a token", "", "", "", grouped(*report.active), share(*report.active, report.total)});
  }
  if (report.embedding && *report.embedding > 0) {
    const Count rest = report.total - *report.embedding;
    rows.push_back(
        {"in embedding tables", "", "", "", grouped(*report.embedding), share(*report.embedding, report.total)});
    rows.push_back({"without them", "", "", "", grouped(rest), share(rest, report.total)});
  }
  if (report.rule && report.total > 0) {
    rows.push_back({"12 d^2 L", rule_text(report), "", "", grouped(*report.rule), extras_text(report)});
  }
  if (report.file_total) {
    rows.push_back({"parameters in the file", "", "", "", grouped(*report.file_total), rounded(*report.file_total)});
  }
  if (report.buffers > 0) rows.push_back({"buffers in the file", "", "", "", grouped(report.buffers), ""});
  for (const auto& [dtype, count] : report.by_dtype) {
    rows.push_back({"stored as " + dtype, "", "", "", grouped(count), ""});
  }
  if (report.bytes)
    rows.push_back({"bytes of all tensors", "", "", "", grouped(*report.bytes), binary_size(*report.bytes)});

  std::string text = heading(report);
  if (!report.candidates.empty()) text += candidate_table(report);
  text += aligned(rows, 2) + "\n";
  if (const auto label = size_label(report)) text += verdict(*label, report) + "\n";
  std::string line;
  for (const auto& [name, bytes] : memory(report.total)) {
    if (std::string_view(name) == "adamw_mixed") continue;
    line += (line.empty() ? "" : ", ") +
            std::string(name == std::string_view("adamw_float32") ? "training with AdamW" : name) + " " +
            binary_size(bytes);
  }
  text += "memory of the weights: " + line + " (16 bytes a parameter, all float32 or mixed with bfloat16)\n";
  for (const auto& [reason, elements] : report.differences) {
    text += "difference " + std::string(elements > 0 ? "+" : "") + grouped(elements) + ": " + reason + "\n";
  }
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  return text;
}

std::string comparison(const std::vector<Report>& reports) {
  std::vector<Row> rows{{"input", "source", "type", "parameters", "", "active", "in tables", "in file", "buffers",
                         "bytes", "12 d^2 L", "extras", "label"}};
  for (const Report& report : reports) {
    const auto label = size_label(report);
    rows.push_back({report.input, report.source, report.model_type, grouped(report.total), rounded(report.total),
                    report.active ? grouped(*report.active) : "", report.embedding ? grouped(*report.embedding) : "",
                    report.file_total ? grouped(*report.file_total) : "", grouped(report.buffers),
                    report.bytes ? grouped(*report.bytes) : "", report.rule ? grouped(*report.rule) : "",
                    report.rule && report.total > 0 ? extras_text(report).substr(7) : "",
                    label ? label->text + ": " + off(label_off(*label, report.total)) : ""});
  }
  return aligned(rows, 3);
}

std::string json(const std::vector<Report>& reports) {
  if (reports.size() == 1)
    return report_json(reports.front()).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  Json all = Json::array();
  for (const Report& report : reports) all.push_back(report_json(report));
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace prenorm::params
