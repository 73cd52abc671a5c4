#include "prenorm/weights/layout.h"

namespace prenorm {
namespace {

/// Where `part` stands in `key` as whole names between dots; npos when it does not.
std::size_t find_part(const std::string& key, const std::string& part) {
  for (auto at = key.find(part); at != std::string::npos; at = key.find(part, at + 1)) {
    const auto end = at + part.size();
    if ((at == 0 || key[at - 1] == '.') && (end == key.size() || key[end] == '.')) return at;
  }
  return std::string::npos;
}

}  // namespace

Layout course_layout() {
  return {{"mha.in_proj", {"mha.w_q", "mha.w_k", "mha.w_v"}}, {"mha.out_proj", {"mha.w_o"}}};
}

Layout torch_layout() {
  return {{"mha.in_proj.weight", {"self_attn.in_proj_weight"}},
          {"mha.in_proj.bias", {"self_attn.in_proj_bias"}},
          {"mha.out_proj", {"self_attn.out_proj"}},
          {"ff.net.0", {"linear1"}},
          {"ff.net.3", {"linear2"}},
          {"sub1.norm", {"norm1"}},
          {"sub2.norm", {"norm2"}}};
}

Layout bert_layout() {
  return {{"embeddings.token", {"embeddings.word_embeddings"}},
          {"embeddings.position", {"embeddings.position_embeddings"}},
          {"embeddings.segment", {"embeddings.token_type_embeddings"}},
          {"embeddings.norm", {"embeddings.LayerNorm"}},
          {"encoder.layers", {"encoder.layer"}},
          {"mha.in_proj", {"attention.self.query", "attention.self.key", "attention.self.value"}},
          {"mha.out_proj", {"attention.output.dense"}},
          {"sub1.norm", {"attention.output.LayerNorm"}},
          {"ff.net.0", {"intermediate.dense"}},
          {"ff.net.3", {"output.dense"}},
          {"sub2.norm", {"output.LayerNorm"}},
          {"head", {"classifier"}}};
}

Layout distilbert_layout() {
  return {{"embeddings.token", {"embeddings.word_embeddings"}},
          {"embeddings.position", {"embeddings.position_embeddings"}},
          {"embeddings.norm", {"embeddings.LayerNorm"}},
          {"encoder.layers", {"transformer.layer"}},
          {"mha.in_proj", {"attention.q_lin", "attention.k_lin", "attention.v_lin"}},
          {"mha.out_proj", {"attention.out_lin"}},
          {"sub1.norm", {"sa_layer_norm"}},
          {"ff.net.0", {"ffn.lin1"}},
          {"ff.net.3", {"ffn.lin2"}},
          {"sub2.norm", {"output_layer_norm"}},
          {"head", {"classifier"}}};
}

Layout gpt2_layout() {
  return {{"embeddings.token", {"wte"}},
          {"embeddings.position", {"wpe"}},
          {"encoder.layers", {"h"}},
          {"encoder.norm", {"ln_f"}},
          {"mha.in_proj", {"attn.c_attn"}, true},
          {"mha.out_proj", {"attn.c_proj"}, true},
          {"ff.net.0", {"mlp.c_fc"}, true},
          {"ff.net.3", {"mlp.c_proj"}, true},
          {"sub1.norm", {"ln_1"}},
          {"sub2.norm", {"ln_2"}},
          {"head", {"classifier"}}};
}

FileKeys file_keys(const Layout& layout, const std::string& ours) {
  FileKeys keys{.names = {ours}};
  for (const LayoutRule& rule : layout) {
    std::vector<std::string> renamed;
    for (const std::string& key : keys.names) {
      const auto at = find_part(key, rule.ours);
      if (at == std::string::npos) {
        renamed.push_back(key);
        continue;
      }
      keys.transposed = keys.transposed || rule.transposed;
      for (const std::string& part : rule.theirs)
        renamed.push_back(std::string(key).replace(at, rule.ours.size(), part));
    }
    keys.names = std::move(renamed);
  }
  return keys;
}

}  // namespace prenorm
