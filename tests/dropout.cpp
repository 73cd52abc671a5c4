#include "prenorm/dropout.h"

#include <cmath>
#include <vector>

#include "support.h"

namespace dropout_test {

using prenorm::Dropout;
using torch::Tensor;

namespace {

constexpr double kP = 0.3;

Tensor dropped(const Tensor& x, double p = kP) {
  return Dropout(p)(x);
}

/// Which elements a call keeps, as doubles of 0 and 1.
Tensor kept(torch::IntArrayRef shape, double p = kP) {
  return (dropped(torch::ones(shape), p) != 0).to(torch::kDouble);
}

/// Whether the mean of `trials` independent draws of 0 and 1 is what probability `p` gives, to five deviations.
bool as_often(double mean, double p, double trials) {
  return std::abs(mean - p) < 5 * std::sqrt(p * (1 - p) / trials);
}

double mean_of(const Tensor& x) {
  return x.mean().item<double>();
}

}  // namespace

TEST_CASE("elements are dropped at the rate, and the rest is scaled to match") {
  torch::manual_seed(1);
  constexpr std::int64_t kSize = 1 << 22;
  for (const double p : {1e-3, 0.1, 0.5, 0.9}) {
    CAPTURE(p);
    CHECK(as_often(mean_of(kept({kSize}, p)), 1 - p, kSize));
  }
  const Tensor x = torch::randn({100'000}), y = dropped(x);
  CHECK(close(y, torch::where(y == 0, torch::zeros_like(x), x / (1 - kP))));
  for (const auto type : {torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    const Tensor z = dropped(x.to(type));
    CHECK(close(z, torch::where(z == 0, torch::zeros_like(z), x.to(type) / (1 - kP))));
    CHECK(as_often(mean_of((z != 0).to(torch::kDouble)), 1 - kP, 100'000));
  }
}

TEST_CASE("neither calls nor places nor lanes know of each other") {
  torch::manual_seed(2);
  constexpr std::int64_t kSize = 1 << 20;
  const double both = (1 - kP) * (1 - kP);
  const Tensor one = kept({kSize});
  Tensor before = one;
  for (int call = 0; call < 8; ++call) {
    const Tensor next = kept({kSize});
    CHECK(as_often(mean_of(next * before), both, kSize));
    before = next;
  }
  // Distances within a vector, a row, a block of the implementation and beyond it.
  for (const std::int64_t distance : {1, 2, 3, 4, 7, 8, 16, 32, 64, 255, 256, 1024, 2047, 2048, 2049, 4096, 65536}) {
    CAPTURE(distance);
    const std::int64_t pairs = kSize - distance;
    CHECK(as_often(mean_of(one.slice(0, 0, pairs) * one.slice(0, distance)), both, static_cast<double>(pairs)));
  }
  for (const std::int64_t lanes : {4, 8, 16, 64, 2048}) {
    const Tensor rates = one.view({-1, lanes}).mean(0);
    // The sum of the lanes' squared deviations, in units of what chance gives, is about `lanes` +- sqrt(2 lanes).
    const double rows = static_cast<double>(kSize / lanes);
    const double chi_squared = ((rates - (1 - kP)).square().sum() * rows / (kP * (1 - kP))).item<double>();
    CAPTURE(lanes, chi_squared);
    CHECK(std::abs(chi_squared - static_cast<double>(lanes)) < 5 * std::sqrt(2.0 * static_cast<double>(lanes)));
  }
  // Counts of words of eight neighbours follow the binomial distribution.
  const Tensor counts = torch::bincount(one.view({-1, 8}).sum(1).to(torch::kLong), {}, 9);
  double combinations = 1;
  for (int k = 0; k <= 8; ++k) {
    const double expected = combinations * std::pow(1 - kP, k) * std::pow(kP, 8 - k);
    CHECK(as_often(counts[k].item<double>() / (kSize / 8), expected, kSize / 8));
    combinations = combinations * (8 - k) / (k + 1);
  }
}

TEST_CASE("the gradient passes where the value did, through a gradient's gradient too") {
  torch::manual_seed(3);
  for (const bool transposed : {false, true}) {
    const Tensor leaf = torch::randn({40, 70}, torch::kDouble).requires_grad_();
    const Tensor x = transposed ? leaf.t() : leaf, y = dropped(x);
    const Tensor scale = (y != 0).to(torch::kDouble) / (1 - kP), weight = torch::randn_like(y).requires_grad_();
    CHECK(close(y, x * scale));
    const auto first = torch::autograd::grad({y}, {x}, {weight}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    CHECK(close(first, weight * scale));
    CHECK(close(torch::autograd::grad({first.sum()}, {weight})[0], scale));
  }
}

TEST_CASE("the generator decides alone: the same for any number of threads, one number a call") {
  const auto run = [](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    torch::manual_seed(4);
    std::vector<Tensor> found;
    for (const std::int64_t size : {1, 2047, 2049, 300'000}) found.push_back(dropped(torch::ones({size})));
    found.push_back(torch::rand({3}));
    at::set_num_threads(before);
    return torch::cat(found);
  };
  const Tensor one = run(1);
  CHECK(same(run(2), one));
  CHECK(same(run(3), one));
  CHECK(!same(dropped(torch::ones({100})), dropped(torch::ones({100}))));

  torch::manual_seed(5);
  dropped(torch::ones({10}));
  const Tensor after = torch::rand({3});
  torch::manual_seed(5);
  dropped(torch::ones({5000}));
  CHECK(same(torch::rand({3}), after));
}

TEST_CASE("outside of training, and at 0, nothing is computed") {
  const Tensor x = torch::randn({4});
  Dropout drop(0.5), none(0.0);
  drop->eval();
  CHECK(drop(x).is_same(x));
  CHECK(none(x).is_same(x));
  CHECK(dropped(torch::empty({0, 3}), 0.5).sizes() == torch::IntArrayRef({0, 3}));
  CHECK(error_of([] { Dropout(1.0); }) == "dropout is 1, not in [0, 1)");
  CHECK(error_of([] { Dropout(-0.5); }) == "dropout is -0.5, not in [0, 1)");
}

}  // namespace dropout_test
