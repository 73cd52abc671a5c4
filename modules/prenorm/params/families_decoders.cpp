// Decoders: causal, pre-norm but for some OPT, and one set of heads for all of them.
#include <set>

#include "prenorm/error.h"
#include "prenorm/params/families.h"

namespace prenorm::params {
namespace {

/// The heads of every decoder, on a width `d`. `double_heads` is GPT-2's second one.
Component decoder_head(const Fields& f, Count d, Count vocabulary, bool tied, bool bias = false,
                       const std::function<Component()>& double_heads = {}) {
  const auto lm_head = [=] { return output("lm_head", d, vocabulary, f.tied(tied), bias); };
  std::vector<HeadRule> rules{
      {{"Model"}, [] { return Parts{}; }},
      {{"ForCausalLM", "LMHeadModel"}, [=] { return Parts{lm_head()}; }},
      {{"ForSequenceClassification"}, [=] { return Parts{linear("score", d, f.labels(), false)}; }},
      {{"ForTokenClassification"}, [=] { return Parts{linear("classifier", d, f.labels())}; }},
      {{"ForQuestionAnswering"}, [=] { return Parts{linear("qa_outputs", d, 2)}; }}};
  if (double_heads) rules.push_back({{"DoubleHeadsModel"}, [=] { return Parts{lm_head(), double_heads()}; }});
  return f.head(rules);
}

AttentionSizes full_attention(const Fields& f, Count d, Fields::Names heads, std::string_view d_name,
                              bool bias = true) {
  const auto [n, head_size] = f.heads(heads, d, d_name);
  return {.d = d, .heads = n, .kv_heads = n, .head_size = head_size, .bias = bias, .output_bias = bias};
}

Count inner_width(const Fields& f, Count d) {
  return f.size_or({"n_inner"}, Count(4) * d, "4 n_embd");
}

/// What the grouped attention of a family has when its keys are missing: a head size of its own, or d / heads; key and
/// value heads in the file (perhaps null), or as many as heads.
struct GroupedRule {
  Count head_size = 0;
  bool needs_kv_heads = false;
  bool bias = false;
  bool output_bias = false;
};

AttentionSizes grouped_attention(const Fields& f, Count d, const GroupedRule& rule) {
  AttentionSizes sizes{.d = d, .bias = rule.bias, .output_bias = rule.output_bias};
  sizes.heads = f.size({"num_attention_heads"});
  sizes.kv_heads = rule.needs_kv_heads ? f.size_or_null({"num_key_value_heads"}, sizes.heads, "num_attention_heads")
                                       : f.size_or({"num_key_value_heads"}, sizes.heads, "num_attention_heads");
  require(sizes.heads.value() % sizes.kv_heads.value() == 0, "num_attention_heads ", sizes.heads,
          " is not a multiple of num_key_value_heads ", sizes.kv_heads);
  if (f.has("head_dim")) {
    sizes.head_size = f.size({"head_dim"});
  } else if (rule.head_size > 0) {
    sizes.head_size = f.size_or({"head_dim"}, rule.head_size, "the family's constant");
  } else {
    const auto [heads, head_size] = f.heads({"num_attention_heads"}, d, "hidden_size");
    sizes.head_size = f.size_or({"head_dim"}, head_size, "hidden_size / num_attention_heads");
  }
  return sizes;
}

/// A layer of the Llama line: attention and feed-forward with `norms` RMS norms around them, and norms of queries and
/// keys within a head for some.
Parts llama_layer(const AttentionSizes& sizes, Component feed_forward, int norms = 2, bool head_norms = false) {
  Component attend = attention("attention", sizes);
  if (head_norms) {
    attend.children.push_back(rms_norm("query_norm", sizes.head_size));
    attend.children.push_back(rms_norm("key_norm", sizes.head_size));
    attend.formula += " + 2*" + std::to_string(sizes.head_size.value());
  }
  Parts parts{std::move(attend), std::move(feed_forward)};
  for (int i = 1; i <= norms; ++i) parts.push_back(rms_norm("norm_" + std::to_string(i), sizes.d));
  return parts;
}

/// Token table, layers and final norm.
Parts llama_base(const Fields& f, Count d, const Parts& layers) {
  Parts parts{table("embeddings", f.size({"vocab_size"}), d)};
  parts.insert(parts.end(), layers.begin(), layers.end());
  parts.push_back(rms_norm("final_norm", d));
  return parts;
}

Component llama_model(const Fields& f, Count d, const Parts& layers, bool tied) {
  Parts parts = llama_base(f, d, layers);
  parts.push_back(decoder_head(f, d, f.size({"vocab_size"}), tied));
  return group("model", parts);
}

Parts llama_stack(const Fields& f, Count d, Parts layer) {
  return {stack("layers", f.size({"num_hidden_layers"}), d, std::move(layer))};
}

Component gated(const Fields& f, Count d, bool bias = false) {
  return gated_feed_forward("feed_forward", d, f.size({"intermediate_size"}), bias);
}

}  // namespace

Component llama(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const bool bias = f.flag("attention_bias", false);
  const auto sizes = grouped_attention(f, d, {.bias = bias, .output_bias = bias});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d, f.flag("mlp_bias", false)))), false);
}

