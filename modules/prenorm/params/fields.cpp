#include "prenorm/params/fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "prenorm/error.h"
#include "prenorm/json.h"
#include "prenorm/params/config_count.h"

namespace prenorm::params {
namespace {

constexpr std::array kWidthNames{"hidden_size", "d_model", "n_embd", "n_embed", "dim"};
constexpr std::array kLayerNames{"num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"};

constexpr std::array kPositionNames{"max_position_embeddings", "n_positions", "max_target_positions"};

/// Words in the names of fields that decide about the parts of a net or their shapes.
const std::set<std::string_view> kShapeWords{
    "adapter",    "adapters",  "attention", "attn",   "audio",        "block",  "blocks",    "channels",   "conv",
    "depth",      "dim",       "dims",      "emb",    "embd",         "embed",  "embedding", "embeddings", "expert",
    "experts",    "feed",      "ffn",       "gate",   "gated",        "glu",    "group",     "groups",     "head",
    "heads",      "hidden",    "image",     "inner",  "intermediate", "kernel", "kv",        "layer",      "layernorm",
    "layers",     "lora",      "mlp",       "moe",    "norm",         "patch",  "pool",      "pooler",     "proj",
    "projection", "projector", "prompt",    "pruned", "query",        "rank",   "rmsnorm",   "share",      "shared",
    "tie",        "tied",      "untie",     "video",  "vision",       "vocab",  "width"};
const std::set<std::string_view> kPositionWords{"alibi",     "pos",  "position", "positional",
                                                "positions", "rope", "rotary"};

/// Words that say that it is about something else: numbers, training, generation, speed.
const std::set<std::string_view> kOtherWords{
    "act",         "activation", "alignment",      "base",   "cache",      "coef",        "distance", "drop",
    "dropout",     "eps",        "epsilon",        "filter", "flash",      "fn",          "fp32",     "id",
    "ids",         "idx",        "implementation", "index",  "init",       "initializer", "jitter",   "label",
    "labels",      "layerdrop",  "loss",           "masked", "multiplier", "original",    "output",   "outputs",
    "parameters",  "pct",        "pdrop",          "prob",   "scalar",     "scale",       "scaling",  "skip",
    "softcapping", "softmax",    "summary",        "theta",  "token",      "tokens",      "window"};

/// Fields of several families that only change the numbers, or that transformers does not read.
const std::set<std::string_view> kHarmless{"apply_residual_connection_post_layernorm",
                                           "global_attn_every_n_layers",
                                           "layer_types",
                                           "local_attention",
                                           "max_window_layers",
                                           "n_ctx",
                                           "pooler_fc_size",
                                           "pooler_num_attention_heads",
                                           "pooler_num_fc_layers",
                                           "pooler_size_per_head",
                                           "pooler_type",
                                           "sinusoidal_pos_embds",
                                           "tie_weights_",
                                           "tie_word_embeddings"};

bool has_word(std::string_view key, const std::set<std::string_view>& words) {
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('_', begin), key.size());
    if (words.contains(key.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

/// A value that switches nothing on.
bool is_off(const SortedJson& value) {
  static const std::set<std::string> usual{"",     "absolute", "default",   "eager",    "full", "learned", "mha",
                                           "none", "null",     "multihead", "original", "sdpa", "standard"};
  if (value.is_string()) return usual.contains(value.get<std::string>());
  return value.is_null() || value == false || value == 0 || (value.is_structured() && value.empty());
}

/// "line 2, column 8" of a byte that is counted from 1.
std::string place(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto start = before.rfind('\n');
  const std::size_t column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : ", ") + word;
  return line;
}

Count to_integer(const std::string& name, const SortedJson& json, std::int64_t smallest) {
  const bool too_large = json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  require(json.is_number_integer() && !too_large, name, " is ", json.dump().substr(0, 40), ", not a 64-bit integer");
  const auto value = json.get<std::int64_t>();
  require(value >= smallest, name, " is ", value, smallest > 0 ? ", not a positive number" : ", a negative number");
  return value;
}

/// What a class name says of its head: "BertForMaskedLM" is "ForMaskedLM", "GPT2LMHeadModel" "LMHeadModel".
std::string_view head_of(std::string_view architecture) {
  for (auto at = architecture.rfind("For"); at != std::string_view::npos && at > 0;
       at = architecture.rfind("For", at - 1)) {
    if (at + 3 < architecture.size() && std::isupper(static_cast<unsigned char>(architecture[at + 3]))) {
      return architecture.substr(at);
    }
  }
  for (const std::string_view ending : {"DoubleHeadsModel", "WithLMHeadModel", "LMHeadModel", "EncoderModel"}) {
    if (architecture.ends_with(ending)) return ending;
  }
  return architecture.ends_with("Model") ? "Model" : architecture;
}

/// Whether a class has that name, in whatever case, or is the same for TensorFlow or Flax.
bool is_class(std::string_view name, std::string_view expected) {
  for (const std::string_view framework : {"TF", "Flax"}) {
    if (name.starts_with(framework)) name.remove_prefix(framework.size());
  }
  return std::ranges::equal(
      name, expected, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

}  // namespace

struct Fields::Data {
  SortedJson json;
  std::string architecture;
  std::vector<std::string> notes;
  std::map<std::string, std::string> flags;  // those that took the family's default
  std::vector<std::string> heads;
  std::string class_prefix;
  bool chosen_head = false;
  bool exact = true;
  mutable std::set<std::string> read;  // names with the pointers of their objects: "/text_config/hidden_size"

  void note(std::string text) {
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
  }
  const SortedJson* find(const std::string& pointer, std::string_view key) const {
    read.insert(pointer + "/" + std::string(key));
    const SortedJson& object = json.at(SortedJson::json_pointer(pointer));
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
};

Fields::Fields(std::shared_ptr<Data> data, std::string prefix, std::string pointer)
    : data_(std::move(data)), prefix_(std::move(prefix)), pointer_(std::move(pointer)) {}

Fields::Fields(std::string_view text) : data_(std::make_shared<Data>()) {
  if (const auto byte = deep_byte(text)) fail("JSON nested more than ", kMaxJsonDepth, " deep at ", place(text, *byte));
  try {
    data_->json = SortedJson::parse(text, StrictJson<SortedJson>());
  } catch (const SortedJson::parse_error& error) {
    fail("not valid JSON at ", place(text, error.byte));
  } catch (const SortedJson::exception& error) {
    fail("not valid JSON: a number is out of range");
  }
  if (!data_->json.is_object()) throw NoModel("not a JSON object");
  if (const SortedJson* names = data_->find("", "architectures")) {
    require(names->is_array(), "architectures is not a list of names");
    if (!names->empty()) {
      require(names->front().is_string(), "architectures is not a list of names");
      data_->architecture = names->front().get<std::string>();
    }
  }
}

Fields Fields::object(std::string_view key) const {
  const SortedJson* json = data_->find(pointer_, key);
  require(json != nullptr, prefix_, key, " is missing");
  require(json->is_object(), prefix_, key, " is not a JSON object");
  return {data_, prefix_ + std::string(key) + ".", pointer_ + "/" + std::string(key)};
}

bool Fields::has(std::string_view key) const {
  return data_->find(pointer_, key) != nullptr;
}

Count Fields::at_least(std::int64_t smallest, Names names) const {
  const SortedJson* json = nullptr;
  std::string name;
  for (const std::string_view candidate : names) {
    const SortedJson* found = data_->find(pointer_, candidate);
    if (found == nullptr) continue;
    const std::string candidate_name = prefix_ + std::string(candidate);
    if (json != nullptr && *json != *found) {
      note(name + " " + json->dump() + " and " + candidate_name + " " + found->dump() +
           " disagree: the latter counts, as in transformers");
    }
    json = found;
    name = candidate_name;
  }
  std::string all;
  for (const std::string_view candidate : names) all += (all.empty() ? "" : " or ") + prefix_ + std::string(candidate);
  require(json != nullptr, all, " is missing");
  return to_integer(name, *json, smallest);
}

Count Fields::size_or(Names names, Count derived, std::string_view rule) const {
  if (std::any_of(names.begin(), names.end(), [this](std::string_view name) { return has(name); })) return size(names);
  note(prefix_ + std::string(*names.begin()) + " is not in the file: " + std::string(rule) + " = " +
       std::to_string(derived.value()));
  return derived;
}

Count Fields::size_or_null(Names names, Count derived, std::string_view rule) const {
  const SortedJson& object = data_->json.at(SortedJson::json_pointer(pointer_));
  const bool present = std::any_of(names.begin(), names.end(), [&](auto name) { return object.contains(name); });
  return present ? size_or(names, derived, rule) : size(names);
}

std::pair<Count, Count> Fields::size_2d(std::string_view key) const {
  const SortedJson* json = data_->find(pointer_, key);
  if (json == nullptr || !json->is_array()) {
    const Count side = size({key});
    return {side, side};
  }
  const std::string name = prefix_ + std::string(key);
  require(json->size() == 2, name, " has ", json->size(), " entries, not 2");
  return {to_integer(name, json->at(0), 1), to_integer(name, json->at(1), 1)};
}

std::vector<Count> Fields::list(std::string_view key) const {
  std::vector<Count> values;
  const SortedJson* json = data_->find(pointer_, key);
  if (json == nullptr) return values;
  require(json->is_array(), prefix_, key, " is not a list");
  for (const SortedJson& entry : *json) values.push_back(to_integer(prefix_ + std::string(key), entry, 0));
  return values;
}

bool Fields::flag(std::string_view key, bool fallback) const {
  data_->read.insert(pointer_ + "/" + std::string(key));
  const SortedJson& object = data_->json.at(SortedJson::json_pointer(pointer_));
  const auto found = object.find(key);
  if (found == object.end()) {
    data_->flags[prefix_ + std::string(key)] = fallback ? "true" : "false";
    return fallback;
  }
  require(found->is_boolean() || found->is_null(), prefix_, key, " is ", found->dump().substr(0, 40),
          ", not true or false");
  return found->is_boolean() && found->get<bool>();
}

std::string Fields::text(std::string_view key, std::string_view fallback) const {
  const SortedJson* json = data_->find(pointer_, key);
  if (json == nullptr) return std::string(fallback);
  require(json->is_string(), prefix_, key, " is not a text");
  return json->get<std::string>();
}

std::int64_t Fields::integer(std::string_view key, std::int64_t fallback) const {
  const SortedJson* json = data_->find(pointer_, key);
  return json == nullptr ? fallback : to_integer(prefix_ + std::string(key), *json, INT64_MIN).value();
}

std::vector<std::string> Fields::words(std::string_view key) const {
  std::vector<std::string> words;
  const SortedJson* json = data_->find(pointer_, key);
  if (json == nullptr) return words;
  const std::string name = prefix_ + std::string(key);
  if (json->is_array()) {
    for (const SortedJson& entry : *json) {
      require(entry.is_string(), name, " is not a list of texts");
      words.push_back(entry.get<std::string>());
    }
    return words;
  }
  require(json->is_string(), name, " is not a text");
  std::string word;
  for (const char letter : json->get<std::string>() + "|") {
    if (letter == '|') {
      words.push_back(std::exchange(word, ""));
    } else if (letter != ' ') {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
  }
  return words;
}

std::pair<Count, Count> Fields::heads(Names names, Count d, std::string_view d_name) const {
  const Count heads = size(names);
  require(d.value() % heads.value() == 0, prefix_, d_name, " ", d, " is not divisible by ", prefix_, *names.begin(),
          " ", heads);
  return {heads, d.value() / heads.value()};
}

Count Fields::labels() const {
  const SortedJson* map = data_->find("", "id2label");
  const SortedJson* number = data_->find("", "num_labels");
  require(map == nullptr || map->is_object(), "id2label is not a JSON object");
  if (number != nullptr) {
    const Count labels = to_integer("num_labels", *number, 0);
    if (map != nullptr && Count(static_cast<std::int64_t>(map->size())) != labels) {
      note("num_labels " + number->dump() + " and the " + std::to_string(map->size()) +
           " entries of id2label disagree: the former counts, as in transformers");
    }
    return labels;
  }
  if (map != nullptr) return static_cast<std::int64_t>(map->size());
  note("neither id2label nor num_labels is in the file: 2 labels");
  return 2;
}

std::string Fields::architecture() const {
  return data_->architecture;
}

void Fields::choose_head(std::string_view name) {
  data_->architecture = name;
  data_->chosen_head = true;
}

void Fields::expect_classes(std::string_view prefix) {
  data_->class_prefix = prefix;
}

void Fields::ignore(Names names) const {
  for (const std::string_view name : names) data_->read.insert(pointer_ + "/" + std::string(name));
}

void Fields::doubt(std::string text) const {
  data_->exact = false;
  note(std::move(text));
}

bool Fields::may_change_the_net(const std::string& key) const {
  const SortedJson& object = data_->json.at(SortedJson::json_pointer(pointer_));
  const SortedJson& value = object.at(key);
  const auto was_read = [&](const char* name) { return data_->read.contains(pointer_ + "/" + name); };
  if (was_read(key.c_str()) || kHarmless.contains(key)) return false;
  // A gated unit has a matrix more, whatever the field is called.
  if (value.is_string() && value.get<std::string>().ends_with("glu")) return true;
  if (has_word(key, kOtherWords)) return false;
  if (has_word(key, {"bias", "biases"})) return value == true || !was_read("num_key_value_heads");
  if (is_off(value)) return false;
  const auto width = std::find_if(kWidthNames.begin(), kWidthNames.end(), was_read);
  if (width != kWidthNames.end() && object.contains(*width) && value == object[*width]) return false;
  const bool has_table = std::any_of(kPositionNames.begin(), kPositionNames.end(), was_read);
  return has_word(key, kPositionWords) ? has_table : has_word(key, kShapeWords);
}

void Fields::doubt_unread() const {
  if (has("auto_map")) doubt("auto_map: the net is built by code of its own, which may build another one");
  std::string line;
  for (const auto& [key, value] : data_->json.at(SortedJson::json_pointer(pointer_)).items()) {
    const auto lies_in = [start = pointer_ + "/" + key + "/"](const std::string& name) {
      return name.starts_with(start);
    };
    if (value.is_object() && std::any_of(data_->read.begin(), data_->read.end(), lies_in)) {
      object(key).doubt_unread();
    } else if (may_change_the_net(key)) {
      line += (line.empty() ? "" : ", ") + prefix_ + key + " " + value.dump().substr(0, 40);
    }
  }
  if (!line.empty()) doubt("not followed, though it may change the net: " + line.substr(0, 400));
}

Parts Fields::head_parts(const std::vector<HeadRule>& rules) const {
  const std::string_view wanted = head_of(data_->architecture);
  data_->heads.clear();
  for (const HeadRule& rule : rules) data_->heads.insert(data_->heads.end(), rule.names.begin(), rule.names.end());
  if (wanted.empty()) {
    note("architectures is not in the file: the bare model is counted, without a head for a task");
    return rules.front().parts();
  }
  for (const HeadRule& rule : rules) {
    if (std::find(rule.names.begin(), rule.names.end(), wanted) != rule.names.end()) {
      const std::string expected = data_->class_prefix + std::string(wanted);
      if (!data_->class_prefix.empty() && !data_->chosen_head && !is_class(data_->architecture, expected)) {
        doubt("\"" + data_->architecture.substr(0, 80) + "\" is no class of " + model_type() + ": counted as " +
              expected);
      }
      return rule.parts();
    }
  }
  doubt("\"" + data_->architecture.substr(0, 80) + "\" is not a known head of " + model_type() +
        ": the bare model is counted, whatever stands on it is not. Known endings: " + joined(data_->heads));
  return rules.front().parts();
}

bool Fields::exact() const {
  return data_->exact;
}

std::string Fields::model_type() const {
  const SortedJson* json = data_->find("", "model_type");
  if (json == nullptr) return "";
  require(json->is_string(), "model_type is ", json->dump().substr(0, 40), ", not a text");
  return json->get<std::string>();
}

void Fields::note(std::string text) const {
  data_->note(std::move(text));
}

std::vector<std::string> Fields::notes() const {
  std::vector<std::string> notes = data_->notes;
  if (!data_->flags.empty()) {
    std::vector<std::string> flags;
    for (const auto& [key, value] : data_->flags) flags.push_back(key + " " + value);
    notes.push_back("not in the file, so by the family's rule: " + joined(flags));
  }
  return notes;
}

std::vector<std::string> Fields::heads_seen() const {
  return data_->heads;
}

bool Fields::has_dimensions() const {
  const auto present = [this](const char* name) { return has(name); };
  return std::any_of(kWidthNames.begin(), kWidthNames.end(), present) &&
         std::any_of(kLayerNames.begin(), kLayerNames.end(), present);
}

Count Fields::estimate() const {
  const auto first = [this](const auto& names) -> Count {
    const auto found = std::find_if(names.begin(), names.end(), [this](const char* name) { return has(name); });
    return found == names.end() ? Count(0) : size({*found});
  };
  try {
    if (!has_dimensions() && pointer_.empty() && has("text_config")) return object("text_config").estimate();
    const Count d = first(kWidthNames);
    return Count(12) * d * d * first(kLayerNames);
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace prenorm::params
