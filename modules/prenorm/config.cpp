#include "prenorm/config.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/json.h"

namespace prenorm {
namespace {

constexpr int kConfigVersion = 1;

/// Calls `field(name, member, required)` for each field of the configuration, in the order in which it is written.
template <typename Config, typename Field>
void for_each_field(Config& config, Field&& field) {
  field("vocab_size", config.vocab_size, true);
  field("d_model", config.d_model, true);
  field("num_heads", config.num_heads, true);
  field("num_layers", config.num_layers, true);
  field("d_ff", config.d_ff, false);
  field("dropout", config.dropout, false);
  field("attention_dropout", config.attention_dropout, false);
  field("embedding_dropout", config.embedding_dropout, false);
  field("activation", config.activation, false);
  field("norm_placement", config.norm_placement, false);
  field("norm_eps", config.norm_eps, false);
  field("norm_bias", config.norm_bias, false);
  field("final_norm", config.final_norm, false);
  field("attention_bias", config.attention_bias, false);
  field("feed_forward_bias", config.feed_forward_bias, false);
  field("position", config.position, false);
  field("max_positions", config.max_positions, false);
  field("position_offset", config.position_offset, false);
  field("num_segments", config.num_segments, false);
  field("embedding_norm", config.embedding_norm, false);
  field("causal", config.causal, false);
  field("head", config.head, false);
  field("num_classes", config.num_classes, false);
  field("tie_head", config.tie_head, false);
}

template <typename Value>
Json to_value(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return enum_name(value);
  } else if constexpr (std::is_same_v<Value, std::optional<bool>>) {
    return value ? Json(*value) : Json(nullptr);
  } else {
    return value;
  }
}

void from_value(const std::string& name, const Json& json, bool& value) {
  require(json.is_boolean(), name, " is ", json, ", not true or false");
  value = json.get<bool>();
}

void from_value(const std::string& name, const Json& json, std::optional<bool>& value) {
  if (json.is_null()) {
    value.reset();
  } else {
    from_value(name, json, value.emplace());
  }
}

void from_value(const std::string& name, const Json& json, std::int64_t& value) {
  const bool too_large = json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  require(json.is_number_integer() && !too_large, name, " is ", json, ", not a 64-bit integer");
  value = json.get<std::int64_t>();
}

void from_value(const std::string& name, const Json& json, double& value) {
  require(json.is_number(), name, " is ", json, ", not a number");
  value = json.get<double>();
}

template <typename Enum>
requires std::is_enum_v<Enum>
void from_value(const std::string& name, const Json& json, Enum& value) {
  require(json.is_string(), name, " is ", json, ", not a string");
  value = enum_value<Enum>(name, json.get<std::string>());
}

void require_probability(const char* name, double value) {
  require(value >= 0.0 && value < 1.0, name, " is ", value, ", not in [0, 1)");
}

}  // namespace

template <>
const std::vector<std::pair<std::string, Activation>>& enum_names() {
  static const std::vector<std::pair<std::string, Activation>> names{{"gelu", Activation::gelu},
                                                                     {"gelu_tanh", Activation::gelu_tanh},
                                                                     {"relu", Activation::relu},
                                                                     {"silu", Activation::silu}};
  return names;
}

template <>
const std::vector<std::pair<std::string, NormPlacement>>& enum_names() {
  static const std::vector<std::pair<std::string, NormPlacement>> names{{"pre", NormPlacement::pre},
                                                                        {"post", NormPlacement::post}};
  return names;
}

template <>
const std::vector<std::pair<std::string, Position>>& enum_names() {
  static const std::vector<std::pair<std::string, Position>> names{
      {"sinusoidal", Position::sinusoidal}, {"learned", Position::learned}, {"none", Position::none}};
  return names;
}

template <>
const std::vector<std::pair<std::string, Head>>& enum_names() {
  static const std::vector<std::pair<std::string, Head>> names{{"none", Head::none},
                                                               {"token", Head::token},
                                                               {"sequence_mean", Head::sequence_mean},
                                                               {"sequence_first", Head::sequence_first}};
  return names;
}

void ModelConfig::validate() const {
  const auto positive = [](const char* name, std::int64_t value) {
    require(value > 0, name, " is ", value, ", not a positive number");
  };
  positive("vocab_size", vocab_size);
  positive("d_model", d_model);
  positive("num_heads", num_heads);
  positive("num_layers", num_layers);
  require(d_model % num_heads == 0, "d_model ", d_model, " is not divisible by num_heads ", num_heads);
  require(d_ff >= 0, "d_ff is ", d_ff, ", not a positive number or 0 (4 d_model)");
  require_probability("dropout", dropout);
  require_probability("attention_dropout", attention_dropout);
  require_probability("embedding_dropout", embedding_dropout);
  require(norm_eps > 0.0, "norm_eps is ", norm_eps, ", not a positive number");
  if (position == Position::learned) {
    positive("max_positions", max_positions);
    require(position_offset >= 0 && position_offset < max_positions, "position_offset is ", position_offset,
            ", not in [0, max_positions ", max_positions, ")");
  } else {
    require(position_offset == 0, "position_offset is ", position_offset, ", which only learned positions have");
  }
  require(num_segments >= 0, "num_segments is ", num_segments, ", not a positive number or 0 (no segments)");
  if (head != Head::none) positive("num_classes", num_classes);
  require(!tie_head || (head != Head::none && num_classes == vocab_size), "tie_head needs a head with as many classes ",
          "as there are token ids: num_classes is ", num_classes, ", vocab_size ", vocab_size);
}

std::string ModelConfig::to_json() const {
  Json json{{"model_type", "prenorm"}, {"version", kConfigVersion}};
  for_each_field(*this, [&](const char* name, const auto& value, bool) { json[name] = to_value(value); });
  // A choice that nearly no model makes is written only where it is made: programs that do not know it read the rest.
  if (norm_bias) json.erase("norm_bias");
  if (!tie_head) json.erase("tie_head");
  return json.dump(2) + "\n";
}

ModelConfig ModelConfig::from_json(std::string_view text) {
  const Json json = parse_json(text);
  require(json.is_object(), "the configuration is not a JSON object");
  require(json.contains("model_type"), "model_type is missing");
  require(json["model_type"] == "prenorm", "model_type is ", json["model_type"], ", not \"prenorm\"");
  require(json.contains("version"), "version is missing");
  require(json["version"] == kConfigVersion, "version is ", json["version"], "; this program reads version ",
          kConfigVersion);

  ModelConfig config;
  std::set<std::string> known{"model_type", "version"};
  for_each_field(config, [&](const char* name, auto& value, bool required) {
    known.insert(name);
    if (json.contains(name)) {
      from_value(name, json[name], value);
    } else {
      require(!required, name, " is missing");
    }
  });
  for (const auto& [key, value] : json.items()) require(known.contains(key), "unknown key \"", key, "\"");
  config.validate();
  return config;
}

ModelConfig ModelConfig::load(const std::filesystem::path& path) {
  return parse_file(path, from_json);
}

void ModelConfig::save(const std::filesystem::path& path) const {
  write_file_atomically(path, [this](std::ostream& stream) { stream << to_json(); });
}

}  // namespace prenorm
