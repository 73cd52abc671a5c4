#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/params/config_count.h"
#include "prenorm/params/count.h"
#include "prenorm/params/dimensions.h"

namespace prenorm::params {

/// Elements by which a file holds more (or fewer, negative) than its config says, and why.
struct Difference {
  std::string reason;
  Count elements;
};

/// All that is said about one input. Its JSON object has these members, always all of them:
///
///   input            text: the path, or the dimensions, as given
///   source           "dimensions", "config", "file" or "config and file"
///   exact            bool: whether `total` is certain; false for an answer to a question backwards that misses its
///                    total, where the class or a field of a config may make another net, and where nothing says how
///                    weights are packed
///   model_type, architecture   text, or null where no config says
///   total            parameters; with a config, what it describes, tied weights once, but apart where those in the
///                    file differ, as transformers loads them; else what the file holds
///   active           parameters at work on one token: fewer than `total` in a mixture of experts
///   embedding        parameters in tables that are looked up (tokens, positions, segments); null for a file alone
///   non_embedding    total - embedding; null for a file alone
///   buffers          elements in the file that are no parameters: integers, position ids, rotary frequencies, masks
///   bytes            of all tensors in the file, from their offsets; null without a file
///   by_dtype         {"F32": n, ...}: elements in the file by type as stored, buffers included; {} without a file
///   rule_12d2L       12 d^2 L; L counts layers with weights of their own; null where d and L are not known
///   extras_percent   100 (total - rule_12d2L) / total; null where the rule is
///   layers, d_model  L and d (of the widest stack); null where they are not known
///   label            null, or {"text": "7B", "claimed": 7000000000, "off_percent": -3.7}: a size in the name
///   memory           bytes: {"float32", "bfloat16", "int8", "int4", "adamw_float32", "adamw_mixed"}
///   config_total, file_total   both counts; null where there is no config or no file
///   differences      [{"reason", "elements"}]: file_total - config_total explained
///   candidates       [{"d_model", "num_layers", "total", "error_percent"}]: answers to a question backwards
///   components       the tree: {"name", "formula", "copies", "parameters", "children"}
///   notes            [text]: what was derived, assumed or found
struct Report {
  std::string input = {};
  std::string source = {};
  bool exact = true;
  std::string model_type = {};
  std::string architecture = {};
  Component tree = {};
  Count total = 0;
  std::optional<Count> active = {};
  std::optional<Count> embedding = {};
  Count buffers = 0;
  std::optional<Count> bytes = {};
  std::map<std::string, Count> by_dtype = {};
  std::optional<Count> rule = {};
  Count layers = 0;
  Count d_model = 0;
  std::optional<Count> config_total = {};
  std::optional<Count> file_total = {};
  std::vector<Difference> differences = {};
  std::vector<Candidate> candidates = {};
  std::vector<std::string> notes = {};

  /// 100 (total - rule) / total; nothing where there is no rule or nothing to count.
  std::optional<double> extras_percent() const;
};

/// A size in the name of an input, as in "Llama-2-7b-hf": never used to count, only to judge.
struct SizeLabel {
  std::string text;
  Count claimed;

  /// How far `total` is from it: negative when it is less.
  double off_percent(Count total) const;
};
std::optional<SizeLabel> size_label(const Report& report);

/// Bytes of the weights, and of training: weights, gradients and AdamW's two moments in float32 (4 + 4 + 8), or
/// bfloat16 weights and gradients beside a float32 copy and moments (2 + 2 + 12).
std::vector<std::pair<const char*, Count>> memory(Count total);

Report report_config(const std::string& input, const ConfigCount& count);
Report report_dimensions(const std::string& input, const ModelConfig& config);
Report report_solution(const std::string& input, const std::vector<Candidate>& candidates, Count asked);

/// For people: the table of one input, parts down to `depth`; or one line for each of several.
std::string table(const Report& report, int depth);
std::string comparison(const std::vector<Report>& reports);

/// For programs: an object, or an array of them.
std::string json(const Report& report);
std::string json(const std::vector<Report>& reports);

/// 1234567 as 1,234,567, and as 1.23 M.
std::string grouped(Count count);
std::string rounded(Count count);

}  // namespace prenorm::params
