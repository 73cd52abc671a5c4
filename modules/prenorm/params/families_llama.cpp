// The Llama line: RMS norms, rotary positions, grouped attention, gated feed-forward or a mixture of them.
#include <set>

#include "prenorm/params/families_shared.h"

namespace prenorm::params {
namespace {

/// Grouped attention with all its biases or none, as attention_bias says.
AttentionSizes biased_attention(const Fields& f, Count d, GroupedRule rule) {
  rule.bias = rule.output_bias = f.flag("attention_bias", false);
  return grouped_attention(f, d, rule);
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
  const auto sizes = biased_attention(f, d, {});
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
  const auto sizes = biased_attention(f, d, {.head_size = 128, .needs_kv_heads = true});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d), 2, true)), false);
}

// Every decoder_sparse_step-th layer that mlp_only_layers does not name is a mixture; the others are dense.
Component qwen3_moe(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const auto sizes = biased_attention(f, d, {.needs_kv_heads = true});
  const Count layers = f.size({"num_hidden_layers"});
  const Count step = f.size_or({"decoder_sparse_step"}, 1, "every layer");
  const Count experts = f.size_or_zero({"num_experts", "num_local_experts"});
  f.ignore({"intermediate_size", "moe_intermediate_size", "num_experts_per_tok"});
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
  const auto sizes = biased_attention(f, d, {.head_size = 256, .needs_kv_heads = true});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d))), true);
}

Component gemma2(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const auto sizes = biased_attention(f, d, {.head_size = 256, .needs_kv_heads = true});
  return llama_model(f, d, llama_stack(f, d, llama_layer(sizes, gated(f, d), 4)), true);
}

Component gemma3_text_base(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const auto sizes = biased_attention(f, d, {.head_size = 256, .needs_kv_heads = true});
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

}  // namespace prenorm::params
