#include "prenorm/pretrained_config.h"

#include <algorithm>
#include <map>
#include <set>

#include "prenorm/error.h"
#include "prenorm/json.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {
namespace {

/// What a family calls the fields; an empty name: it has no such field.
struct Names {
  const char *d_model, *num_heads, *num_layers, *d_ff, *max_positions, *num_segments;
  const char *activation, *eps, *dropout, *embedding_dropout, *attention_dropout;
};

constexpr Names kBert{"hidden_size",
                      "num_attention_heads",
                      "num_hidden_layers",
                      "intermediate_size",
                      "max_position_embeddings",
                      "type_vocab_size",
                      "hidden_act",
                      "layer_norm_eps",
                      "hidden_dropout_prob",
                      "hidden_dropout_prob",
                      "attention_probs_dropout_prob"};
constexpr Names kDistilBert{"dim",        "n_heads", "n_layers", "hidden_dim", "max_position_embeddings", "",
                            "activation", "",        "dropout",  "dropout",    "attention_dropout"};
constexpr Names kGpt2{
    "n_embd",      "n_head",     "n_layer",   "n_inner", "n_positions", "", "activation_function", "layer_norm_epsilon",
    "resid_pdrop", "embd_pdrop", "attn_pdrop"};

/// The names that `transformers` has for the activations we have.
const std::map<std::string, Activation> kActivations{
    {"gelu", Activation::gelu},          {"gelu_python", Activation::gelu},
    {"gelu_new", Activation::gelu_tanh}, {"gelu_fast", Activation::gelu_tanh},
    {"relu", Activation::relu},          {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"silu", Activation::silu},          {"swish", Activation::silu}};

/// Fields with one value that we follow.
const std::map<std::string, SortedJson> kRequired{{"position_embedding_type", "absolute"},
                                                  {"add_cross_attention", false},
                                                  {"is_encoder_decoder", false},
                                                  {"cross_attention_hidden_size", nullptr},
                                                  {"tie_encoder_decoder", false},
                                                  {"pruned_heads", SortedJson::object()},
                                                  {"quantization_config", nullptr},
                                                  {"scale_attn_weights", true},
                                                  {"scale_attn_by_inverse_layer_idx", false},
                                                  {"reorder_and_upcast_attn", false}};

// clang-format off
/// Fields that say nothing about the numbers of the base model: names, training, heads, text generation, other
/// programs. A * stands for the rest of a name.
constexpr std::string_view kIgnoredFields[] = {
    "_*", "*_version", "*_token", "*_token_id", "*_token_ids", "*_dropout", "adapters", "architectures",
    "attn_implementation", "bad_words_ids", "base_model*", "begin_suppress_tokens", "cache_dir",
    "chunk_size_feed_forward", "classifier_*", "custom_pipelines", "datasets", "directionality", "diversity_penalty",
    "do_lower_case", "do_sample", "dtype", "early_stopping", "emb_pooler", "emb_size", "embedding_size",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "export_model_type", "finetuning_task",
    "freeze*", "gradient_checkpointing*", "id2label", "initializer_*", "is_composition",
    "keys_to_ignore_at_inference", "label*", "language", "length_penalty", "library_name", "license", "loss_*",
    "max_length", "max_seq_length", "metrics", "min_length", "mlm_probability", "model_max_length", "model_name",
    "n_ctx", "name", "name_or_path", "neuron", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_choices",
    "num_classes", "num_labels", "num_return_sequences", "onnx", "output_all_encoded_layers", "output_attentions",
    "output_hidden_states", "output_past", "output_scores", "pipeline_tag", "pooler_*", "pooling*",
    "predict_special_tokens", "prefix", "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict*",
    "sbert_*", "seed", "sentence_transformers*", "sinusoidal_pos_embds", "summary_*", "suppress_tokens", "tags",
    "task_specific_params", "temperature", "tf_legacy_loss", "tie_weights_", "tie_word_embeddings", "tokenizer*",
    "top_k", "top_p", "torch_dtype", "torchscript", "transformers*", "typical_p", "unsloth_*", "use_bfloat16",
    "use_cache", "use_return_dict", "vocab_file", "xla_device"};
// clang-format on

bool is_ignored(const std::string& name) {
  return std::ranges::any_of(kIgnoredFields, [&](std::string_view field) {
    if (field.starts_with('*')) return name.ends_with(field.substr(1));
    if (field.ends_with('*')) return name.starts_with(field.substr(0, field.size() - 1));
    return name == field;
  });
}

/// The fields of the JSON object; remembers which were asked for.
class Fields {
 public:
  Fields(const SortedJson& json, const std::vector<std::string>& ignored)
      : json_(json), asked_(ignored.begin(), ignored.end()) {}

