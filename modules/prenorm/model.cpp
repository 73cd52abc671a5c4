#include "prenorm/model.h"

#include "prenorm/error.h"
#include "prenorm/unpadded.h"

namespace prenorm {
namespace {

EncoderLayerOptions layer_options(const ModelConfig& config) {
  return EncoderLayerOptions(config.d_model, config.num_heads)
      .d_ff(config.d_ff)
      .dropout(config.dropout)
      .attention_dropout(config.attention_dropout)
      .activation(config.activation)
      .norm_placement(config.norm_placement)
      .eps(config.norm_eps)
      .attention_bias(config.attention_bias)
      .feed_forward_bias(config.feed_forward_bias)
      .norm_bias(config.norm_bias);
}

EmbeddingsOptions embeddings_options(const ModelConfig& config) {
  return EmbeddingsOptions(config.vocab_size, config.d_model)
      .position(config.position)
      .max_positions(config.max_positions)
      .position_offset(config.position_offset)
      .num_segments(config.num_segments)
      .norm(config.embedding_norm)
      .eps(config.norm_eps)
      .norm_bias(config.norm_bias)
      .dropout(config.embedding_dropout);
}

Tensor mean_of_real(const Tensor& x, const Tensor& real) {
  if (!real.defined()) return x.mean(1);
  // Summed in float: half overflows and bfloat16 stops counting at 256.
  const auto type = x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const Tensor kept = x.masked_fill(~real.unsqueeze(-1), 0.0).to(type);                      // [B,T,D]
  return (kept.sum(1) / real.sum(1, /*keepdim=*/true).clamp_min(1).to(type)).to(x.dtype());  // [B,D]
}

Tensor first_of_real(const Tensor& x, const Tensor& real) {
  if (!real.defined()) return x.select(1, 0);
  const Tensor first = real.to(torch::kInt).argmax(1, /*keepdim=*/true).unsqueeze(-1);  // [B,1,1]
  return x.gather(1, first.expand({-1, -1, x.size(2)})).squeeze(1);                     // [B,D]
}

AttentionMask shown_by(const ModelConfig& config, const AttentionMask& mask) {
  return config.causal ? mask & AttentionMask::causal() : mask;
}

/// The encoder's output x [B,T,D] through the head.
Tensor headed(const ModelConfig& config, const Tensor& x, const AttentionMask& mask,
              const std::function<Tensor(const Tensor&)>& head) {
  if (config.head == Head::none) return x;
  if (config.head == Head::token) return mask.zero_past_lengths(head(x));
  const Tensor real = mask.real_tokens(x.size(0), x.size(1), x.device());
  return head(config.head == Head::sequence_mean ? mean_of_real(x, real) : first_of_real(x, real));
}

void check_config(const ModelConfig& config) {
  try {
    config.validate();
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what());
  }
}

}  // namespace

Tensor detail::answers(const ModelConfig& config, const Tensor& x, const AttentionMask& mask,
                       const std::function<Tensor(const Tensor&, const AttentionMask&)>& encode,
                       const std::function<Tensor(const Tensor&)>& head) {
  const AttentionMask shown = shown_by(config, mask);
  if (const auto row = Unpadded::of(x, shown)) {
    const Tensor y = encode(row->pack(x), row->mask());
    return config.head == Head::token ? row->pad(head(y)) : headed(config, row->pad(y), shown, head);
  }
  const AttentionMask ready = shown.prepare(x, config.num_heads);
  return headed(config, encode(x, ready), ready, head);
}

EncoderModelImpl::EncoderModelImpl(const ModelConfig& config_) : config(config_) {
  EncoderModelImpl::reset();
}

void EncoderModelImpl::reset() {
  check_config(config);
  embeddings = register_module("embeddings", Embeddings(embeddings_options(config)));
  encoder = register_module(
      "encoder", Encoder(EncoderOptions(layer_options(config), config.num_layers).final_norm(config.final_norm)));
  head = nullptr;
  if (config.head != Head::none) {
    head = register_module("head", torch::nn::Linear(config.d_model, config.num_classes));
    if (config.tie_head) {
      head->weight = embeddings->token->weight;
      detail::register_used(*head);
    }
  }
}

void EncoderModelImpl::set_head(Head kind, std::int64_t num_classes) {
  ModelConfig changed = config;
  changed.head = kind;
  changed.num_classes = num_classes;
  changed.tie_head = false;
  check_config(changed);
  config = changed;
  if (head) unregister_module("head");
  head = nullptr;
  if (kind == Head::none) return;
  head = register_module("head", torch::nn::Linear(config.d_model, num_classes));
  const Tensor& body = embeddings->token->weight;
  head->to(body.device(), body.scalar_type());
  head->train(is_training());
}

void EncoderModelImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::EncoderModel";
}

Tensor EncoderModelImpl::forward(const Tensor& ids, const AttentionMask& mask, const Tensor& segment_ids) {
  return detail::answers(
      config, embeddings(ids, segment_ids), mask,
      [&](const Tensor& x, const AttentionMask& shown) { return encoder(x, shown); },
      [&](const Tensor& x) { return head(x); });
}

EncoderStates EncoderModelImpl::inspect(const Tensor& ids, const AttentionMask& mask, const Tensor& segment_ids) {
  const Tensor x = embeddings(ids, segment_ids);
  const AttentionMask ready = shown_by(config, mask).prepare(x, config.num_heads);
  EncoderStates states = encoder->inspect(x, ready);
  states.output = headed(config, states.output, ready, [&](const Tensor& y) { return head(y); });
  return states;
}

}  // namespace prenorm
