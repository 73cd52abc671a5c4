#include "prenorm/packed_linear.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <utility>

namespace prenorm {
namespace {

using Operator = std::optional<c10::OperatorHandle>;

/// The operator of this name, if its arguments and results are of these types.
Operator found(const char* name, const char* overload, const std::string& types) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op) return std::nullopt;
  std::string own;
  for (const auto& argument : op->schema().arguments()) own += argument.type()->annotation_str() + " ";
  own += "->";
  for (const auto& result : op->schema().returns()) own.append(" ").append(result.type()->annotation_str());
  return own == types ? op : std::nullopt;
}

struct OneDnn {
  Operator reorder = found("mkldnn::_reorder_linear_weight", "", "Tensor Optional[int] -> Tensor");
  Operator linear = found("mkldnn::_linear_pointwise", "",
                          "Tensor Tensor Optional[Tensor] str List[Optional[number]] Optional[str] -> Tensor");
  Operator linear_onto =
      found("mkldnn::_linear_pointwise", "binary", "Tensor Tensor Tensor Optional[Tensor] str -> Tensor");

  bool complete() const { return reorder && linear && linear_onto && at::globalContext().userEnabledMkldnn(); }
};

const OneDnn& one_dnn() {
  static const OneDnn operators;
  return operators;
}

Tensor called(const Operator& op, torch::jit::Stack arguments) {
  op->callBoxed(arguments);
  return std::move(arguments.front()).toTensor();
}

c10::IValue optional(const Tensor& bias) {
  return bias.defined() ? c10::IValue(bias) : c10::IValue();
}

}  // namespace

PackedLinear::PackedLinear(const torch::nn::LinearImpl& linear, bool pack)
    : weight_(linear.weight.detach().clone()), bias_(linear.bias.defined() ? linear.bias.detach().clone() : Tensor()) {
  if (!pack || !weight_.is_cpu() || weight_.scalar_type() != torch::kFloat || !one_dnn().complete()) return;
  try {
    weight_ = called(one_dnn().reorder, {weight_, c10::IValue()});
    packed_ = true;
  } catch (const c10::Error&) {  // a LibTorch whose oneDNN is there and does not work on this CPU
  }
}

Tensor PackedLinear::operator()(const Tensor& x) const {
  if (!packed_) return torch::linear(x, weight_, bias_);
  static const c10::List<std::optional<at::Scalar>> none;
  return called(one_dnn().linear, {x, weight_, optional(bias_), "none", none, ""});
}

Tensor PackedLinear::onto(const Tensor& sum, const Tensor& x) const {
  if (!packed_) return torch::linear(x, weight_, bias_).add_(sum);
  return called(one_dnn().linear_onto, {x, sum, weight_, optional(bias_), "add"});
}

}  // namespace prenorm
