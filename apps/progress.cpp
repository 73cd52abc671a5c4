#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr auto kRefresh = std::chrono::milliseconds(100);

/// What a line is made of, with what comes before it. Where the line is too long, parts of higher rank go first.
struct Part {
  int rank;
  std::string text;
};

std::string fitted(std::vector<Part> parts, size_t width) {
  const auto joined = [&] {
    std::string line;
    for (const auto& part : parts) line += part.text;
    return line;
  };
  while (joined().size() > width && parts.size() > 1) parts.erase(std::ranges::max_element(parts, {}, &Part::rank));
  return joined().substr(0, width);
}

/// Whether stderr is a terminal that can draw over a line.
bool draws_over() {
  const char* name = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && name != nullptr && std::string_view(name) != "dumb";
}

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

Progress::Progress(std::int64_t steps, std::int64_t done) : steps_(steps), done_(done), terminal_(draws_over()) {}

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
  std::vector<Part> parts{{0, std::to_string(step) + "/" + std::to_string(steps_)},
                          {3, formatted("  loss %.4f", loss_ / count)},
                          {4, formatted("  accuracy %.1f %%", 100 * accuracy_ / count)},
                          {6, formatted("  lr %.2e", learning_rate)},
                          {2, formatted(rate < 10 ? "  %.1f steps/s" : "  %.0f steps/s", rate)},
                          {7, formatted("  %.0f tokens/s", static_cast<double>(tokens_) / seconds)},
                          {1, formatted("  %.0f s left", static_cast<double>(steps_ - step) / rate)}};
  loss_ = accuracy_ = 0;
  since_ = 0;
  if (!terminal_) {
    std::fprintf(stderr, "step %s\n", fitted(parts, SIZE_MAX).c_str());
    return;
  }
  const size_t width = terminal_width() - 1, bar = width < 120 ? 10 : 20;
  const size_t filled = bar * static_cast<size_t>(step) / static_cast<size_t>(steps_);
  parts.insert(parts.begin() + 1, {5, "  [" + std::string(filled, '=') + std::string(bar - filled, ' ') + "]"});
  const std::string line = fitted(std::move(parts), width);
  open_ = step < steps_;
  std::fprintf(stderr, "\r\033[K%s%s", line.c_str(), open_ ? "" : "\n");
  std::fflush(stderr);
}

void Progress::line(const std::string& text) {
  std::fprintf(stderr, "%s%s\n", open_ ? "\r\033[K" : "", text.c_str());
  open_ = false;
}
