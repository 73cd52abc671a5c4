#include "prenorm/module.h"

#include <unordered_map>
#include <utility>
#include <vector>

namespace prenorm {

void check_positive(const char* name, std::int64_t value) {
  TORCH_CHECK(value > 0, name, " is ", value, ", not a positive number");
}

void check_dropout(const char* name, double probability) {
  TORCH_CHECK(probability >= 0.0 && probability < 1.0, name, " is ", probability, ", not in [0, 1)");
}

void check_eps(double eps) {
  TORCH_CHECK(eps > 0.0, "eps is ", eps, ", not a positive number");
}

void check_input(const Tensor& x, std::int64_t d_model) {
  TORCH_CHECK(x.dim() == 3 && x.size(2) == d_model, "the input is ", x.sizes(), ", expected [B, T, ", d_model, "]");
}

namespace detail {
namespace {

/// Reaches the protected registry of a module, where a tied parameter has to stand under both of its names.
struct Registry : torch::nn::Module {
  static Tensor& parameter(torch::nn::Module& module, const std::string& name) {
    return (module.*&Registry::parameters_)[name];
  }
};

}  // namespace

std::vector<std::pair<std::string, Tensor*>> own_parameters(const torch::nn::Module& owner) {
  auto& module = const_cast<torch::nn::Module&>(owner);  // LibTorch's as() and members have no const form
  if (auto* linear = module.as<torch::nn::LinearImpl>()) return {{"weight", &linear->weight}, {"bias", &linear->bias}};
  if (auto* embedding = module.as<torch::nn::EmbeddingImpl>()) return {{"weight", &embedding->weight}};
  if (auto* norm = module.as<torch::nn::LayerNormImpl>()) return {{"weight", &norm->weight}, {"bias", &norm->bias}};
  std::vector<std::pair<std::string, Tensor*>> parameters;
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    parameters.emplace_back(parameter.key(), &Registry::parameter(module, parameter.key()));
  }
  return parameters;
}

GeneratorKept::GeneratorKept() {
  auto generator = at::detail::getDefaultCPUGenerator();
  state_ = generator.get_state();
}

GeneratorKept::~GeneratorKept() {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state_);
}

void restore_frozen_and_tied(const torch::nn::Module& original, torch::nn::Module& copy) {
  const auto originals = original.modules();
  const auto copies = copy.modules();
  TORCH_CHECK(originals.size() == copies.size(), "clone() gave ", copies.size(), " modules for ", originals.size());
  const torch::NoGradGuard no_grad;
  std::unordered_map<const c10::TensorImpl*, Tensor> copy_of;
  for (size_t i = 0; i < originals.size(); ++i) {
    const auto before = own_parameters(*originals[i]);
    const auto after = own_parameters(*copies[i]);
    for (size_t j = 0; j < before.size(); ++j) {
      const auto& [name, source] = before[j];
      Tensor& target = *after[j].second;
      if (!source->defined()) continue;
      const auto [seen, first] = copy_of.emplace(source->unsafeGetTensorImpl(), target);
      if (first) {
        const bool reassigned =
            !source->is_same(Registry::parameter(const_cast<torch::nn::Module&>(*originals[i]), name));
        if (reassigned)
          target.set_data(source->detach().to(target.device(), source->scalar_type(), false, /*copy=*/true));
        target.set_requires_grad(source->requires_grad());
      } else {
        target = Registry::parameter(*copies[i], name) = seen->second;
      }
    }
  }
}

}  // namespace detail
}  // namespace prenorm
