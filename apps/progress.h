#pragma once

#include <chrono>
#include <cstdint>
#include <string>

/// What a training run tells while it goes on, on stderr: a bar that is drawn over where stderr is a terminal that can
/// (not TERM=dumb), plain lines (at most twenty) elsewhere. A narrow terminal gets fewer numbers,
/// speed and time left to the last.
class Progress {
 public:
  /// `done` of the `steps` lie behind already.
  Progress(std::int64_t steps, std::int64_t done);
  ~Progress();  ///< ends a bar that is still open, so that what follows starts on a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Counts a step.
  void step(double loss, double accuracy, std::int64_t tokens);

  /// Whether it is time to report after `step` steps.
  bool due(std::int64_t step) const;

  /// Shows the means since the last report.
  void report(std::int64_t step, double learning_rate);

  /// Shows a line of its own.
  void line(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_, done_;
  bool terminal_;
  bool open_ = false;
  std::int64_t tokens_ = 0, since_ = 0;  // since the start; steps since the last report
  double loss_ = 0, accuracy_ = 0;       // sums over those steps
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};
