#pragma once

#include <chrono>
#include <cstdint>
#include <string>

/// What a training run tells while it goes on, on stderr: a bar that is drawn over where stderr is a terminal, plain
/// lines (at most twenty) elsewhere.
class Progress {
 public:
  explicit Progress(std::int64_t steps);
  ~Progress();  ///< ends a bar that is still open, so that what follows starts on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether it is time to report after `step` steps. Reports cost a look at the device, so the caller asks first.
  bool due(std::int64_t step) const;

  /// Means since the last report; `tokens` since the start.
  void report(std::int64_t step, double loss, double accuracy, double learning_rate, std::int64_t tokens);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_;
  bool terminal_;
  bool open_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};