Component mistral(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const auto sizes = grouped_attention(f, d, {.needs_kv_heads = true});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d))), false);
}

Component mixtral(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const auto sizes = grouped_attention(f, d, {.needs_kv_heads = true});
  const Component experts = mixture("experts", d, f.size({"intermediate_size"}),
                                    f.size({"num_local_experts", "num_experts"}), f.size({"num_experts_per_tok"}));
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, experts)), false);
}

// Queries, keys and values have biases though no key of the file says so.
Component qwen2(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const auto sizes = grouped_attention(f, d, {.needs_kv_heads = true, .bias = true});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d))), false);
}

Component qwen3(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const bool bias = f.flag("attention_bias", false);
  const auto sizes =
      grouped_attention(f, d, {.head_size = 128, .needs_kv_heads = true, .bias = bias, .output_bias = bias});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d), 2, true)), false);
}

// Every decoder_sparse_step-th layer that mlp_only_layers does not name is a mixture; the others are dense.
Component qwen3_moe(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const bool bias = f.flag("attention_bias", false);
  const auto sizes = grouped_attention(f, d, {.needs_kv_heads = true, .bias = bias, .output_bias = bias});
  const Count layers = f.size({"num_hidden_layers"});
  const Count step = f.size_or({"decoder_sparse_step"}, 1, "every layer");
  const Count experts = f.size_or_zero({"num_experts", "num_local_experts"});
  Count sparse = experts > 0 ? layers.value() / step.value() : 0;
  std::set<std::int64_t> dense_only;
  for (const Count layer : f.list("mlp_only_layers")) dense_only.insert(layer.value());
  for (const std::int64_t layer : dense_only) {
    if (sparse > 0 && layer < layers.value() && (layer + 1) % step.value() == 0) sparse = sparse - 1;
  }
  Parts stacks;
  if (sparse > 0) {
    const Component mix =
        mixture("experts", d, f.size({"moe_intermediate_size"}), experts, f.size({"num_experts_per_tok"}));
    stacks.push_back(stack("layers", sparse, d, llama_layer(sizes, mix, 2, true)));
  }
  if (sparse < layers)
    stacks.push_back(stack("dense_layers", layers - sparse, d, llama_layer(sizes, gated(f, d), 2, true)));
  return llama_model(f, d, stacks, false);
}

Component gemma(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const bool bias = f.flag("attention_bias", false);
  const auto sizes =
      grouped_attention(f, d, {.head_size = 256, .needs_kv_heads = true, .bias = bias, .output_bias = bias});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d))), true);
}

Component gemma2(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const bool bias = f.flag("attention_bias", false);
  const auto sizes =
      grouped_attention(f, d, {.head_size = 256, .needs_kv_heads = true, .bias = bias, .output_bias = bias});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d), 4)), true);
}

Component gemma3_text_base(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const bool bias = f.flag("attention_bias", false);
  const auto sizes =
      grouped_attention(f, d, {.head_size = 256, .needs_kv_heads = true, .bias = bias, .output_bias = bias});
  return group("language_model", llama_base(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d), 4, true))));
}

