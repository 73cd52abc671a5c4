#include "support.h"

#include <algorithm>

namespace {

double tolerance(torch::ScalarType type) {
  switch (type) {
    case torch::kDouble:
      return 1e-12;
    case torch::kBFloat16:
    case torch::kHalf:
      return 2e-2;
    default:
      return 1e-5;
  }
}

}  // namespace

bool close(const torch::Tensor& actual, const torch::Tensor& expected) {
  if (actual.sizes() != expected.sizes() || actual.dtype() != expected.dtype()) {
    UNSCOPED_INFO("got " << actual.dtype() << actual.sizes() << ", expected " << expected.dtype() << expected.sizes());
    return false;
  }
  if (expected.numel() == 0) return true;
  const auto want = expected.detach().to(torch::kCPU, torch::kDouble);
  const auto difference = (actual.detach().to(torch::kCPU, torch::kDouble) - want).abs().max().item<double>();
  const double allowed = tolerance(expected.scalar_type()) * std::max(1.0, want.abs().max().item<double>());
  const bool fits = difference <= allowed;  // false for NaN
  if (!fits) UNSCOPED_INFO("largest difference " << difference << " over " << allowed << ", of " << actual.sizes());
  return fits;
}

bool same(const torch::Tensor& actual, const torch::Tensor& expected) {
  return torch::equal(actual, expected);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

std::vector<std::string> state_keys(const torch::nn::Module& module) {
  std::vector<std::string> keys;
  const auto add = [&](const auto& entries) {
    for (const auto& entry : entries) {
      std::ostringstream line;
      line << entry.key() << " " << entry.value().sizes();
      keys.push_back(line.str());
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return keys;
}

bool gradients_finite(torch::nn::Module& module, const torch::Tensor& output) {
  module.zero_grad();
  output.square().sum().backward();
  return std::ranges::all_of(module.parameters(), [](const torch::Tensor& parameter) {
    return parameter.grad().defined() && parameter.grad().isfinite().all().item<bool>();
  });
}
