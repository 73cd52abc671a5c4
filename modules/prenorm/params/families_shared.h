#pragma once

#include <functional>
#include <string_view>

#include "prenorm/params/families.h"

namespace prenorm::params {

/// Attention whose heads divide `d` and all have keys and values of their own.
AttentionSizes full_attention(const Fields& fields, Count d, Fields::Names heads, std::string_view d_name,
                              bool bias = true);

/// What the grouped attention of a family has when its keys are missing: a head size of its own, or d / heads; key and
/// value heads in the file (perhaps null), or as many as heads.
struct GroupedRule {
  Count head_size = 0;
  bool needs_kv_heads = false;
  bool bias = false;
  bool output_bias = false;
};

/// Attention of num_attention_heads, num_key_value_heads and head_dim.
AttentionSizes grouped_attention(const Fields& fields, Count d, const GroupedRule& rule);

/// The heads of every decoder, on a width `d`. `double_heads` is GPT-2's second one.
Component decoder_head(const Fields& fields, Count d, Count vocabulary, bool tied, bool bias = false,
                       const std::function<Component()>& double_heads = {});

}  // namespace prenorm::params
