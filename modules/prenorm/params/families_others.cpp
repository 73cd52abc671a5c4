// Models of several stacks, and of images and sound.
#include <tuple>

#include "prenorm/error.h"
#include "prenorm/params/families.h"

namespace prenorm::params {
namespace {

/// One of T5's two stacks; the first layer's table of relative positions serves all of them.
Component t5_stack(const Fields& f, std::string name, Count layers, bool decoder) {
  const Count d = f.size({"d_model", "hidden_size"});
  const Count heads = f.size({"num_heads", "num_attention_heads"});
  const Count ff = f.size({"d_ff"});
  const AttentionSizes sizes{.d = d,
                             .heads = heads,
                             .kv_heads = heads,
                             .head_size = f.size({"d_kv", "head_dim"}),
                             .bias = false,
                             .output_bias = false};
  const bool gated_by_name = f.text("feed_forward_proj", "relu").starts_with("gated-");
  const bool gated = f.has("is_gated_act") ? f.flag("is_gated_act", gated_by_name) : gated_by_name;
  Parts layer{rms_norm("attention_norm", d), attention("attention", sizes)};
  if (decoder) {
    layer.insert(layer.end(), {rms_norm("cross_attention_norm", d), attention("cross_attention", sizes)});
  }
  layer.insert(layer.end(), {rms_norm("norm", d), gated ? gated_feed_forward("feed_forward", d, ff)
                                                        : feed_forward("feed_forward", d, ff, false)});
  Component bias = table("relative_position_bias", f.size({"relative_attention_num_buckets"}), heads);
  bias.embedding = false;  // added to attention scores, not to the residual stream
  return group(std::move(name), {bias, stack("layers", layers, d, layer), rms_norm("final_norm", d)});
}

/// A stack of a vision Transformer's layers, pre-norm with biases.
Component vision_layers(const Fields& f, const AttentionSizes& sizes) {
  return stack("layers", f.size({"num_hidden_layers"}), sizes.d,
               {norm("norm_1", sizes.d), attention("attention", sizes), norm("norm_2", sizes.d),
                feed_forward("feed_forward", sizes.d, f.size({"intermediate_size"}))});
}

Count patches(const Fields& f) {
  const auto [height, width] = f.size_2d("image_size");
  const auto [patch_height, patch_width] = f.size_2d("patch_size");
  return Count(height.value() / patch_height.value()) * Count(width.value() / patch_width.value());
}

Component patch_projection(const Fields& f, Count d) {
  const auto [height, width] = f.size_2d("patch_size");
  return linear("patch_projection", f.size({"num_channels"}) * height * width, d);
}

/// SigLIP's vision tower, as Gemma 3 uses it.
Component siglip_vision(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  const auto [heads, head_size] = f.heads({"num_attention_heads"}, d, "hidden_size");
  const AttentionSizes sizes{.d = d, .heads = heads, .kv_heads = heads, .head_size = head_size};
  Parts parts{group("embeddings", {patch_projection(f, d), table("position", patches(f), d)}), vision_layers(f, sizes),
              norm("final_norm", d)};
  if (f.flag("vision_use_head", true)) {
    parts.push_back(group("pooling_head", {parameter("probe", d), attention("attention", sizes), norm("norm", d),
                                           feed_forward("feed_forward", d, f.size({"intermediate_size"}))}));
  }
  return group("vision_tower", parts);
}

/// An encoder or decoder of Whisper; keys have no bias.
Component whisper_stack(const Fields& f, bool decoder) {
  const std::string name = decoder ? "decoder" : "encoder";
  const Count d = f.size({"d_model", "hidden_size"});
  const auto [heads, head_size] = f.heads({name + "_attention_heads"}, d, "d_model");
  const AttentionSizes sizes{.d = d, .heads = heads, .kv_heads = heads, .head_size = head_size, .key_bias = false};
  Parts layer{norm("attention_norm", d), attention("attention", sizes)};
  if (decoder) layer.insert(layer.end(), {norm("cross_attention_norm", d), attention("cross_attention", sizes)});
  layer.insert(layer.end(), {norm("norm", d), feed_forward("feed_forward", d, f.size({name + "_ffn_dim"}))});
  if (decoder) {
    return group(name,
                 {table("token", f.size({"vocab_size"}), d), table("position", f.size({"max_target_positions"}), d),
                  stack("layers", f.size({"decoder_layers"}), d, layer), norm("final_norm", d)});
  }
  return group(
      name, {linear("convolution_1", Count(3) * f.size({"num_mel_bins"}), d), linear("convolution_2", Count(3) * d, d),
             table("position", f.size({"max_source_positions"}), d),
             stack("layers", f.size({"encoder_layers", "num_hidden_layers"}), d, layer), norm("final_norm", d)});
}

}  // namespace

// transformers ties the head whatever tie_word_embeddings says; the files of T5 1.1 and Flan-T5 hold one of their own.
Component t5(const Fields& f) {
  f.ignore({"num_decoder_layers"});
  const Count d = f.size({"d_model", "hidden_size"});
  const Count v = f.size({"vocab_size"});
  const Count layers = f.size({"num_layers", "num_hidden_layers"});
  const auto encoder = [=] { return t5_stack(f, "encoder", layers, false); };
  const auto decoder = [=] {
    return t5_stack(f, "decoder", f.size_or({"num_decoder_layers"}, layers, "num_layers"), true);
  };
  const auto lm_head = [=] {
    if (f.has("tie_word_embeddings") && !f.tied(true)) {
      f.note(
          "tie_word_embeddings is false, but transformers ties T5's head all the same; a file with a head of its "
          "own has " +
          std::to_string((d * v).value()) + " more");
    }
    return output("lm_head", d, v, true);
  };
  const auto classes = [=] { return linear("classifier", d, f.labels()); };
  Parts parts = f.head_parts({{{"Model"},
                               [=] {
                                 return Parts{encoder(), decoder()};
                               }},
                              {{"ForConditionalGeneration", "WithLMHeadModel"},
                               [=] {
                                 return Parts{encoder(), decoder(), lm_head()};
                               }},
                              {{"EncoderModel"}, [=] { return Parts{encoder()}; }},
                              {{"ForSequenceClassification"},
                               [=] {
                                 return Parts{encoder(), decoder(), linear("dense", d, d), classes()};
                               }},
                              {{"ForTokenClassification"},
                               [=] {
                                 return Parts{encoder(), classes()};
                               }},
                              {{"ForQuestionAnswering"}, [=] {
                                 return Parts{encoder(), decoder(), classes()};
                               }}});
  parts.insert(parts.begin(), table("shared", v, d));
  return group("model", parts);
}

Component vit(const Fields& f) {
  const Count d = f.size({"hidden_size"});
  f.ignore({"pooler_output_size"});
  AttentionSizes sizes{.d = d};
  if (f.has("head_dim")) {
    sizes.heads = f.size({"num_attention_heads"});
    sizes.head_size = f.size({"head_dim"});
  } else {
    std::tie(sizes.heads, sizes.head_size) = f.heads({"num_attention_heads"}, d, "hidden_size");
  }
  sizes.kv_heads = sizes.heads;
  sizes.bias = f.flag("qkv_bias", true);
  const auto pooler = [=] {
    return linear("pooler", d, f.has("pooler_output_size") ? f.size({"pooler_output_size"}) : d);
  };
  const auto unmask = [=] {
    const Count stride = f.size({"encoder_stride"});
    return Parts{parameter("mask_token", d), linear("decoder", d, stride * stride * f.size({"num_channels"}))};
  };
  return group(
      "model",
      {group("embeddings", {table("class_token", 1, d), patch_projection(f, d), table("position", patches(f) + 1, d)}),
       vision_layers(f, sizes), norm("final_norm", d),
       f.head({{{"Model"}, [=] { return Parts{pooler()}; }},
               {{"ForImageClassification"}, [=] { return Parts{linear("classifier", d, f.labels())}; }},
               {{"ForMaskedImageModeling"}, unmask}})});
}

// The encoder's table of sinusoids is a parameter in transformers, frozen but counted.
Component whisper(const Fields& f) {
  const Count d = f.size({"d_model", "hidden_size"});
  f.ignore({"encoder_layers", "num_hidden_layers", "encoder_attention_heads", "encoder_ffn_dim", "decoder_layers",
            "decoder_attention_heads", "decoder_ffn_dim", "max_source_positions", "max_target_positions",
            "classifier_proj_size", "use_weighted_layer_sum"});
  const auto encoder = [=] { return whisper_stack(f, false); };
  const auto decoder = [=] { return whisper_stack(f, true); };
  const auto proj_out = [=] { return output("proj_out", d, f.size({"vocab_size"}), f.tied(true)); };
  const auto audio = [=] {
    const Count width = f.size({"classifier_proj_size"});
    Parts parts{encoder(), linear("projector", d, width), linear("classifier", width, f.labels())};
    if (f.has("use_weighted_layer_sum") && f.flag("use_weighted_layer_sum", false)) {
      parts.push_back(parameter("layer_weights", f.size({"encoder_layers", "num_hidden_layers"}) + 1));
    }
    return parts;
  };
  return group("model", f.head_parts({{{"Model"},
                                       [=] {
                                         return Parts{encoder(), decoder()};
                                       }},
                                      {{"ForConditionalGeneration"},
                                       [=] {
                                         return Parts{encoder(), decoder(), proj_out()};
                                       }},
                                      {{"ForCausalLM"},
                                       [=] {
                                         return Parts{decoder(), proj_out()};
                                       }},
                                      {{"ForAudioClassification"}, audio}}));
}

// Images and text: a SigLIP tower, a projector, and the text model of gemma3_text.
Component gemma3(const Fields& f) {
  const Fields text = f.object("text_config");
  const Fields vision = f.object("vision_config");
  const Count d = text.size({"hidden_size"});
  const Count v = text.size({"vocab_size"});
  const Count d_vision = vision.size({"hidden_size"});
  const std::string tower = vision.text("model_type", "siglip_vision_model");
  require(tower == "siglip_vision_model", "vision_config.model_type \"", tower,
          "\" is not supported; known: siglip_vision_model");
  const Component projector =
      group("projector", {linear("projection", d_vision, d, false), rms_norm("norm", d_vision)});
  return group(
      "model",
      {siglip_vision(vision), projector, gemma3_text_base(text),
       f.head({{{"Model"}, [] { return Parts{}; }},
               {{"ForConditionalGeneration"}, [=] { return Parts{output("lm_head", d, v, f.tied(true))}; }},
               {{"ForSequenceClassification"}, [=] { return Parts{linear("score", d, f.labels(), false)}; }}})});
}

}  // namespace prenorm::params
