#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace {

constexpr auto kRefresh = std::chrono::milliseconds(100);
constexpr int kBarWidth = 20;

std::string formatted(const char* format, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::int64_t steps, std::int64_t done)
    : steps_(steps), done_(done), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stderr);
}

bool Progress::due(std::int64_t step) const {
  if (step == steps_) return true;
  return terminal_ ? Clock::now() - last_ >= kRefresh : step % ((steps_ - 1) / 20 + 1) == 0;
}

void Progress::step(double loss, double accuracy, std::int64_t tokens) {
  loss_ += loss;
  accuracy_ += accuracy;
  tokens_ += tokens;
  ++since_;
}

void Progress::report(std::int64_t step, double learning_rate) {
  last_ = Clock::now();
  const double seconds = std::max(1e-9, std::chrono::duration<double>(last_ - start_).count());
  const double rate = static_cast<double>(step - done_) / seconds;
  const auto count = static_cast<double>(std::max<std::int64_t>(1, since_));
  const std::string numbers =
      formatted("loss %.4f  accuracy %.1f %%  lr %.2e", loss_ / count, 100 * accuracy_ / count, learning_rate);
  const std::string rates =
      formatted("%.0f steps/s  %.0f tokens/s  %.0f s left", rate, static_cast<double>(tokens_) / seconds,
                static_cast<double>(steps_ - step) / rate);
  loss_ = accuracy_ = 0;
  since_ = 0;
  const std::string counter = std::to_string(step) + "/" + std::to_string(steps_);
  if (!terminal_) {
    std::fprintf(stderr, "step %s  %s  %s\n", counter.c_str(), numbers.c_str(), rates.c_str());
    return;
  }
  const auto filled = static_cast<size_t>(kBarWidth * step / steps_);
  std::string line =
      counter + " [" + std::string(filled, '=') + std::string(kBarWidth - filled, ' ') + "] " + numbers + "  " + rates;
  line.resize(std::min(line.size(), terminal_width() - 1));
  open_ = step < steps_;
  std::fprintf(stderr, "\r\033[K%s%s", line.c_str(), open_ ? "" : "\n");
  std::fflush(stderr);
}

void Progress::line(const std::string& text) {
  std::fprintf(stderr, "%s%s\n", open_ ? "\r\033[K" : "", text.c_str());
  open_ = false;
}
