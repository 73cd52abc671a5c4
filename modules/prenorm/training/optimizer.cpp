#include "prenorm/training/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_set>
#include <utility>

namespace prenorm {

template <>
const std::vector<std::pair<std::string, Schedule>>& enum_names() {
  static const std::vector<std::pair<std::string, Schedule>> names{{"constant", Schedule::constant},
                                                                   {"cosine", Schedule::cosine},
                                                                   {"linear", Schedule::linear},
                                                                   {"inverse_sqrt", Schedule::inverse_sqrt}};
  return names;
}

double learning_rate(const ScheduleOptions& options, std::int64_t step) {
  const auto done = static_cast<double>(step);
  const auto warmup = static_cast<double>(options.warmup_steps);
  if (done < warmup) return options.peak * std::max(0.5, done) / warmup;
  const double left = std::max(1.0, static_cast<double>(options.steps) - warmup);
  const double progress = std::clamp((done - warmup) / left, 0.0, 1.0);
  switch (options.kind) {
    case Schedule::constant:
      return options.peak;
    case Schedule::cosine:
      return options.peak * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case Schedule::linear:
      return options.peak * (1.0 - progress);
    case Schedule::inverse_sqrt:
      return options.peak * (warmup > 0 ? std::sqrt(warmup / done) : std::sqrt(1.0 / (done + 1)));
  }
  TORCH_CHECK(false, "the schedule has the unknown value ", static_cast<int>(options.kind));
}

AdamW::AdamW(const torch::OrderedDict<std::string, Tensor>& parameters, const AdamWOptions& options)
    : options_(options) {
  Group decayed{options.weight_decay}, plain{0.0};
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& [name, parameter] : parameters.pairs()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;  // tied: a second name
    Group& group = parameter.dim() >= 2 ? decayed : plain;
    group.first_moments.push_back(torch::zeros_like(parameter, torch::MemoryFormat::Preserve));
    group.second_moments.push_back(torch::zeros_like(parameter, torch::MemoryFormat::Preserve));
    group.steps.push_back(torch::zeros({}, torch::dtype(torch::kFloat).device(parameter.device())));
    group.names.push_back(name);
    group.parameters.push_back(parameter);
  }
  groups_ = {std::move(decayed), std::move(plain)};
}

void AdamW::zero_grad() {
  for (auto& group : groups_) {
    for (Tensor& parameter : group.parameters) parameter.mutable_grad().reset();
  }
}

void AdamW::step(double rate) {
  const torch::NoGradGuard no_grad;
  for (auto& group : groups_) {
    Group used{group.weight_decay};
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      if (!group.parameters[i].grad().defined()) continue;
      gradients.push_back(group.parameters[i].grad());
      used.parameters.push_back(group.parameters[i]);
      used.first_moments.push_back(group.first_moments[i]);
      used.second_moments.push_back(group.second_moments[i]);
      used.steps.push_back(group.steps[i]);
    }
    if (gradients.empty()) continue;
    at::_foreach_add_(used.steps, 1);
    at::_fused_adamw_(used.parameters, gradients, used.first_moments, used.second_moments, {}, used.steps, rate,
                      options_.beta1, options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

Tensor AdamW::clip_gradients(double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> gradients;
  for (const auto& group : groups_) {
    for (const Tensor& parameter : group.parameters) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
  }
  if (gradients.empty()) return torch::zeros({});
  const Tensor norm = torch::stack(at::_foreach_norm(gradients, 2)).norm();
  if (max_norm > 0.0) at::_foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp_max(1.0));
  return norm;
}

std::vector<std::pair<std::string, Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, Tensor>> state;
  for (const auto& group : groups_) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      state.emplace_back("exp_avg." + group.names[i], group.first_moments[i]);
      state.emplace_back("exp_avg_sq." + group.names[i], group.second_moments[i]);
      state.emplace_back("step." + group.names[i], group.steps[i]);
    }
  }
  return state;
}

}  // namespace prenorm
