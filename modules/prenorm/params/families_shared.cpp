#include "prenorm/params/families_shared.h"

#include "prenorm/error.h"

namespace prenorm::params {

AttentionSizes full_attention(const Fields& f, Count d, Fields::Names heads, std::string_view d_name, bool bias) {
  const auto [n, head_size] = f.heads(heads, d, d_name);
  return {.d = d, .heads = n, .kv_heads = n, .head_size = head_size, .bias = bias, .output_bias = bias};
}

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

Component decoder_head(const Fields& f, Count d, Count vocabulary, bool tied, bool bias,
                       const std::function<Component()>& double_heads) {
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

}  // namespace prenorm::params
