#include "prenorm/parameter_count.h"

#include <unordered_set>

namespace prenorm {
namespace {

bool holds(const std::string& outer, const std::string& path) {
  return outer.empty() || path == outer || path.starts_with(outer + ".");
}

}  // namespace

std::vector<std::pair<std::string, ParameterCount>> count_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, ParameterCount>> counts{{"", {}}};
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const std::string& path, const Tensor& tensor, std::int64_t ParameterCount::*kind) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    for (auto& [outer, count] : counts) {
      if (holds(outer, path)) count.*kind += tensor.numel();
    }
  };
  const auto add_own = [&](const std::string& path, const torch::nn::Module& own) {
    for (const auto& [name, tensor] : detail::own_parameters(own)) {
      add(path, *tensor, tensor->requires_grad() ? &ParameterCount::trainable : &ParameterCount::frozen);
    }
    for (const auto& buffer : own.named_buffers(/*recurse=*/false)) add(path, buffer.value(), &ParameterCount::buffers);
  };
  add_own("", module);
  for (const auto& inner : module.named_modules("", /*include_self=*/false)) {
    counts.emplace_back(inner.key(), ParameterCount{});
    add_own(inner.key(), *inner.value());
  }
  return counts;
}

}  // namespace prenorm
