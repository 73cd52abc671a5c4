#pragma once

#include <cstdint>

namespace prenorm {

/// SplitMix64 (Steele et al. 2014): a random generator of one word, begun anew for each example of a stream.
class SplitMix64 {
 public:
  using result_type = std::uint64_t;
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT64_MAX; }
  result_type operator()() { return mix(state_ += 0x9e3779b97f4a7c15); }

  /// Every bit of the result depends on every bit of `word`.
  static constexpr std::uint64_t mix(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

 private:
  std::uint64_t state_;
};

/// The generator for one place of the stream of a seed.
inline SplitMix64 generator_at(std::uint64_t seed, std::int64_t place) {
  return SplitMix64(SplitMix64::mix(seed + 1) ^ SplitMix64::mix(~static_cast<std::uint64_t>(place)));
}

/// A number below `count`, the same with every standard library; for counts of millions the bias of % is below 2^-40.
inline std::int64_t below(SplitMix64& random, std::int64_t count) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
}

/// A hash of what `hash` stands for and one word more.
constexpr std::uint64_t hash_with(std::uint64_t hash, std::uint64_t word) {
  return SplitMix64::mix(hash + 0x9e3779b97f4a7c15 + word);
}

}  // namespace prenorm
