// Decoders of the GPT line: LayerNorms with biases, plain feed-forward.
#include "prenorm/error.h"
#include "prenorm/params/families_shared.h"

namespace prenorm::params {
namespace {

Count inner_width(const Fields& f, Count d) {
  return f.size_or({"n_inner"}, Count(4) * d, "4 n_embd");
}

}  // namespace

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
  AttentionSizes sizes = full_attention(f, d, {"n_head", "num_attention_heads"}, "n_embd");
  if (f.text("attention_head_type", "multihead") == "multiquery") {
    f.doubt("attention_head_type \"multiquery\": counted with one key-value head, as in SantaCoder");
    sizes.kv_heads = 1;
  }
  const Component attend = attention("attention", sizes);
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
  f.ignore({"num_key_value_heads"});
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
  f.ignore({"num_kv_heads", "multi_query", "parallel_attn", "num_ln_in_parallel_attn", "alibi"});
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
