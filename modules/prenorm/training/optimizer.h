#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/config.h"
#include "prenorm/module.h"

namespace prenorm {

/// How the learning rate goes on once the warm-up is over: as it is; to 0 after the last step, along half a cosine or a
/// line; or as 1 / sqrt(step) (Vaswani et al. 2017, section 5.3).
enum class Schedule { constant, cosine, linear, inverse_sqrt };

template <>
const std::vector<std::pair<std::string, Schedule>>& enum_names();

struct ScheduleOptions {
  double peak = 1e-3;  ///< the highest learning rate, that of the first step after the warm-up
  Schedule kind = Schedule::constant;
  std::int64_t warmup_steps = 0;  ///< steps over which the rate rises in a line from 0
  std::int64_t steps = 1000;      ///< steps in all
};

/// The learning rate of step s = `step` (the first is 0), above 0 for each of the n = `steps` steps. With w =
/// `warmup_steps` and p = (s - w) / max(1, n - w) it is `peak` times
///
///   warm-up        s / w where s < w; 1 / (2 w), half of the next one, where that is 0
///   constant       1
///   cosine         (1 + cos(pi p)) / 2, and 0 from step n on
///   linear         1 - p, and 0 from step n on
///   inverse_sqrt   sqrt(w / s); without a warm-up sqrt(1 / (s + 1))
///
/// as the schedules of `transformers` (optimization.py) have it, but for the first step of a warm-up, where theirs is 0,
/// and for inverse_sqrt without one.
double learning_rate(const ScheduleOptions& options, std::int64_t step);

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< per step, times the learning rate; on matrices only, not on biases and norms
};

/// AdamW (Loshchilov and Hutter 2019) with LibTorch's fused kernel, 4 to 8 times as fast as torch::optim::AdamW, which
/// is a loop of small operations. All parameters are of one type and device. A tied one, listed under several names, is
/// one parameter; parameters without a gradient stay as they are.
class AdamW {
 public:
  AdamW(const torch::OrderedDict<std::string, Tensor>& parameters, const AdamWOptions& options);

  void zero_grad();
  void step(double learning_rate);

  /// Scales all gradients, seen as one vector, down to a norm of at most `max_norm` (0: as they are); returns the norm
  /// before, a scalar on the parameters' device.
  Tensor clip_gradients(double max_norm);

  /// What the next step depends on beside the parameters and gradients, under the names of Python's AdamW:
  /// "exp_avg.<parameter>", "exp_avg_sq.<parameter>" and "step.<parameter>". Writing into these tensors changes the
  /// optimizer.
  std::vector<std::pair<std::string, Tensor>> state() const;

 private:
  struct Group {
    double weight_decay;
    std::vector<std::string> names = {};
    std::vector<Tensor> parameters = {}, first_moments = {}, second_moments = {}, steps = {};
  };

  AdamWOptions options_;
  std::vector<Group> groups_;
};

}  // namespace prenorm