Component gemma3_text(const Fields& f) {
  const Component base = gemma3_text_base(f);
  return group("model", {base, decoder_head(f, f.size({"hidden_size"}), f.size({"vocab_size"}), true)});
}

// Queries, keys and values are one matrix in the file, gate and value another: the count is the same.
Component phi3(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  return llama_model(f, d, llama_stack(f, d, llama_layer(grouped_attention(f, d, {}), gated(f, d))), false);
}

// Attention and feed-forward side by side on one norm.
Component phi(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const Count v = f.size({"vocab_size"});
  const auto sizes = grouped_attention(f, d, {.bias = true, .output_bias = true});
  Parts layer{norm("norm", d), attention("attention", sizes),
              feed_forward("feed_forward", d, f.size({"intermediate_size"}))};
  if (f.flag("qk_layernorm", false)) {
    const Count head_size = f.heads({"num_attention_heads"}, d, "hidden_size").second;
    layer.insert(layer.end(), {norm("query_norm", head_size), norm("key_norm", head_size)});
  }
  return group("model", {table("embeddings", v, d), stack("layers", f.size({"num_hidden_layers"}), d, layer),
                         norm("final_norm", d), decoder_head(f, d, v, false, true)});
}

Component gpt2(const Fields& f) {
  const Count d = f.size({"n_embd", "hidden_size"});
  const Count v = f.size({"vocab_size"});
  const Component attend = attention("attention", full_attention(f, d, {"n_head", "num_attention_heads"}, "n_embd"));
  Parts layer{norm("norm_1", d), attend, norm("norm_2", d), feed_forward("feed_forward", d, inner_width(f, d))};
  if (f.has("add_cross_attention") && f.flag("add_cross_attention", false)) {
    layer.insert(layer.end(), {norm("cross_attention_norm", d), attend});
    layer.back().name = "cross_attention";
  }
  const auto summary = [=] {
    const bool to_labels = !f.has("summary_proj_to_labels") || f.flag("summary_proj_to_labels", true);
    if (f.has("summary_use_proj") && !f.flag("summary_use_proj", true)) return group("summary", {});
    return linear("summary", d, to_labels ? 1 : d);
  };
  return group("model", {table("token", v, d), table("position", f.size({"n_positions", "max_position_embeddings"}), d),
                         stack("layers", f.size({"n_layer", "num_hidden_layers"}), d, layer), norm("final_norm", d),
                         decoder_head(f, d, v, true, false, summary)});
}

// StarCoder and SantaCoder: GPT-2 whose queries share one key-value head.
Component gpt_bigcode(const Fields& f) {
  const Count d = f.size({"n_embd", "hidden_size"});
  const Count v = f.size({"vocab_size"});
  AttentionSizes sizes = full_attention(f, d, {"n_head", "num_attention_heads"}, "n_embd");
  if (f.flag("multi_query", true)) sizes.kv_heads = 1;
  Parts layer{norm("norm_1", d), attention("attention", sizes), norm("norm_2", d),
              feed_forward("feed_forward", d, inner_width(f, d))};
  if (f.has("add_cross_attention") && f.flag("add_cross_attention", false)) {
    require(sizes.kv_heads == sizes.heads, "add_cross_attention does not go with multi_query");
    layer.insert(layer.end(), {norm("cross_attention_norm", d), attention("cross_attention", sizes)});
  }
  return group("model", {table("token", v, d), table("position", f.size({"n_positions", "max_position_embeddings"}), d),
                         stack("layers", f.size({"n_layer", "num_hidden_layers"}), d, layer), norm("final_norm", d),
                         decoder_head(f, d, v, true)});
}

// Attention without biases and feed-forward side by side on one norm; rotary positions; an untied head with a bias.
Component gptj(const Fields& f) {
  const Count d = f.size({"n_embd", "hidden_size"});
  const Count v = f.size({"vocab_size"});
  const auto sizes = full_attention(f, d, {"n_head", "num_attention_heads"}, "n_embd", false);
  return group(
      "model",
      {table("embeddings", v, d),
       stack("layers", f.size({"n_layer", "num_hidden_layers"}), d,
             {norm("norm", d), attention("attention", sizes), feed_forward("feed_forward", d, inner_width(f, d))}),
       norm("final_norm", d), decoder_head(f, d, v, false, true)});
}