  std::int64_t integer(const std::string& name) {
    const SortedJson& value = get(name);
    require(!value.is_null(), name, " is missing");
    require(value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX), name,
            " is ", value, ", not a 64-bit integer");
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) {
    return get(name).is_null() ? otherwise : integer(name);
  }
  /// A size under a family's own name or under BERT's, which `transformers` takes too.
  std::int64_t size(const std::string& name, const std::string& common) {
    if (name == common || get(common).is_null()) return integer(name);
    const auto value = integer(common);
    require(get(name).is_null() || integer(name) == value, name, " is ", get(name), ", but ", common, " is ", value);
    return value;
  }
  double number(const std::string& name, double otherwise) {
    const SortedJson& value = get(name);
    if (value.is_null()) return otherwise;
    require(value.is_number(), name, " is ", value, ", not a number");
    return value.get<double>();
  }
  bool flag(const std::string& name) {
    const SortedJson& value = get(name);
    require(value.is_null() || value.is_boolean(), name, " is ", value, ", not true or false");
    return value == true;
  }
  std::string text(const std::string& name, const std::string& otherwise) {
    const SortedJson& value = get(name);
    if (value.is_null()) return otherwise;
    require(value.is_string(), name, " is ", value, ", not a string");
    return value.get<std::string>();
  }
  void finish() const {
    for (const auto& [name, value] : json_.items()) {
      const auto required = kRequired.find(name);
      if (required == kRequired.end()) {
        require(value.is_null() || asked_.contains(name) || is_ignored(name), "the field ", InQuotes(name),
                " is not known, so the numbers might differ (PretrainedOptions::ignored_fields passes over it)");
        continue;
      }
      require(value == required->second || value.is_null(), name, " is ", value, "; only ", required->second,
              " is supported");
    }
  }

 private:
  const SortedJson& get(const std::string& name) {
    static const SortedJson none;
    asked_.insert(name);
    const auto entry = json_.find(name);
    return entry == json_.end() ? none : *entry;
  }

  const SortedJson& json_;
  std::set<std::string> asked_;
};

Activation activation(Fields& fields, const std::string& name, const std::string& otherwise) {
  const std::string spelling = fields.text(name, otherwise);
  const auto known = kActivations.find(spelling);
  if (known != kActivations.end()) return known->second;
  std::string allowed;
  for (const auto& [each, value] : kActivations) allowed += (allowed.empty() ? "" : ", ") + each;
  fail(name, " is \"", spelling, "\", not one of ", allowed);
}

ModelConfig model_config(Family family, Fields& fields) {
  const bool gpt2 = family == Family::gpt2, distilbert = family == Family::distilbert;
  const Names& names = gpt2 ? kGpt2 : distilbert ? kDistilBert : kBert;
  ModelConfig config{.vocab_size = fields.integer("vocab_size"),
                     .d_model = fields.size(names.d_model, kBert.d_model),
                     .num_heads = fields.size(names.num_heads, kBert.num_heads),
                     .num_layers = fields.size(names.num_layers, kBert.num_layers)};
  config.d_ff = gpt2 ? fields.integer(names.d_ff, 0) : fields.integer(names.d_ff);
  config.dropout = fields.number(names.dropout, 0.1);
  config.attention_dropout = fields.number(names.attention_dropout, 0.1);
  config.embedding_dropout = fields.number(names.embedding_dropout, 0.1);
  config.activation = activation(fields, names.activation, gpt2 ? "gelu_new" : "gelu");
  config.norm_placement = gpt2 ? NormPlacement::pre : NormPlacement::post;
  config.norm_eps = distilbert ? 1e-12 : fields.number(names.eps, gpt2 ? 1e-5 : 1e-12);
  config.attention_bias = true;
  config.position = Position::learned;
  config.max_positions = fields.size(names.max_positions, kBert.max_positions);
  // RoBERTa's table begins with the row of padding, by its token's number.
  if (family == Family::roberta) {
    const auto padding = fields.integer("pad_token_id", 1);
    require(padding >= 0 && padding < INT64_MAX, "pad_token_id is ", padding, ", not the number of a token");
    config.position_offset = padding + 1;
  }
  if (!gpt2 && !distilbert) config.num_segments = fields.integer(names.num_segments);
  config.embedding_norm = !gpt2;
  config.causal = fields.flag("is_decoder") || gpt2;
  return config;
}

bool is_token_classifier(const SortedJson& json) {
  const auto names = json.find("architectures");
  return names != json.end() && names->is_array() && names->size() == 1 && names->front().is_string() &&
         names->front().get<std::string>().ends_with("ForTokenClassification");
}

}  // namespace

template <>
const std::vector<std::pair<std::string, Family>>& enum_names() {
  static const std::vector<std::pair<std::string, Family>> names{
      {"prenorm", Family::prenorm},   {"bert", Family::bert},
      {"roberta", Family::roberta},   {"xlm-roberta", Family::roberta},
      {"camembert", Family::roberta}, {"distilbert", Family::distilbert},
      {"gpt2", Family::gpt2}};
  return names;
}

PretrainedConfig PretrainedConfig::from_json(std::string_view text, const std::vector<std::string>& ignored_fields) {
  const SortedJson json = parse_json<SortedJson>(text);
  require(json.is_object(), "the configuration is not a JSON object");
  Fields fields(json, ignored_fields);
  const std::string type = fields.text("model_type", "");
  require(!type.empty(), "model_type is missing");
  PretrainedConfig config{.family = enum_value<Family>("model_type", type), .model = {}};
  if (config.family == Family::prenorm) {
    config.model = ModelConfig::from_json(text);
    return config;
  }
  config.model = model_config(config.family, fields);
  config.token_classifier = is_token_classifier(json);
  fields.finish();
  config.model.validate();
  return config;
}

PretrainedConfig PretrainedConfig::load(const std::filesystem::path& path,
                                        const std::vector<std::string>& ignored_fields) {
  return parse_file(path, [&](std::string_view text) { return from_json(text, ignored_fields); });
}

}  // namespace prenorm
