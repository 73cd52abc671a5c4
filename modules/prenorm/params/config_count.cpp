#include "prenorm/params/config_count.h"

#include <algorithm>
#include <sstream>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/params/families.h"

namespace prenorm::params {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kMaxConfigBytes = 8 << 20;  // the longest maps of labels take 2 MiB

std::string known_types() {
  std::string line = "prenorm";
  for (const FamilyRow& family : families()) line += ", " + std::string(family.model_type);
  return line;
}

[[noreturn]] void fail_unknown(const Fields& fields, const std::string& type) {
  const Count estimate = fields.estimate();
  const std::string guess = estimate > 0 ? " 12 d^2 L is " + std::to_string(estimate.value()) + "." : "";
  fail("unknown model_type \"", type.substr(0, 80), "\".", guess, " Known: ", known_types());
}

}  // namespace

// Named and written as in the lesson's table: d the width, F the inner width, V the vocabulary.
Component count_model(const ModelConfig& config) {
  const Count d = config.d_model;
  const Count ff = config.d_ff > 0 ? Count(config.d_ff) : Count(4) * d;
  const bool bias = config.attention_bias;
  const Count heads = config.num_heads;
  Component attend = attention("attention", {.d = d,
                                             .heads = heads,
                                             .kv_heads = heads,
                                             .head_size = config.d_model / config.num_heads,
                                             .bias = bias,
                                             .output_bias = bias});
  attend.formula = bias ? "4 d^2 + 4 d" : "4 d^2";
  Component forward = feed_forward("feed-forward", d, ff, config.feed_forward_bias);
  forward.formula = config.feed_forward_bias ? "2 d F + F + d" : "2 d F";
  Component norms = group("two LayerNorms", {norm("norm_1", d, config.norm_bias), norm("norm_2", d, config.norm_bias)});
  norms.formula = config.norm_bias ? "2 * 2 d" : "2 * d";

  Parts parts;
  const auto add_table = [&](const char* name, Count rows, const char* formula) {
    if (rows == 0) return;
    parts.push_back(table(name, rows, d));
    parts.back().formula = formula;
  };
  add_table("token embedding", config.vocab_size, "V d");
  if (config.position == Position::learned) add_table("position embedding", config.max_positions, "P d");
  add_table("segment embedding", config.num_segments, "S d");
  if (config.embedding_norm) parts.push_back(norm("embedding norm", d, config.norm_bias));
  parts.push_back(stack("layers", config.num_layers, d, {attend, forward, norms}));
  if (config.final_norm.value_or(config.norm_placement == NormPlacement::pre)) {
    parts.push_back(norm("final norm", d, config.norm_bias));
    parts.back().formula = config.norm_bias ? "2 d" : "d";
  }
  if (config.head != Head::none) {
    parts.push_back(config.tie_head ? output("head", d, config.num_classes, /*tied=*/true, /*bias=*/true)
                                    : linear("head", d, config.num_classes));
    parts.back().formula = config.tie_head ? "tied + C" : "d C + C";
  }
  return group("model", parts);
}

ConfigCount count_config(std::string_view json, const ConfigOptions& options) {
  Fields fields(json);
  if (!options.architecture.empty()) fields.choose_head(options.architecture);
  const std::string in_file = fields.model_type();
  const std::string type = options.model_type.empty() ? in_file : options.model_type;
  if (type.empty()) {
    if (!fields.has_dimensions()) throw NoModel("no model dimensions found: neither model_type nor a width and layers");
    fail("model_type is missing: give it with --model-type (", known_types(), ")");
  }
  if (!in_file.empty() && type != in_file) fields.note("counted as " + type + ", though model_type is " + in_file);

  ConfigCount count{.model_type = type, .architecture = fields.architecture()};
  if (type == "prenorm") {
    count.tree = count_model(ModelConfig::from_json(json));
    return count;
  }
  const auto& all = families();
  if (type.starts_with("prenorm ")) throw NoModel("is a \"" + type.substr(0, 80) + "\", no model");
  const auto family = std::ranges::find(all, type, &FamilyRow::model_type);
  if (family == all.end()) fail_unknown(fields, type);
  if (in_file.empty() || type == in_file) fields.expect_classes(family->classes);
  count.tree = family->count(fields);
  count.tree.total();  // an overflow shows here
  fields.doubt_unread();
  count.exact = fields.exact();
  count.notes = fields.notes();
  return count;
}

std::string read_config(const fs::path& file) {
  require(!fs::exists(file) || fs::is_regular_file(file), file.string(), ": is not a regular file");
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(file, ignored);
  if (!ignored && size > kMaxConfigBytes) {
    throw NoModel(file.string() + ": " + std::to_string(size) + " bytes are too many for a config.json");
  }
  std::string text = read_file(file);
  require(!text.empty(), file.string(), ": the file is empty");
  require(!text.starts_with("version https://git-lfs"), file.string(), ": is a Git LFS pointer, not the file itself");
  return text;
}

ConfigCount load_config(const fs::path& path, const ConfigOptions& options) {
  const fs::path file = fs::is_directory(path) ? path / "config.json" : path;
  const std::string text = read_config(file);
  try {
    return count_config(text, options);
  } catch (const NoModel& error) {
    throw NoModel(file.string() + ": " + error.what());
  } catch (const Error& error) {
    fail(file.string(), ": ", error.what());
  }
}

std::vector<std::string> known_heads(std::string_view json, const ConfigOptions& options) {
  Fields fields(json);
  const std::string type = options.model_type.empty() ? fields.model_type() : options.model_type;
  const auto family = std::ranges::find(families(), type, &FamilyRow::model_type);
  if (family == families().end()) return {};
  fields.choose_head("Model");
  family->count(fields);
  return fields.heads_seen();
}

}  // namespace prenorm::params
