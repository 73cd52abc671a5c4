#include "prenorm/training/optimizer.h"

#include "support.h"

namespace optimizer_test {

using prenorm::AdamW;
using prenorm::learning_rate;
using prenorm::Schedule;
using prenorm::ScheduleOptions;
using torch::Tensor;

namespace {

/// Parameters under the names "0", "1", ...
torch::OrderedDict<std::string, Tensor> named(const std::vector<Tensor>& parameters) {
  torch::OrderedDict<std::string, Tensor> dict;
  for (size_t i = 0; i < parameters.size(); ++i) dict.insert(std::to_string(i), parameters[i]);
  return dict;
}

}  // namespace

TEST_CASE("each schedule takes its hand-computed values") {
  const auto rates = [](Schedule kind, std::int64_t warmup, std::vector<std::int64_t> steps) {
    std::vector<double> values;
    for (const auto step : steps) {
      values.push_back(learning_rate({.peak = 8.0, .kind = kind, .warmup_steps = warmup, .steps = 12}, step));
    }
    return values;
  };
  const auto matches = [](const std::vector<double>& actual, const std::vector<double>& expected) {
    return std::ranges::equal(actual, expected, [](double a, double b) { return std::abs(a - b) < 1e-12; });
  };
  CHECK(matches(rates(Schedule::constant, 0, {0, 11}), {8, 8}));
  CHECK(matches(rates(Schedule::constant, 4, {0, 1, 2, 4, 5, 11}), {1, 2, 4, 8, 8, 8}));
  CHECK(matches(rates(Schedule::linear, 4, {3, 4, 6, 8, 11, 12}), {6, 8, 6, 4, 1, 0}));
  CHECK(matches(rates(Schedule::cosine, 4, {1, 4, 6, 8, 12, 99}), {2, 8, 4 + 4 * std::sqrt(0.5), 4, 0, 0}));
  CHECK(matches(rates(Schedule::inverse_sqrt, 4, {2, 4, 16, 64}), {4, 8, 4, 2}));
  CHECK(matches(rates(Schedule::inverse_sqrt, 0, {0, 3}), {8, 4}));
}

TEST_CASE("the rates are those of Python's transformers, and each is above 0") {
  // get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup for 2 of 10 steps, by hand; their first rate is 0.
  const double c1 = std::cos(std::acos(-1.0) / 8), c2 = std::sqrt(0.5), c3 = std::sin(std::acos(-1.0) / 8);
  const std::vector<double> linear{2.5, 5, 10, 8.75, 7.5, 6.25, 5, 3.75, 2.5, 1.25};
  const std::vector<double> cosine{2.5,          5, 10,           5 * (1 + c1), 5 * (1 + c2),
                                   5 * (1 + c3), 5, 5 * (1 - c3), 5 * (1 - c2), 5 * (1 - c1)};
  for (std::int64_t step = 0; step < 10; ++step) {
    const auto rate = [step](Schedule kind) {
      return learning_rate({.peak = 10.0, .kind = kind, .warmup_steps = 2, .steps = 10}, step);
    };
    CHECK(rate(Schedule::linear) == Approx(linear[static_cast<size_t>(step)]).epsilon(1e-12));
    CHECK(rate(Schedule::cosine) == Approx(cosine[static_cast<size_t>(step)]).epsilon(1e-12));
  }
  for (const auto kind : {Schedule::constant, Schedule::cosine, Schedule::linear, Schedule::inverse_sqrt}) {
    CHECK(learning_rate({.peak = 10.0, .kind = kind, .steps = 1}, 0) == 10.0);
    for (const std::int64_t steps : {1, 2, 3, 1000, 10'000'000}) {
      for (const std::int64_t warmup : {std::int64_t{0}, std::int64_t{1}, steps - 1, steps, 3 * steps}) {
        const ScheduleOptions options{.peak = 1e-3, .kind = kind, .warmup_steps = warmup, .steps = steps};
        CHECK(learning_rate(options, 0) > 0);
        CHECK(learning_rate(options, steps - 1) > 0);
      }
    }
  }
}

TEST_CASE("the first AdamW step moves by the learning rate, and only matrices decay") {
  Tensor matrix = torch::full({1, 2}, 2.0, torch::kDouble).requires_grad_();
  Tensor vector = torch::full({2}, 2.0, torch::kDouble).requires_grad_();
  Tensor idle = torch::ones({2}).requires_grad_();
  Tensor frozen = torch::ones({2});
  AdamW optimizer(named({matrix, vector, idle, frozen}), {.weight_decay = 0.1});
  ((matrix * torch::tensor({3.0, -0.5})).sum() + vector.sum()).backward();
  optimizer.step(0.01);
  // decay 2 * (1 - 0.01 * 0.1) = 1.998, then one step of the sign of the gradient
  CHECK(torch::allclose(matrix.detach(), torch::tensor({{1.988, 2.008}}, torch::kDouble), 0, 1e-8));
  CHECK(torch::allclose(vector.detach(), torch::full({2}, 1.99, torch::kDouble), 0, 1e-8));
  CHECK(same(idle.detach(), torch::ones({2})));
  optimizer.zero_grad();
  CHECK_FALSE(matrix.grad().defined());
}

TEST_CASE("clipping scales all gradients as one vector") {
  Tensor a = torch::zeros({1}).requires_grad_(), b = torch::zeros({1}).requires_grad_();
  AdamW optimizer(named({a, b}), {});
  const auto gradients = [&](double max_norm) {
    optimizer.zero_grad();
    (3 * a + 4 * b).backward();
    CHECK(optimizer.clip_gradients(max_norm).item<float>() == Approx(5.0));
    return torch::stack({a.grad(), b.grad()}).flatten();
  };
  CHECK(close(gradients(1.0), torch::tensor({0.6f, 0.8f})));
  CHECK(same(gradients(10.0), torch::tensor({3.0f, 4.0f})));
  CHECK(same(gradients(0.0), torch::tensor({3.0f, 4.0f})));
}

TEST_CASE("a tied parameter is clipped and stepped once") {
  Tensor tied = torch::zeros({1}).requires_grad_();
  AdamW optimizer(named({tied, tied}), {});
  (10 * tied).sum().backward();
  CHECK(optimizer.clip_gradients(5.0).item<float>() == Approx(10.0));
  CHECK(tied.grad().item<float>() == Approx(5.0));
  optimizer.step(0.1);
  CHECK(tied.item<float>() == Approx(-0.1));
}

TEST_CASE("the state is named as Python's, and an optimizer that gets it goes on as the one it is from") {
  Tensor ours = torch::ones({2, 2}).requires_grad_();
  AdamW original(named({ours, torch::ones({2}).requires_grad_()}), {});
  const auto step = [](AdamW& optimizer, const Tensor& parameter, float scale) {
    optimizer.zero_grad();
    (scale * parameter.square()).sum().backward();
    optimizer.step(0.1);
  };
  step(original, ours, 3);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : original.state()) names.push_back(name);
  CHECK(names ==
        std::vector<std::string>{"exp_avg.0", "exp_avg_sq.0", "step.0", "exp_avg.1", "exp_avg_sq.1", "step.1"});
  CHECK(close(original.state()[0].second, torch::full({2, 2}, 0.1f * 6)));     // (1 - beta1) g
  CHECK(close(original.state()[1].second, torch::full({2, 2}, 0.001f * 36)));  // (1 - beta2) g^2
  CHECK(original.state()[2].second.item<float>() == 1);
  CHECK(original.state()[5].second.item<float>() == 0);

  Tensor with = ours.detach().clone().requires_grad_(), without = ours.detach().clone().requires_grad_();
  AdamW restored(named({with}), {}), fresh(named({without}), {});
  for (size_t i = 0; i < 3; ++i) restored.state()[i].second.copy_(original.state()[i].second);
  step(original, ours, 0.5);
  step(restored, with, 0.5);
  step(fresh, without, 0.5);
  CHECK(same(with.detach(), ours.detach()));
  CHECK_FALSE(same(without.detach(), ours.detach()));
}

}  // namespace optimizer_test
