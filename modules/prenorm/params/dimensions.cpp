#include "prenorm/params/dimensions.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "prenorm/error.h"
#include "prenorm/params/config_count.h"

namespace prenorm::params {
namespace {

void require_positive(const char* name, std::int64_t value) {
  require(value > 0, name, " is ", value, ", not a positive number");
}

Candidate candidate(const ModelConfig& config, Count total) {
  const Count found = count_model(config).total();
  const double asked = static_cast<double>(total.value());
  return {config, found, 100.0 * (static_cast<double>(found.value()) - asked) / asked};
}

/// The largest value >= 1 of `set(config, value)` whose model has at most `total` parameters, or 0. The count grows
/// with the value; one that does not fit in 64 bits is too large.
template <typename Set>
std::int64_t largest_within(const ModelConfig& config, Count total, std::int64_t unit, Set set) {
  const auto fits = [&](std::int64_t value) {
    ModelConfig trial = config;
    set(trial, value * unit);
    try {
      return count_model(trial).total() <= total;
    } catch (const Error&) {
      return false;
    }
  };
  std::int64_t low = 0;
  std::int64_t high = std::int64_t{1} << 40;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void nearest_first(std::vector<Candidate>& candidates) {
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::abs(a.error_percent) < std::abs(b.error_percent);
  });
}

}  // namespace

ModelConfig bare_layers() {
  ModelConfig config;
  config.final_norm = false;
  config.position = Position::none;
  return config;
}

void validate_dimensions(const ModelConfig& config) {
  ModelConfig whole = config;
  if (whole.vocab_size == 0) whole.vocab_size = 1;
  whole.validate();
}

Count lesson_layer(const ModelConfig& config) {
  const Count d = config.d_model;
  const Count ff = config.d_ff > 0 ? Count(config.d_ff) : Count(4) * d;
  return Count(4) * d * d + Count(2) * d * ff + Count(4) * d;
}

std::vector<Candidate> solve_layers(ModelConfig config, Count total) {
  config.num_layers = 1;
  validate_dimensions(config);
  const auto set = [](ModelConfig& trial, std::int64_t value) { trial.num_layers = value; };
  const std::int64_t below = largest_within(config, total, 1, set);
  std::vector<Candidate> candidates;
  for (const std::int64_t layers : {below, below + 1}) {
    if (layers == 0) continue;
    config.num_layers = layers;
    candidates.push_back(candidate(config, total));
  }
  nearest_first(candidates);
  return candidates;
}

std::vector<Candidate> solve_width(ModelConfig config, Count total) {
  require_positive("num_layers", config.num_layers);
  require_positive("num_heads", config.num_heads);
  std::vector<Candidate> candidates;
  std::vector<std::int64_t> seen;
  const auto set = [](ModelConfig& trial, std::int64_t value) { trial.d_model = value; };
  for (const std::int64_t multiple : {64, 256}) {
    const Count unit = Count(multiple / std::gcd(multiple, config.num_heads)) * config.num_heads;
    const std::int64_t below = largest_within(config, total, unit.value(), set);
    for (const std::int64_t steps : {below, below + 1}) {
      const std::int64_t width = (Count(steps) * unit).value();
      if (width == 0 || std::find(seen.begin(), seen.end(), width) != seen.end()) continue;
      seen.push_back(width);
      config.d_model = width;
      validate_dimensions(config);
      candidates.push_back(candidate(config, total));
    }
  }
  nearest_first(candidates);
  return candidates;
}

Count parse_total(std::string_view text) {
  std::string digits;
  for (const char letter : text) {
    if (letter != ',' && letter != '_') digits += letter;
  }
  double scale = 1;
  if (!digits.empty() && std::isalpha(static_cast<unsigned char>(digits.back()))) {
    switch (std::toupper(static_cast<unsigned char>(digits.back()))) {
      case 'K':
        scale = 1e3;
        break;
      case 'M':
        scale = 1e6;
        break;
      case 'B':
      case 'G':
        scale = 1e9;
        break;
      case 'T':
        scale = 1e12;
        break;
      default:
        scale = 0;
    }
    digits.pop_back();
  }
  std::int64_t whole = 0;
  double value = 0;
  const char* end = digits.data() + digits.size();
  if (scale == 1 && std::from_chars(digits.data(), end, whole).ptr == end && whole > 0) return whole;
  const auto read = std::from_chars(digits.data(), end, value);
  const bool number = read.ec == std::errc() && read.ptr == end && std::isfinite(value);
  require(number && value > 0 && scale > 0 && value * scale >= 1 && value * scale < 9.2e18, "the total \"",
          text.substr(0, 40), "\" is not a positive number such as 7B, 350M or 6738415616");
  return static_cast<std::int64_t>(std::llround(value * scale));
}

}  // namespace prenorm::params
