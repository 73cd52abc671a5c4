#include "prenorm/pretrained_config.h"

#include "catch.h"
#include "prenorm/error.h"
#include "throws.h"

namespace pretrained_config_test {

using namespace prenorm;

namespace {

// As the hubs' files have them.
const std::string kRoberta = R"({"architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1,
  "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.2, "hidden_size": 768,
  "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
  "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
  "type_vocab_size": 1, "vocab_size": 50265})";
const std::string kDistilBert = R"({"activation": "gelu", "architectures": ["DistilBertForMaskedLM"],
  "attention_dropout": 0.1, "dim": 768, "dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02,
  "max_position_embeddings": 512, "model_type": "distilbert", "n_heads": 12, "n_layers": 6, "pad_token_id": 0,
  "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": false, "tie_weights_": true,
  "transformers_version": "4.10.0.dev0", "vocab_size": 30522})";
const std::string kGpt2 = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.3, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.2, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})";

std::string changed(std::string json, const std::string& from, const std::string& to) {
  return json.replace(json.find(from), from.size(), to);
}

std::string error(const std::string& json) {
  return message_of<Error>([&] { PretrainedConfig::from_json(json); });
}

}  // namespace

TEST_CASE("real configurations in the terms of this library") {
  const auto roberta = PretrainedConfig::from_json(kRoberta);
  CHECK(roberta.family == Family::roberta);
  CHECK_FALSE(roberta.token_classifier);
  CHECK(roberta.model == ModelConfig{.vocab_size = 50265,
                                     .d_model = 768,
                                     .num_heads = 12,
                                     .num_layers = 12,
                                     .d_ff = 3072,
                                     .dropout = 0.2,
                                     .attention_dropout = 0.1,
                                     .embedding_dropout = 0.2,
                                     .norm_placement = NormPlacement::post,
                                     .norm_eps = 1e-5,
                                     .attention_bias = true,
                                     .position = Position::learned,
                                     .max_positions = 514,
                                     .position_offset = 2,
                                     .num_segments = 1,
                                     .embedding_norm = true});
  const auto distilbert = PretrainedConfig::from_json(kDistilBert);
  CHECK(distilbert.model == ModelConfig{.vocab_size = 30522,
                                        .d_model = 768,
                                        .num_heads = 12,
                                        .num_layers = 6,
                                        .d_ff = 3072,
                                        .attention_dropout = 0.1,
                                        .embedding_dropout = 0.1,
                                        .norm_placement = NormPlacement::post,
                                        .norm_eps = 1e-12,
                                        .attention_bias = true,
                                        .position = Position::learned,
                                        .embedding_norm = true});
  const auto gpt2 = PretrainedConfig::from_json(kGpt2);
  CHECK(gpt2.model == ModelConfig{.vocab_size = 50257,
                                  .d_model = 768,
                                  .num_heads = 12,
                                  .num_layers = 12,
                                  .dropout = 0.2,
                                  .attention_dropout = 0.1,
                                  .embedding_dropout = 0.3,
                                  .activation = Activation::gelu_tanh,
                                  .attention_bias = true,
                                  .position = Position::learned,
                                  .max_positions = 1024,
                                  .causal = true});

  const ModelConfig ours{.vocab_size = 5, .head = Head::token, .num_classes = 2};
  const auto own = PretrainedConfig::from_json(ours.to_json());
  CHECK((own.family == Family::prenorm && own.model == ours));
}

