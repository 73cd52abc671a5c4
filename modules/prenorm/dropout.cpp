#include "prenorm/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <mutex>

namespace prenorm {
namespace {

// Words are drawn in blocks, each with a key of its own: small enough for the first cache, and what one thread does.
constexpr std::int64_t kBlock = 2048;
using Words = std::array<std::uint32_t, kBlock>;

// Compiled for wider vectors too, chosen when the program starts; sanitizers cannot do with such a choice.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define PRENORM_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define PRENORM_WIDE
#endif

/// The finaliser of SplitMix64 (Steele et al. 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// 32 random bits for each place in a block: a hash of two multiplications (constants: Wellons' lowbias32) with half of
/// the key before each.
PRENORM_WIDE void draw(Words& words, std::uint64_t key) {
  const auto first = static_cast<std::uint32_t>(key), second = static_cast<std::uint32_t>(key >> 32);
  for (std::uint32_t i = 0; i < kBlock; ++i) {
    std::uint32_t x = i * 0x9e3779b1U + first;
    x = (x ^ (x >> 16)) * 0x7feb352dU;
    x ^= second;
    x = (x ^ (x >> 15)) * 0x846ca68bU;
    words[i] = x ^ (x >> 16);
  }
}

// Multiplies, as LibTorch's does: a choice of two values would be a branch, which processors guess wrong.
template <typename Scalar>
void drop_block(const Scalar* x, Scalar* y, std::int64_t size, const Words& words, std::uint32_t dropped,
                Scalar scale) {
  for (std::int64_t i = 0; i < size; ++i) {
    const Scalar factor = words[static_cast<size_t>(i)] >= dropped ? scale : Scalar(0);
    y[i] = x[i] * factor;
  }
}

Tensor dropped(const Tensor& input, double probability, std::uint64_t seed) {
  const Tensor x = input.contiguous();
  Tensor y = torch::empty_like(x);
  const auto threshold = static_cast<std::uint32_t>(std::min(std::llround(std::ldexp(probability, 32)), 0xffffffffLL));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "dropout", [&] {
    const auto* from = x.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    const auto scale = static_cast<scalar_t>(1 / (1 - probability));
    const std::int64_t size = x.numel(), blocks = (size + kBlock - 1) / kBlock;
    at::parallel_for(0, blocks, /*grain_size=*/8, [&](std::int64_t begin, std::int64_t end) {
      Words words;
      for (std::int64_t block = begin; block < end; ++block) {
        draw(words, mixed(seed + static_cast<std::uint64_t>(block) * 0x9e3779b97f4a7c15));
        const std::int64_t at = block * kBlock;
        drop_block(from + at, to + at, std::min(kBlock, size - at), words, threshold, scale);
      }
    });
  });
  return y;
}

std::uint64_t drawn_seed() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, double probability,
                        std::int64_t seed) {
    context->saved_data["probability"] = probability;
    context->saved_data["seed"] = seed;
    return dropped(x, probability, static_cast<std::uint64_t>(seed));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto probability = context->saved_data["probability"].toDouble();
    return {apply(gradients[0], probability, context->saved_data["seed"].toInt()), Tensor(), Tensor()};
  }
};

}  // namespace

DropoutImpl::DropoutImpl(const torch::nn::DropoutOptions& options_) : options(options_) {
  DropoutImpl::reset();
}

void DropoutImpl::reset() {
  check_dropout("dropout", options.p());
}

void DropoutImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::Dropout(p=" << options.p() << ")";
}

Tensor DropoutImpl::forward(const Tensor& x) {
  check_dropout("dropout", options.p());
  if (!is_training() || options.p() == 0.0) return x;
  if (!x.is_cpu() || x.layout() != torch::kStrided || !x.is_floating_point())
    return torch::dropout(x, options.p(), true);
  return DropoutFunction::apply(x, options.p(), static_cast<std::int64_t>(drawn_seed()));
}

}  // namespace prenorm
