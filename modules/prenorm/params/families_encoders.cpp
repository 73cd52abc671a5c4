// Encoders of the BERT line: bidirectional, post-norm but for ModernBERT, a masked-language head tied to the tokens.
#include <algorithm>

#include "prenorm/error.h"
#include "prenorm/params/families_shared.h"

namespace prenorm::params {
namespace {

/// dense d -> e, norm, and the tied output matrix with its bias; untied, transformers keeps a second bias.
Component masked_language_head(const Fields& f, Count d, Count e, Count vocabulary) {
  const bool tied = f.tied(true);
  return group("mlm", {linear("dense", d, e), norm("norm", e), output("decoder", e, vocabulary, tied, !tied),
                       parameter("bias", vocabulary)});
}

/// Gated as JinaBert's: one matrix without a bias for gate and value.
Component bert_feed_forward(const Fields& f, Count d) {
  const Count inner = f.size({"intermediate_size"});
  const std::string type = f.text("feed_forward_type", "original");
  if (!type.ends_with("glu")) return feed_forward("feed_forward", d, inner);
  f.doubt("feed_forward_type \"" + type.substr(0, 40) + "\": counted with a gate, as in JinaBert");
  return group("feed_forward", {linear("gate_and_value", d, Count(2) * inner, false), linear("output", inner, d)});
}

Parts bert_layer(const Fields& f, Count d) {
  const Component attend = attention("attention", full_attention(f, d, {"num_attention_heads"}, "hidden_size"));
  Parts parts{attend, norm("attention_norm", d)};
  if (f.has("add_cross_attention") && f.flag("add_cross_attention", false)) {
    require(f.flag("is_decoder", false), "add_cross_attention needs is_decoder");
    parts.insert(parts.end(), {attend, norm("cross_attention_norm", d)});
    parts[2].name = "cross_attention";
  }
  parts.insert(parts.end(), {bert_feed_forward(f, d), norm("norm", d)});
  return parts;
}

/// No class of transformers has another than "absolute", but published code does: JinaBert has ALiBi instead.
Parts position_table(const Fields& f, Count d) {
  const std::string type = f.text("position_embedding_type", "absolute");
  const Component positions = table("position", f.size({"max_position_embeddings"}), d);
  if (type == "absolute") return {positions};
  const std::string field = "position_embedding_type \"" + type.substr(0, 40) + "\"";
  if (type == "alibi" || type == "rotary" || type == "rope") {
    f.doubt(field + ": counted without a table of positions");
    return {};
  }
  f.doubt(field + " is not followed, as in transformers 5: a file may hold distance_embedding");
  return {positions};
}

/// The farthest distance that DeBERTa's table of relative positions tells apart.
Count relative_rows(const Fields& f) {
  const Count buckets = f.integer("position_buckets", -1);
  const Count distance = f.integer("max_relative_positions", -1);
  if (buckets > 0) return buckets;
  return distance > 0 ? distance : f.size({"max_position_embeddings"});
}

bool contains(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Tokens, positions and segments, as BERT, RoBERTa and ALBERT have them.
Component bert_embeddings(const Fields& f, Count d, Count vocabulary) {
  Parts parts{table("token", vocabulary, d)};
  for (Component& part : position_table(f, d)) parts.push_back(std::move(part));
  parts.insert(parts.end(), {table("token_type", f.size_or_zero({"type_vocab_size"}), d), norm("norm", d)});
  return group("embeddings", parts);
}

/// What BERT and RoBERTa share; `heads` are theirs.
Component bert_model(const Fields& f, Count d, Count vocabulary, const std::vector<HeadRule>& heads) {
  return group("model", {bert_embeddings(f, d, vocabulary),
                         stack("layers", f.size({"num_hidden_layers"}), d, bert_layer(f, d)), f.head(heads)});
}

}  // namespace

Component bert(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const Count v = f.size({"vocab_size"});
  const auto pooler = [=] { return linear("pooler", d, d); };
  const auto mlm = [=] { return masked_language_head(f, d, d, v); };
  const auto classes = [=](Count n) { return linear("classifier", d, n); };
  return bert_model(f, d, v,
                    {{{"Model"}, [=] { return Parts{pooler()}; }},
                     {{"ForMaskedLM", "LMHeadModel", "ForCausalLM"}, [=] { return Parts{mlm()}; }},
                     {{"ForPreTraining"},
                      [=] {
                        return Parts{pooler(), mlm(), classes(2)};
                      }},
                     {{"ForNextSentencePrediction"},
                      [=] {
                        return Parts{pooler(), classes(2)};
                      }},
                     {{"ForSequenceClassification"},
                      [=] {
                        return Parts{pooler(), classes(f.labels())};
                      }},
                     {{"ForMultipleChoice"},
                      [=] {
                        return Parts{pooler(), classes(1)};
                      }},
                     {{"ForTokenClassification", "ForQuestionAnswering"}, [=] { return Parts{classes(f.labels())}; }}});
}

// Also CamemBERT and XLM-RoBERTa. The file's max_position_embeddings has the two rows more that padding takes.
Component roberta(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const Count v = f.size({"vocab_size"});
  const auto dense = [=](const char* name) { return linear(name, d, d); };
  const auto classes = [=](Count n) { return linear("classifier", d, n); };
  return bert_model(f, d, v,
                    {{{"Model"}, [=] { return Parts{dense("pooler")}; }},
                     {{"ForMaskedLM", "ForCausalLM"}, [=] { return Parts{masked_language_head(f, d, d, v)}; }},
                     {{"ForSequenceClassification"},
                      [=] {
                        return Parts{dense("dense"), classes(f.labels())};
                      }},
                     {{"ForMultipleChoice"},
                      [=] {
                        return Parts{dense("pooler"), classes(1)};
                      }},
                     {{"ForTokenClassification", "ForQuestionAnswering"}, [=] { return Parts{classes(f.labels())}; }}});
}

Component distilbert(const Fields& f) {
  const Count d = f.size({"dim", "hidden_size"});
  const Count v = f.size({"vocab_size"});
  const auto pre = [=] { return linear("pre_classifier", d, d); };
  const auto classes = [=](Count n) { return linear("classifier", d, n); };
  const AttentionSizes sizes = full_attention(f, d, {"n_heads", "num_attention_heads"}, "dim");
  return group(
      "model",
      {group("embeddings",
             {table("token", v, d), table("position", f.size({"max_position_embeddings"}), d), norm("norm", d)}),
       stack("layers", f.size({"n_layers", "num_hidden_layers"}), d,
             {attention("attention", sizes), norm("attention_norm", d),
              feed_forward("feed_forward", d, f.size({"hidden_dim"})), norm("norm", d)}),
       f.head({{{"Model"}, [] { return Parts{}; }},
               {{"ForMaskedLM"},
                [=] {
                  return Parts{linear("dense", d, d), norm("norm", d), output("decoder", d, v, f.tied(true), true)};
                }},
               {{"ForSequenceClassification"},
                [=] {
                  return Parts{pre(), classes(f.labels())};
                }},
               {{"ForMultipleChoice"},
                [=] {
                  return Parts{pre(), classes(1)};
                }},
               {{"ForTokenClassification", "ForQuestionAnswering"}, [=] { return Parts{classes(f.labels())}; }}})});
}

// The layers of a group share their weights: num_hidden_layers changes nothing.
Component albert(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const Count e = f.size({"embedding_size"});
  const Count v = f.size({"vocab_size"});
  const Count own_layers = f.size({"num_hidden_groups"}) * f.size({"inner_group_num"});
  const auto pooler = [=] { return linear("pooler", d, d); };
  const auto mlm = [=] { return masked_language_head(f, d, e, v); };
  const auto classes = [=](Count n) { return linear("classifier", d, n); };
  f.note(std::to_string(f.size({"num_hidden_layers"}).value()) + " layers share the weights of " +
         std::to_string(own_layers.value()));
  return group(
      "model",
      {bert_embeddings(f, e, v), linear("embedding_projection", e, d), stack("layers", own_layers, d, bert_layer(f, d)),
       f.head({{{"Model"}, [=] { return Parts{pooler()}; }},
               {{"ForMaskedLM"}, [=] { return Parts{mlm()}; }},
               {{"ForPreTraining"},
                [=] {
                  return Parts{pooler(), mlm(), classes(f.labels())};
                }},
               {{"ForSequenceClassification"},
                [=] {
                  return Parts{pooler(), classes(f.labels())};
                }},
               {{"ForMultipleChoice"},
                [=] {
                  return Parts{pooler(), classes(1)};
                }},
               {{"ForTokenClassification", "ForQuestionAnswering"}, [=] { return Parts{classes(f.labels())}; }}})});
}

// DeBERTa v2 and v3. Relative positions are rows of a table, with projections of their own unless share_att_key.
Component deberta_v2(const Fields& f) {
  f.ignore({"position_buckets", "max_relative_positions", "max_position_embeddings", "pos_att_type", "conv_groups",
            "pooler_hidden_size"});
  const Count d = f.size({"hidden_size"});
  const Count v = f.size({"vocab_size"});
  const Count e = f.has("embedding_size") ? f.size({"embedding_size"}) : d;
  AttentionSizes sizes = full_attention(f, d, {"num_attention_heads"}, "hidden_size");
  if (f.has("attention_head_size")) sizes.head_size = f.size({"attention_head_size"});
  const Count q = sizes.heads * sizes.head_size;
  // The output projection is d -> d, whatever the head size.
  Component attend = group("attention", {linear("query", d, q), linear("key", d, q), linear("value", d, q),
                                         linear("output", d, d), norm("norm", d)});

  Component embeddings = group("embeddings", {table("token", v, e)});
  if (f.flag("position_biased_input", true)) {
    embeddings.children.push_back(table("position", f.size({"max_position_embeddings"}), e));
  }
  if (const Count types = f.size_or_zero({"type_vocab_size"}); types > 0) {
    embeddings.children.push_back(table("token_type", types, e));
  }
  if (e != d) embeddings.children.push_back(linear("projection", e, d, false));
  embeddings.children.push_back(norm("norm", d));

  Parts parts{embeddings};
  if (f.flag("relative_attention", false)) {
    parts.push_back(table("relative_position", Count(2) * relative_rows(f), d));
    if (!f.flag("share_att_key", false)) {
      const std::vector<std::string> kinds = f.words("pos_att_type");
      if (contains(kinds, "c2p")) attend.children.push_back(linear("position_key", d, q));
      if (contains(kinds, "p2c")) attend.children.push_back(linear("position_query", d, q));
    }
  }
  if (contains(f.words("norm_rel_ebd"), "layer_norm")) parts.push_back(norm("relative_position_norm", d));
  if (f.has("conv_kernel_size") && f.size_or_zero({"conv_kernel_size"}) > 0) {
    const Count groups = f.has("conv_groups") ? f.size({"conv_groups"}) : 1;
    require(d.value() % groups.value() == 0, "hidden_size ", d, " is not divisible by conv_groups ", groups);
    parts.push_back(linear("convolution", d.value() / groups.value() * f.size({"conv_kernel_size"}), d));
    parts.push_back(norm("convolution_norm", d));
  }
  parts.push_back(stack("layers", f.size({"num_hidden_layers"}), d,
                        {attend, feed_forward("feed_forward", d, f.size({"intermediate_size"})), norm("norm", d)}));

  const auto pooler = [=] {
    const Count p = f.has("pooler_hidden_size") ? f.size({"pooler_hidden_size"}) : d;
    return linear("pooler", p, p);
  };
  const auto classes = [=](Count n) { return linear("classifier", d, n); };
  const auto mlm = [=] {
    if (f.flag("legacy", true)) return Parts{masked_language_head(f, d, e, v)};
    return Parts{linear("dense", d, d), norm("norm", d), parameter("bias", v)};
  };
  parts.push_back(
      f.head({{{"Model"}, [] { return Parts{}; }},
              {{"ForMaskedLM"}, mlm},
              {{"ForSequenceClassification"},
               [=] {
                 return Parts{pooler(), classes(f.labels())};
               }},
              {{"ForMultipleChoice"},
               [=] {
                 return Parts{pooler(), classes(1)};
               }},
              {{"ForTokenClassification", "ForQuestionAnswering"}, [=] { return Parts{classes(f.labels())}; }}}));
  return group("model", parts);
}

// The first layer has no norm before its attention: the embeddings end with one.
Component modernbert(const Fields& f) {
  f.ignore({"classifier_bias", "decoder_bias", "position_embedding_type", "max_position_embeddings"});
  const Count d = f.size({"hidden_size"});
  const Count v = f.size({"vocab_size"});
  const Count layers = f.size({"num_hidden_layers"});
  const bool norm_bias = f.flag("norm_bias", false);
  AttentionSizes sizes = full_attention(f, d, {"num_attention_heads"}, "hidden_size");
  sizes.bias = sizes.output_bias = f.flag("attention_bias", false);
  const Parts first{attention("attention", sizes), norm("norm", d, norm_bias),
                    gated_feed_forward("feed_forward", d, f.size({"intermediate_size"}), f.flag("mlp_bias", false))};
  Parts later = first;
  later.insert(later.begin(), norm("attention_norm", d, norm_bias));

  const auto dense = [=] {
    return group("prediction", {linear("dense", d, d, f.flag("classifier_bias", false)), norm("norm", d, norm_bias)});
  };
  const auto classes = [=](Count n) { return linear("classifier", d, n); };
  Parts parts{group("embeddings", {table("token", v, d), norm("norm", d, norm_bias)}), stack("layer_0", 1, d, first)};
  if (layers > 1) parts.push_back(stack("layers_1_on", layers - 1, d, later));
  parts.push_back(norm("final_norm", d, norm_bias));
  parts.push_back(f.head({{{"Model"}, [] { return Parts{}; }},
                          {{"ForMaskedLM"},
                           [=] {
                             return Parts{dense(), output("decoder", d, v, f.tied(true), f.flag("decoder_bias", true))};
                           }},
                          {{"ForMultipleChoice"},
                           [=] {
                             return Parts{dense(), classes(1)};
                           }},
                          {{"ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"}, [=] {
                             return Parts{dense(), classes(f.labels())};
                           }}}));
  return group("model", parts);
}

}  // namespace prenorm::params
