#include "prenorm/encoder_layer.h"

namespace prenorm {

EncoderLayerImpl::EncoderLayerImpl(const EncoderLayerOptions& options_) : options(options_) {
  EncoderLayerImpl::reset();
}

void EncoderLayerImpl::reset() {
  const auto d_model = options.d_model();
  mha = register_module("mha", MultiHeadAttention(MultiHeadAttentionOptions(d_model, options.num_heads())
                                                      .bias(options.attention_bias())
                                                      .dropout(options.attention_dropout())));
  ff = register_module("ff", FeedForward(FeedForwardOptions(d_model, options.d_ff())
                                             .dropout(options.dropout())
                                             .activation(options.activation())
                                             .bias(options.feed_forward_bias())));
  const auto connection = SubLayerConnectionOptions(d_model, options.dropout())
                              .placement(options.norm_placement())
                              .eps(options.eps())
                              .norm_bias(options.norm_bias());
  sub1 = register_module("sub1", SubLayerConnection(connection));
  sub2 = register_module("sub2", SubLayerConnection(connection));
}

void EncoderLayerImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::EncoderLayer";
}

Tensor EncoderLayerImpl::forward(const Tensor& x, const AttentionMask& mask) {
  return std::get<0>(run(x, mask, /*need_weights=*/false));
}

std::tuple<Tensor, Tensor> EncoderLayerImpl::inspect(const Tensor& x, const AttentionMask& mask) {
  return run(x, mask, /*need_weights=*/true);
}

std::tuple<Tensor, Tensor> EncoderLayerImpl::run(const Tensor& x, const AttentionMask& mask, bool need_weights) {
  check_input(x, options.d_model());
  const AttentionMask ready = mask.prepare(x, options.num_heads());
  Tensor weights;
  Tensor y = sub1(x, [&](const Tensor& z) {
    auto [attended, attention_weights] = mha(z, ready, need_weights);
    weights = attention_weights;
    return attended;
  });
  y = sub2(y, ff);
  return {ready.zero_past_lengths(y), weights};
}

}  // namespace prenorm
