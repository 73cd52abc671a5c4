#pragma once

#include <string>
#include <vector>

#include "prenorm/params/count.h"

namespace prenorm::params {

using Parts = std::vector<Component>;

/// Parts under one name.
Component group(std::string name, Parts parts);

/// `layers` Transformer layers of width `d`, each with weights of its own.
Component stack(std::string name, Count layers, Count d, Parts parts);

/// in*out weights and, with a bias, `out` more.
Component linear(std::string name, Count in, Count out, bool bias = true);

/// A vector or tensor of `size` parameters.
Component parameter(std::string name, Count size);

/// d scales and, with a bias, d shifts (an RMS norm has none).
Component norm(std::string name, Count d, bool bias = true);
Component rms_norm(std::string name, Count d);

/// rows*d parameters that are looked up.
Component table(std::string name, Count rows, Count d);

/// The matrix from width `d` to the vocabulary. Tied to the token table it adds no weight; its bias is its own.
Component output(std::string name, Count d, Count vocabulary, bool tied, bool bias = false);

/// The sizes of an attention block: d wide outside, heads*head_size for queries, kv_heads*head_size for keys and
/// values.
struct AttentionSizes {
  Count d = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool bias = true;         ///< of queries and values
  bool key_bias = true;     ///< of keys; only with `bias`
  bool output_bias = true;  ///< of the output projection
};

/// Query, key, value and output projections; a fused one has the same count.
Component attention(std::string name, const AttentionSizes& sizes);

/// d -> f -> d.
Component feed_forward(std::string name, Count d, Count f, bool bias = true);

/// Gate and value d -> f, then f -> d: three matrices.
Component gated_feed_forward(std::string name, Count d, Count f, bool bias = false);

/// A router d -> experts and that many gated feed-forward blocks without biases, of which `per_token` work on a token.
Component mixture(std::string name, Count d, Count f, Count experts, Count per_token);

}  // namespace prenorm::params