TEST_CASE("fields that published configurations carry beside the sizes are passed over") {
  const std::string more =
      R"("emb_size": 312, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
    "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"},
    "_name_or_path": "x", "_commit_hash": null, "torch_dtype": "float32", "dtype": "float32", "id2label": {"0": "A"},
    "task_specific_params": {"a": 1}, "adapters": {"adapters": {}}, "gradient_checkpointing": false, "use_cache": true,
    "summary_type": "first", "classifier_dropout": null, "cls_dropout": 0.1, "unsloth_version": "2025.1",
    "eos_token_ids": null, "pooler_num_fc_layers": 3, "language": "english", "name": "Bert", "output_past": true,
    "export_model_type": "transformer", "transformers.js_config": {}, "rope_scaling": null,
    "position_embedding_type": "absolute", "pad)";
  for (const std::string& json : {kRoberta, kDistilBert}) {
    CHECK(PretrainedConfig::from_json(changed(json, "\"pad", more)).model == PretrainedConfig::from_json(json).model);
  }
  const std::string twice = changed(kDistilBert, "\"dim\"", "\"hidden_size\": 768, \"num_hidden_layers\": 6, \"dim\"");
  CHECK(PretrainedConfig::from_json(twice).model.d_model == 768);
  const std::string common = changed(kGpt2, "\"n_embd\"", "\"hidden_size\"");
  CHECK(PretrainedConfig::from_json(common).model == PretrainedConfig::from_json(kGpt2).model);
  for (const char* name : {"\"xlm-roberta\"", "\"camembert\""}) {
    const auto config = PretrainedConfig::from_json(changed(kRoberta, "\"roberta\"", name));
    CHECK((config.family == Family::roberta && config.model == PretrainedConfig::from_json(kRoberta).model));
  }
}

TEST_CASE("only a token classifier is one, and a decoder is causal") {
  CHECK(PretrainedConfig::from_json(changed(kRoberta, "ForMaskedLM", "ForTokenClassification")).token_classifier);
  CHECK(PretrainedConfig::from_json(changed(kRoberta, "\"pad", "\"is_decoder\": true, \"pad")).model.causal);
}

TEST_CASE("what the numbers cannot follow is refused by name") {
  CHECK(error(changed(kRoberta, "\"gelu\"", "\"mish\"")) ==
        "hidden_act is \"mish\", not one of gelu, gelu_fast, gelu_new, gelu_python, gelu_pytorch_tanh, relu, silu, "
        "swish");
  CHECK(error(changed(kRoberta, "\"pad", "\"position_embedding_type\": \"relative_key\", \"pad")) ==
        "position_embedding_type is \"relative_key\"; only \"absolute\" is supported");
  CHECK(error(changed(kRoberta, "\"pad", "\"add_cross_attention\": true, \"pad")) ==
        "add_cross_attention is true; only false is supported");
  const std::string unknown = changed(kRoberta, "\"pad", "\"new\": 1, \"pad");
  CHECK(
      error(unknown) ==
      "the field \"new\" is not known, so the numbers might differ (PretrainedOptions::ignored_fields passes over it)");
  CHECK(PretrainedConfig::from_json(unknown, {"new"}).model == PretrainedConfig::from_json(kRoberta).model);
  CHECK(error(changed(kRoberta, "\"pad", "\"auto_map\": {\"AutoModel\": \"other.Model\"}, \"pad"))
            .starts_with("the field \"auto_map\" is not known"));
  CHECK(error(changed(kGpt2, "\"vocab", "\"hidden_size\": 16, \"vocab")) == "n_embd is 768, but hidden_size is 16");
  CHECK(error(changed(kGpt2, "\"vocab", "\"scale_attn_by_inverse_layer_idx\": true, \"vocab")) ==
        "scale_attn_by_inverse_layer_idx is true; only false is supported");
  CHECK(error(changed(kRoberta, "\"hidden_size\": 768,", "")) == "hidden_size is missing");
  CHECK(error(changed(kRoberta, "\"pad_token_id\": 1", "\"pad_token_id\": 600")) ==
        "position_offset is 601, not in [0, max_positions 514)");
  CHECK(error(changed(kRoberta, "\"pad_token_id\": 1", "\"pad_token_id\": 9223372036854775807"))
            .find("pad_token_id is ") == 0);
  CHECK(error(changed(kDistilBert, "\"dim\": 768", "\"dim\": 7.5")) == "dim is 7.5, not a 64-bit integer");
  CHECK(error(changed(kGpt2, "\"gpt2\"", "\"llama\"")) ==
        "model_type is \"llama\", not one of prenorm, bert, roberta, xlm-roberta, camembert, "
        "distilbert, gpt2");
  CHECK(error("{}") == "model_type is missing");
  CHECK(error("[1]") == "the configuration is not a JSON object");
  CHECK(error("{").starts_with("not valid JSON at byte"));
  CHECK(error(R"({"hidden_size": 1e999})") == "not valid JSON: a number is out of range");
}

}  // namespace pretrained_config_test
