#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prenorm/error.h"

namespace prenorm {

/// The non-linearity between the two linear layers of a feed-forward block.
enum class Activation { gelu, gelu_tanh, relu, silu };

/// Where a residual block normalises: `pre` is x + f(norm(x)), `post` is norm(x + f(x)).
enum class NormPlacement { pre, post };

/// How a token learns its place in the sequence.
enum class Position { sinusoidal, learned, none };

/// What stands on top of the encoder: nothing, classes for each token, or one class for each sequence, read from the
/// mean of its tokens or from its first token.
enum class Head { none, token, sequence_mean, sequence_first };

/// The spelling of each value of an enumeration, as it stands in JSON and on command lines.
template <typename Enum>
const std::vector<std::pair<std::string, Enum>>& enum_names();

template <>
const std::vector<std::pair<std::string, Activation>>& enum_names();
template <>
const std::vector<std::pair<std::string, NormPlacement>>& enum_names();
template <>
const std::vector<std::pair<std::string, Position>>& enum_names();
template <>
const std::vector<std::pair<std::string, Head>>& enum_names();

template <typename Enum>
const std::string& enum_name(Enum value) {
  for (const auto& [name, candidate] : enum_names<Enum>()) {
    if (candidate == value) return name;
  }
  static const std::string unknown = "unknown";
  return unknown;
}

/// The value of that spelling. Throws Error naming `what`, the spelling and the ones that exist.
template <typename Enum>
Enum enum_value(const std::string& what, const std::string& spelling) {
  std::string allowed;
  for (const auto& [name, value] : enum_names<Enum>()) {
    if (name == spelling) return value;
    allowed += (allowed.empty() ? "" : ", ") + name;
  }
  fail(what, " is \"", spelling, "\", not one of ", allowed);
}

/// Everything that determines an EncoderModel but its weights: data, read and written without LibTorch. The defaults
/// are the course's.
struct ModelConfig {
  std::int64_t vocab_size = 0;  ///< V, number of token ids; required
  std::int64_t d_model = 512;   ///< D, width of the residual stream
  std::int64_t num_heads = 8;   ///< H; divides d_model
  std::int64_t num_layers = 6;  ///< L
  std::int64_t d_ff = 0;        ///< F, width inside the feed-forward block; 0 means 4 d_model

  double dropout = 0.1;            ///< after each sub-layer and inside the feed-forward block
  double attention_dropout = 0.0;  ///< on the attention weights
  double embedding_dropout = 0.0;  ///< on the sum of the embeddings

  Activation activation = Activation::gelu;
  NormPlacement norm_placement = NormPlacement::pre;
  double norm_eps = 1e-5;
  bool norm_bias = true;                ///< of every norm
  std::optional<bool> final_norm = {};  ///< a norm after the last layer; unset: with pre-norm only
  bool attention_bias = false;
  bool feed_forward_bias = true;

  Position position = Position::sinusoidal;
  std::int64_t max_positions = 512;  ///< rows of the learned position table; no limit with the other kinds
  std::int64_t position_offset = 0;  ///< row of that table for the first token; RoBERTa's is 2
  std::int64_t num_segments = 0;     ///< rows of the segment embedding; 0: there is none
  bool embedding_norm = false;

  bool causal = false;  ///< a token sees only itself and the tokens before it (GPT-2)

  Head head = Head::none;
  std::int64_t num_classes = 0;  ///< C, required with a head
  bool tie_head = false;         ///< the head's weight is the token embedding's tensor; C is V then

  bool operator==(const ModelConfig&) const = default;

  /// Throws Error naming the first field whose value cannot be built, and what is allowed.
  void validate() const;

  /// `{"model_type": "prenorm", "version": 1, ...}`, indented, one field a line.
  std::string to_json() const;

  /// Reads what `to_json` writes. A missing size (`vocab_size`, `d_model`, `num_heads`, `num_layers`), an unknown key,
  /// a value of the wrong type and a newer version throw Error naming it; other missing keys take the default.
  static ModelConfig from_json(std::string_view json);

  /// Reads a JSON file; errors name the file.
  static ModelConfig load(const std::filesystem::path& path);

  /// Writes a JSON file atomically.
  void save(const std::filesystem::path& path) const;
};

}  // namespace prenorm