Component gpt_neox(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const Count v = f.size({"vocab_size"});
  const auto sizes = full_attention(f, d, {"num_attention_heads"}, "hidden_size", f.flag("attention_bias", true));
  return group("model", {table("embeddings", v, d),
                         stack("layers", f.size({"num_hidden_layers"}), d,
                               {norm("norm_1", d), attention("attention", sizes), norm("norm_2", d),
                                feed_forward("feed_forward", d, f.size({"intermediate_size"}))}),
                         norm("final_norm", d), decoder_head(f, d, v, false)});
}

// Two rows more than positions; a token table that may be narrower than the layers.
Component opt(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const Count v = f.size({"vocab_size"});
  const Count e = f.size_or({"word_embed_proj_dim"}, d, "hidden_size");
  const bool bias = f.flag("enable_bias", true);
  const Count affine = f.flag("layer_norm_elementwise_affine", true) ? d : 0;
  Parts parts{table("token", v, e), table("position", f.size({"max_position_embeddings"}) + 2, d)};
  if (e != d) parts.insert(parts.end(), {linear("project_in", e, d, false), linear("project_out", d, e, false)});
  parts.push_back(stack(
      "layers", f.size({"num_hidden_layers"}), d,
      {attention("attention", full_attention(f, d, {"num_attention_heads"}, "hidden_size", bias)),
       norm("norm_1", affine), feed_forward("feed_forward", d, f.size({"ffn_dim"}), bias), norm("norm_2", affine)}));
  const bool removed = f.has("_remove_final_layer_norm") && f.flag("_remove_final_layer_norm", false);
  if (f.flag("do_layer_norm_before", true) && !removed) parts.push_back(norm("final_norm", affine));
  parts.push_back(decoder_head(f, e, v, true));
  return group("model", parts);
}

// No table of positions (ALiBi), and a norm right after the token table.
Component bloom(const Fields& f) {
  const Count d = f.size({"hidden_size", "n_embed"});
  const Count v = f.size({"vocab_size"});
  const auto sizes = full_attention(f, d, {"n_head", "num_attention_heads"}, "hidden_size");
  return group("model", {table("embeddings", v, d), norm("embedding_norm", d),
                         stack("layers", f.size({"n_layer", "num_hidden_layers"}), d,
                               {norm("norm_1", d), attention("attention", sizes), norm("norm_2", d),
                                feed_forward("feed_forward", d, Count(4) * d)}),
                         norm("final_norm", d), decoder_head(f, d, v, true)});
}

// 7B: one norm, one key-value head; 40B and 180B (new_decoder_architecture): two norms, groups; rw: full attention.
Component falcon(const Fields& f) {
  const Count d = f.size({"hidden_size", "n_embed"});
  const Count v = f.size({"vocab_size"});
  const bool bias = f.flag("bias", false);
  AttentionSizes sizes = full_attention(f, d, {"num_attention_heads"}, "hidden_size", bias);
  const bool grouped = f.flag("new_decoder_architecture", false);
  if (grouped) {
    sizes.kv_heads = f.size_or({"num_kv_heads"}, sizes.heads, "num_attention_heads");
    require(sizes.heads.value() % sizes.kv_heads.value() == 0, "num_attention_heads ", sizes.heads,
            " is not a multiple of num_kv_heads ", sizes.kv_heads);
  } else if (f.flag("multi_query", true)) {
    sizes.kv_heads = 1;
  }
  Count norms = 2;
  if (f.flag("parallel_attn", true)) {
    norms = f.has("num_ln_in_parallel_attn") ? f.size_or_zero({"num_ln_in_parallel_attn"}) : grouped ? 2 : 1;
  }
  Parts layer{norm("norm_1", d), attention("attention", sizes),
              feed_forward("feed_forward", d, f.size_or({"ffn_hidden_size"}, Count(4) * d, "4 hidden_size"), bias)};
  if (norms == 2) layer.push_back(norm("norm_2", d));
  return group("model", {table("embeddings", v, d), stack("layers", f.size({"num_hidden_layers"}), d, layer),
                         norm("final_norm", d), decoder_head(f, d, v, true)});
}

}  // namespace prenorm::params
