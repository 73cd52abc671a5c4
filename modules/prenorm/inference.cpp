#include "prenorm/inference.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <memory>

#include "prenorm/unpadded.h"

namespace prenorm {
namespace {

Tensor copied(const Tensor& parameter) {
  return parameter.defined() ? parameter.detach().clone() : parameter;
}

const torch::nn::LinearImpl& linear_in(const FeedForward& ff, size_t place) {
  const auto* linear = ff->net->size() == 4 ? ff->net->ptr(place)->as<torch::nn::LinearImpl>() : nullptr;
  TORCH_CHECK(linear != nullptr, "a feed-forward block is not the one that its options say, and cannot be prepared");
  return *linear;
}

Tensor& activate(Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return at::gelu_(x);
    case Activation::gelu_tanh:
      return at::gelu_(x, "tanh");
    case Activation::relu:
      return at::relu_(x);
    case Activation::silu:
      return at::silu_(x);
  }
  TORCH_CHECK(false, "the activation has the unknown value ", static_cast<int>(activation));
}

template <typename Holder>
const Holder& in_evaluation(const Holder& module) {
  TORCH_CHECK(!module->is_training(), "a module in training mode was to be prepared for inference; call eval() first");
  return module;
}

}  // namespace

InferenceEncoder::Norm::Norm(const torch::nn::LayerNormImpl& norm)
    : weight(copied(norm.weight)), bias(copied(norm.bias)), eps(norm.options.eps()) {}

Tensor InferenceEncoder::Norm::operator()(const Tensor& x) const {
  return torch::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

InferenceEncoder::Layer::Layer(const EncoderLayerImpl& layer, bool pack)
    : heads(layer.mha->options.num_heads()),
      pre(layer.sub1->options.placement() == NormPlacement::pre),
      activation(layer.ff->options.activation()),
      norm1(*layer.sub1->norm),
      norm2(*layer.sub2->norm),
      in_proj(*layer.mha->in_proj, pack),
      out_proj(*layer.mha->out_proj, pack),
      up(linear_in(layer.ff, 0), pack),
      down(linear_in(layer.ff, 3), pack) {}

Tensor InferenceEncoder::Layer::attend(const Tensor& sum, const Tensor& x, const AttentionMask& mask) const {
  return out_proj.onto(sum, std::get<0>(attention_in_heads(in_proj(x), heads, mask)));
}

Tensor InferenceEncoder::Layer::feed(const Tensor& sum, const Tensor& x) const {
  Tensor wide = up(x);  // [B,T,F]
  return down.onto(sum, activate(wide, activation));
}

Tensor InferenceEncoder::Layer::forward(const Tensor& x, const AttentionMask& mask) const {
  if (pre) {
    const Tensor y = attend(x, norm1(x), mask);
    return feed(y, norm2(y));
  }
  const Tensor y = norm1(attend(x, x, mask));
  return norm2(feed(y, y));
}

InferenceEncoder::InferenceEncoder(const Encoder& encoder, bool pack) {
  in_evaluation(encoder);
  for (size_t i = 0; i < encoder->layers->size(); ++i) layers_.emplace_back(encoder->layer(i), pack);
  if (encoder->norm) norm_.emplace(*encoder->norm);
}

Tensor InferenceEncoder::forward(const Tensor& x, const AttentionMask& mask) const {
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  check_input(x, layers_.front().norm1.weight.size(0));
  if (const auto row = Unpadded::of(x, mask)) return row->pad(forward(row->pack(x), row->mask()));
  const AttentionMask ready = mask.prepare(x, layers_.front().heads);
  Tensor y = x;
  for (const Layer& layer : layers_) y = layer.forward(y, ready);
  return ready.zero_past_lengths(norm_ ? (*norm_)(y) : y);
}

InferenceModel::InferenceModel(const EncoderModel& model, bool pack)
    : config_(in_evaluation(model)->config),
      embeddings_(std::dynamic_pointer_cast<EmbeddingsImpl>(model->embeddings->clone())),
      encoder_(model->encoder, pack) {
  if (model->head) head_.emplace(*model->head, pack);
}

Tensor InferenceModel::forward(const Tensor& ids, const AttentionMask& mask, const Tensor& segment_ids) const {
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  return detail::answers(
      config_, embeddings_->forward(ids, segment_ids), mask,
      [&](const Tensor& x, const AttentionMask& shown) { return encoder_(x, shown); },
      [&](const Tensor& x) { return (*head_)(x); });
}

}  // namespace prenorm
