#include "prenorm/params/count_path.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/params/blocks.h"
#include "prenorm/params/file_count.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm::params {
namespace fs = std::filesystem;
namespace {

/// Whether a file is to be read as a config.json: by its name, or because it starts like JSON.
bool is_config(const fs::path& path) {
  if (fs::exists(path) && !fs::is_regular_file(path)) return false;  // a pipe: not to be waited for
  const std::string name = path.filename().string();
  std::array<char, 64> bytes{};
  std::ifstream stream(path, std::ios::binary);
  stream.read(bytes.data(), bytes.size());
  std::string_view start(bytes.data(), static_cast<std::size_t>(stream.gcount()));
  if (name.ends_with(".index.json") || start.starts_with("version https://git-lfs")) return false;
  if (name.ends_with(".json")) return true;
  if (start.size() > 8 && start[7] == '\0') return false;  // the length of a safetensors header
  if (start.starts_with("\xEF\xBB\xBF")) start.remove_prefix(3);
  const auto first = start.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && start[first] == '{';
}

/// Tensors of a training or an example, not of a model.
bool is_state(const std::string& name) {
  for (const char* start : {"example.", "optimizer", "rng_state", "scheduler", "training.", "training_args"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

/// Text, tables, tokenizers, by their names.
bool is_text(const fs::path& path) {
  const std::string end = path.extension().string();
  for (const char* known : {".csv", ".jsonl", ".log", ".md", ".model", ".py", ".tsv", ".txt", ".yaml", ".yml"}) {
    if (end == known) return true;
  }
  return false;
}

/// The weights in a folder: those of the usual names, or the only file of tensors; empty when there is none.
fs::path weights_in(const fs::path& folder, std::vector<std::string>& notes) {
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string end = entry.path().extension().string();
    if (!is_state(name) && (end == ".safetensors" || end == ".pt" || end == ".pth" || end == ".bin"))
      found.push_back(entry.path());
  }
  if (found.size() > 1) {
    std::sort(found.begin(), found.end());
    notes.push_back(std::to_string(found.size()) + " files of tensors without an index are not counted: " +
                    found.front().filename().string() + ", ...");
  }
  return found.size() == 1 ? found.front() : fs::path();
}

/// "00072" of "model-00012-of-00072"; empty for other names and the only shard of one.
std::string shards_of(const std::string& stem) {
  const std::size_t of = stem.rfind("-of-");
  if (of == std::string::npos || of == 0 || !std::isdigit(static_cast<unsigned char>(stem[of - 1]))) return "";
  std::string number = stem.substr(of + 4);
  const bool counts = !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return counts && number.find_first_not_of('0') != std::string::npos && number != "00001" ? number : "";
}

FileCount open_and_count(const fs::path& path, const ConfigOptions& options, const Groupings& groupings) {
  const TensorFile file = TensorFile::open(path, options.entry);
  try {
    return count_file(file, groupings);
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what());
  }
}

Report report_file(const std::string& input, const fs::path& path, const ConfigOptions& options,
                   const Groupings& groupings = {}) {
  const FileCount count = open_and_count(path, options, groupings);
  Report report{.input = input, .source = "file", .exact = count.exact, .tree = count.tree};
  report.total = count.parameters;
  if (!count.has_experts) report.active = count.parameters;
  report.buffers = count.buffers;
  report.bytes = count.bytes;
  report.by_dtype = count.by_dtype;
  report.file_total = count.parameters;
  report.notes = count.notes;
  for (const Copy& copy : count.copies) {
    if (!copy.equal) continue;
    report.notes.push_back(copy.name + " is a tied duplicate of " + copy.original + ": equal where compared, " +
                           grouped(copy.elements) + " elements twice; without it the file has " +
                           grouped(count.parameters - copy.elements) + " parameters");
  }
  if (count.layers > 0) {
    report.layers = count.layers;
    report.d_model = count.d_model;
    report.rule = Count(12) * count.d_model * count.d_model * count.layers;
    report.notes.push_back("no config: d and L are read from the names and shapes of the tensors");
  }
  if (const std::string shards = shards_of(path.stem().string()); !shards.empty()) {
    report.notes.push_back("one shard of " + shards + ": the others are not counted");
  }
  return report;
}

/// Whether transformers ties the copy to its original, if their elements are equal.
bool is_tied(const Copy& copy, const Component& tree) {
  const bool stack_table = copy.original.ends_with("shared.weight") && copy.name.ends_with("embed_tokens.weight");
  return stack_table || tree.tied_elements() > 0;
}

/// What the file holds twice, where the config counts it once.
std::vector<Difference> copies_beyond(const FileCount& file, const Component& tree) {
  std::vector<Difference> differences;
  for (const Copy& copy : file.copies) {
    if (!is_tied(copy, tree)) continue;
    differences.push_back({copy.name +
                               (copy.equal ? " is a second copy of " : " is tied by the config, but differs from ") +
                               copy.original + (copy.equal ? ": tied in the config" : " in the file"),
                           copy.elements});
  }
  return differences;
}

Count sum(const std::vector<Difference>& differences) {
  Count total = 0;
  for (const Difference& difference : differences) total += difference.elements;
  return total;
}

/// Elements of the parts whose path ends with `name`.
Count elements_of(const Component& part, const std::string& path, std::string_view name) {
  if (path.ends_with(name)) return part.total();
  Count elements = 0;
  for (const Component& child : part.children) elements += elements_of(child, path + "." + child.name, name);
  return part.copies * elements;
}

/// Parts that files hold beside the class that the config names, and transformers leaves unread, or that files lack:
/// XLM-RoBERTa's and many a sentence encoder's pooler, BERT's relative positions of transformers 4, DeBERTa's heads of
/// pre-training, a table that T5 does not use.
std::vector<Difference> known_parts(const FileCount& file, const Component& tree) {
  std::vector<Difference> differences;
  for (const std::string name : {".pooler", ".distance_embedding", ".lm_predictions", ".mask_predictions",
                                 ".EncDecAttention.relative_attention_bias"}) {
    const Count more = elements_of(file.tree, "", name) - elements_of(tree, "", name);
    if (more == 0) continue;
    const std::string part = name.substr(1);
    differences.push_back({more > 0 ? "the file also holds " + part + ", which the config's class does not have"
                                    : "the file holds no " + part + ", which the config's class has",
                           more});
  }
  return differences;
}

/// Explains file - config: copies of tied weights, parts that files are known to hold or lack, another head than the
/// config names, or nothing known.
std::vector<Difference> explain(const FileCount& file, const ConfigCount& config, const std::string& json,
                                const ConfigOptions& options) {
  const Count total = config.tree.total();
  std::vector<Difference> own = copies_beyond(file, config.tree);
  if (total + sum(own) == file.parameters) return own;
  if (total == file.parameters) return {};
  std::vector<Difference> parts_too = known_parts(file, config.tree);
  parts_too.insert(parts_too.begin(), own.begin(), own.end());
  if (total + sum(parts_too) == file.parameters) return parts_too;
  for (const std::string& head : known_heads(json, options)) {
    ConfigCount other;
    try {
      other = count_config(json, {.model_type = options.model_type, .architecture = head});
    } catch (const Error&) {
      continue;  // that head needs a key which the file does not have
    }
    std::vector<Difference> differences = copies_beyond(file, other.tree);
    if (other.tree.total() + sum(differences) != file.parameters) continue;
    const std::string named = config.architecture.empty() ? "no head" : config.architecture;
    differences.push_back(
        {"the file holds the head of ..." + head + ", the config names " + named, other.tree.total() - total});
    return differences;
  }
  std::string parts;
  for (const Component& part : file.tree.children) parts += ", " + part.name + " " + grouped(part.total());
  own.push_back({"not explained; the file's parts are " + parts.substr(parts.empty() ? 0 : 2, 300),
                 file.parameters - total - sum(own)});
  return own;
}

Report report_both(const std::string& input, const fs::path& config_path, const fs::path& weights,
                   const ConfigOptions& options) {
  const std::string json = read_config(config_path);
  const ConfigCount config = load_config(config_path, options);
  const FileCount file = open_and_count(weights, options, mlx_groupings(json));
  // Elements that differ are not tied when transformers loads the file, whatever the config says (Flan-T5's head).
  ConfigCount model = config;
  for (const Copy& copy : file.copies) {
    if (copy.equal || !is_tied(copy, config.tree)) continue;
    model.tree.children.push_back(parameter(copy.name + " of its own", copy.elements));
  }
  Report report = report_config(input, model);
  report.config_total = config.tree.total();
  report.source = "config and file";
  report.file_total = file.parameters;
  report.buffers = file.buffers;
  report.bytes = file.bytes;
  report.by_dtype = file.by_dtype;
  report.differences = explain(file, config, json, options);
  const bool explained = std::none_of(report.differences.begin(), report.differences.end(),
                                      [](const auto& d) { return d.reason.starts_with("not explained"); });
  // A file of just that count settles a doubt about the config.
  report.exact = file.exact && (config.exact ? explained : report.differences.empty());
  for (const Copy& copy : file.copies) {
    if (copy.equal && copies_beyond(file, config.tree).empty()) {
      report.notes.push_back(copy.name + " equals " + copy.original + " in the file, though the config ties nothing");
    }
  }
  report.notes.insert(report.notes.end(), file.notes.begin(), file.notes.end());
  return report;
}

}  // namespace

Report count_path(const std::string& path, const ConfigOptions& options) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (fs::exists(path, ignored) && is_text(path)) {
      throw NoModel(path + ": neither a config.json nor a file of tensors");
    }
    return is_config(path) ? report_config(path, load_config(path, options)) : report_file(path, path, options);
  }
  std::vector<std::string> notes;
  const fs::path config = fs::path(path) / "config.json";
  const fs::path weights = weights_in(path, notes);
  const bool has_config = fs::exists(config);
  if (!has_config && weights.empty()) {
    throw NoModel(path + ": the folder holds neither a config.json nor " +
                  (notes.empty() ? "a file of tensors" : "an index for its files of tensors"));
  }
  Report report;
  if (!has_config) {
    report = report_file(path, weights, options);
  } else if (weights.empty()) {
    report = report_config(path, load_config(config, options));
  } else {
    std::string text, refused;
    try {
      text = read_config(config);
      load_config(config, options);
    } catch (const Error& error) {
      refused = error.what();
    }
    report = refused.empty() ? report_both(path, config, weights, options)
                             : report_file(path, weights, options, mlx_groupings(text));
    if (!refused.empty()) notes.push_back("the file alone is counted: " + refused);
  }
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  return report;
}

PathCounts count_paths(const std::vector<std::string>& paths, const ConfigOptions& options) {
  PathCounts counts;
  for (const std::string& path : paths) {
    if (is_state(fs::path(path).filename().string())) {
      counts.skipped.push_back(path);
      continue;
    }
    try {
      counts.reports.push_back(count_path(path, options));
    } catch (const NoModel&) {
      counts.skipped.push_back(path);
    } catch (const Error& error) {
      counts.errors.emplace_back(error.what());
    }
  }
  return counts;
}

}  // namespace prenorm::params
