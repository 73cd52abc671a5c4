#include "prenorm/feed_forward.h"

namespace prenorm {
namespace {

torch::nn::AnyModule activation_module(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return torch::nn::AnyModule(torch::nn::GELU());
    case Activation::gelu_tanh:
      return torch::nn::AnyModule(torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")));
    case Activation::relu:
      return torch::nn::AnyModule(torch::nn::ReLU());
    case Activation::silu:
      return torch::nn::AnyModule(torch::nn::SiLU());
  }
  TORCH_CHECK(false, "the activation has the unknown value ", static_cast<int>(activation));
}

}  // namespace

FeedForwardImpl::FeedForwardImpl(const FeedForwardOptions& options_) : options(options_) {
  FeedForwardImpl::reset();
}

void FeedForwardImpl::reset() {
  const auto d_model = options.d_model();
  check_positive("d_model", d_model);
  TORCH_CHECK(options.d_ff() >= 0, "d_ff is ", options.d_ff(), ", not a positive number or 0 (4 d_model)");
  check_dropout("dropout", options.dropout());
  const auto d_ff = options.d_ff() == 0 ? 4 * d_model : options.d_ff();
  using torch::nn::Linear;
  using torch::nn::LinearOptions;
  net = register_module("net", torch::nn::Sequential());
  net->push_back(Linear(LinearOptions(d_model, d_ff).bias(options.bias())));
  net->push_back(activation_module(options.activation()));
  net->push_back(Dropout(options.dropout()));
  net->push_back(Linear(LinearOptions(d_ff, d_model).bias(options.bias())));
}

void FeedForwardImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::FeedForward";
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  return net->forward(x);
}

}  // namespace prenorm
