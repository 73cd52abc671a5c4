#include "prenorm/encoder.h"

#include <tuple>
#include <utility>

#include "prenorm/layer_norm.h"
#include "prenorm/unpadded.h"

namespace prenorm {

EncoderOptions::EncoderOptions(const EncoderLayerOptions& layer, std::int64_t num_layers) {
  check_positive("num_layers", num_layers);
  layers_.assign(static_cast<size_t>(num_layers), layer);
}

EncoderImpl::EncoderImpl(const EncoderOptions& options_) : options(options_) {
  EncoderImpl::reset();
}

void EncoderImpl::reset() {
  TORCH_CHECK(!options.layers().empty(), "an encoder needs at least one layer");
  const auto& last = options.layers().back();
  layers = register_module("layers", torch::nn::ModuleList());
  for (const auto& layer : options.layers()) {
    TORCH_CHECK(layer.d_model() == last.d_model(), "the layers of an encoder differ in d_model: ", layer.d_model(),
                " and ", last.d_model());
    layers->push_back(EncoderLayer(layer));
  }
  norm = nullptr;
  if (options.final_norm().value_or(last.norm_placement() == NormPlacement::pre)) {
    const bool bias = options.final_norm_bias().value_or(last.norm_bias());
    norm = register_module("norm", detail::layer_norm(last.d_model(), last.eps(), bias));
  }
}

void EncoderImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::Encoder";
}

EncoderLayerImpl& EncoderImpl::layer(size_t i) const {
  const auto module = layers->ptr(i);
  auto* layer = module ? module->as<EncoderLayerImpl>() : nullptr;
  TORCH_CHECK(layer != nullptr, "layers[", i, "] of the encoder is ", module ? "a " + module->name() : "empty",
              ", not an EncoderLayer");
  return *layer;
}

AttentionMask EncoderImpl::prepared(const Tensor& x, const AttentionMask& mask) const {
  const auto& first = options.layers().front();
  check_input(x, first.d_model());
  return mask.prepare(x, first.num_heads());
}

Tensor EncoderImpl::finish(const Tensor& x, const AttentionMask& mask) {
  return norm ? mask.zero_past_lengths(norm(x)) : x;
}

Tensor EncoderImpl::forward(const Tensor& x, const AttentionMask& mask) {
  check_input(x, options.layers().front().d_model());
  if (const auto row = Unpadded::of(x, mask)) return row->pad(forward(row->pack(x), row->mask()));
  const AttentionMask ready = prepared(x, mask);
  Tensor y = x;
  for (size_t i = 0; i < layers->size(); ++i) y = layer(i).forward(y, ready);
  return finish(y, ready);
}

EncoderStates EncoderImpl::inspect(const Tensor& x, const AttentionMask& mask) {
  const AttentionMask ready = prepared(x, mask);
  EncoderStates states;
  states.hidden_states.push_back(x);
  for (size_t i = 0; i < layers->size(); ++i) {
    auto [y, weights] = layer(i).inspect(states.hidden_states.back(), ready);
    states.hidden_states.push_back(std::move(y));
    states.attention_weights.push_back(std::move(weights));
  }
  states.output = states.hidden_states.back() = finish(states.hidden_states.back(), ready);
  return states;
}

}  // namespace prenorm
