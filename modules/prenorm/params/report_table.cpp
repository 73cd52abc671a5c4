#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "prenorm/params/report.h"

namespace prenorm::params {
namespace {

using Row = std::vector<std::string>;

std::string decimals(double value, int places, bool sign = false) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), sign ? "%+.*f" : "%.*f", places, value);
  return text.data();
}

std::string share(Count part, Count whole) {
  return whole == 0
             ? ""
             : decimals(100.0 * static_cast<double>(part.value()) / static_cast<double>(whole.value()), 1) + " %";
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

/// Names from a file or a path cannot bring control characters to a terminal.
std::string printable(std::string text) {
  for (char& letter : text) letter = std::iscntrl(static_cast<unsigned char>(letter)) ? '?' : letter;
  return text;
}

/// Columns aligned, the first `texts` of them to the left.
std::string aligned(std::vector<Row> rows, std::size_t texts) {
  std::vector<std::size_t> widths;
  for (Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(row[i]);
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

std::string verdict(const SizeLabel& label, const Report& report) {
  const double difference = label.off_percent(report.total);
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
  return printable(line) + (report.exact ? "" : " (not exact: see the notes)") + "\n\n";
}

std::string candidate_table(const Report& report) {
  std::vector<Row> rows{{"d", "L", "parameters", "error"}};
  for (const Candidate& candidate : report.candidates) {
    rows.push_back({grouped(candidate.config.d_model), grouped(candidate.config.num_layers), grouped(candidate.total),
                    decimals(candidate.error_percent, 2, true) + " %"});
  }
  return aligned(rows, 0) + "\n";
}

/// "31.7 %"; empty without a rule.
std::string extras_text(const Report& report) {
  const std::optional<double> extras = report.extras_percent();
  return extras ? decimals(*extras, 1) + " %" : "";
}

/// The totals below the parts.
void add_summary(std::vector<Row>& rows, const Report& report) {
  const auto add = [&](const std::string& name, Count count, const std::string& last, const std::string& formula = "") {
    rows.push_back({name, formula, "", "", grouped(count), last});
  };
  const bool both = report.config_total && report.file_total;
  if (!both || report.total != *report.config_total) add("total", report.total, rounded(report.total));
  if (both) add("total by the config", *report.config_total, rounded(*report.config_total));
  if (both) add("parameters in the file", *report.file_total, rounded(*report.file_total));
  if (report.active && *report.active != report.total) {
    add("active for a token", *report.active, share(*report.active, report.total));
  }
  if (report.embedding && *report.embedding > 0) {
    const Count rest = report.total - *report.embedding;
    add("in embedding tables", *report.embedding, share(*report.embedding, report.total));
    add("without them", rest, share(rest, report.total));
  }
  if (report.extras_percent()) {
    add("12 d^2 L", *report.rule, extras_text(report).insert(0, "extras "), rule_text(report));
  }
  if (report.buffers > 0) add("no parameters", report.buffers, "");
  for (const auto& [dtype, count] : report.by_dtype) add("stored as " + dtype, count, "");
  if (report.bytes) add("bytes of all tensors", *report.bytes, binary_size(*report.bytes));
}

/// One line: the weights in the usual types, and training.
std::string memory_text(Count total) {
  std::string line = "memory of the weights: ";
  Count training = 0;
  for (const auto& [name, bytes] : memory(total)) {
    if (std::string_view(name).starts_with("adamw")) {
      training = bytes;
    } else {
      line += std::string(name) + " " + binary_size(bytes) + ", ";
    }
  }
  return line + "training with AdamW " + binary_size(training) +
         " (16 bytes a parameter, all float32 or mixed with bfloat16)\n";
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

std::string table(const Report& report, int depth) {
  std::vector<Row> rows{{"component", "formula", "one", "copies", "parameters", "share"}};
  add_rows(rows, report.tree, 1, report.total, 1, depth);
  add_summary(rows, report);
  std::string text = heading(report);
  if (!report.candidates.empty()) text += candidate_table(report);
  text += aligned(rows, 2) + "\n";
  if (const auto label = size_label(report)) text += verdict(*label, report) + "\n";
  text += memory_text(report.total);
  for (const auto& [reason, elements] : report.differences) {
    const std::string sign = elements > 0 ? "+" : "";
    text += "difference " + sign + grouped(elements) + ": " + printable(reason) + "\n";
  }
  for (const std::string& note : report.notes) text += "note: " + printable(note) + "\n";
  return text;
}

std::string comparison(const std::vector<Report>& reports) {
  std::vector<Row> rows{{"input", "source", "type", "parameters", "", "active", "in tables", "in file", "buffers",
                         "bytes", "12 d^2 L", "extras", "label"}};
  for (const Report& report : reports) {
    const auto label = size_label(report);
    rows.push_back({report.input, report.source + (report.exact ? "" : ", not exact"), report.model_type,
                    grouped(report.total), rounded(report.total), report.active ? grouped(*report.active) : "",
                    report.embedding ? grouped(*report.embedding) : "",
                    report.file_total ? grouped(*report.file_total) : "", grouped(report.buffers),
                    report.bytes ? grouped(*report.bytes) : "", report.rule ? grouped(*report.rule) : "",
                    extras_text(report), label ? label->text + ": " + off(label->off_percent(report.total)) : ""});
  }
  return aligned(rows, 3);
}

}  // namespace prenorm::params
