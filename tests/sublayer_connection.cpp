#include "prenorm/sublayer_connection.h"

#include <fstream>
#include <iterator>

#include "prenorm/model.h"
#include "support.h"

namespace sublayer_connection_test {

using prenorm::NormPlacement;
using prenorm::SubLayerConnection;
using prenorm::SubLayerConnectionOptions;
using torch::Tensor;

namespace {

Tensor zero(const Tensor& x) {
  return torch::zeros_like(x);
}

Tensor doubled(const Tensor& x) {
  return 2 * x;
}

SubLayerConnection connection(NormPlacement placement, double dropout = 0.0) {
  return SubLayerConnection(SubLayerConnectionOptions(4, dropout).placement(placement));
}

const Tensor kOneHot = torch::tensor({{{1.0, 0.0, 0.0, 0.0}}}, torch::kFloat);
// (x - 1/4) / sqrt(3/16 + 1e-5): the biased variance, with eps inside the root.
const Tensor kNormalised = torch::tensor({{{1.7320046, -0.5773349, -0.5773349, -0.5773349}}}, torch::kFloat);

}  // namespace

TEST_CASE("pre-norm adds the sub-layer of the norm, post-norm normalises the sum") {
  auto pre = connection(NormPlacement::pre), post = connection(NormPlacement::post);
  CHECK(close(pre(kOneHot, doubled), kOneHot + 2 * kNormalised));
  CHECK(close(post(kOneHot, zero), kNormalised));
  CHECK(close(post(kOneHot, [](const Tensor& x) { return 2 * x; }), post(3 * kOneHot, zero)));
}

TEST_CASE("eps reaches the norm") {
  SubLayerConnection post(SubLayerConnectionOptions(4, 0.0).placement(NormPlacement::post).eps(1e-12));
  const Tensor expected = torch::tensor({{{1.7320508, -0.5773503, -0.5773503, -0.5773503}}}, torch::kFloat);
  const Tensor actual = post(kOneHot, [](const Tensor& x) { return 0 * x; });
  CHECK(torch::allclose(actual, expected, 0.0, 3e-7));
}

TEST_CASE("anything that takes and returns a tensor is a sub-layer") {
  auto pre = connection(NormPlacement::pre);
  prenorm::FeedForward ff(4);
  ff->eval();
  torch::nn::Linear linear(4, 4);
  torch::nn::Sequential sequential(torch::nn::Linear(4, 4), torch::nn::ReLU());
  const Tensor x = torch::randn({2, 3, 4}), normalised = pre->norm(x);
  CHECK(same(pre(x, ff), x + ff(normalised)));
  CHECK(same(pre(x, linear), x + linear(normalised)));
  CHECK(same(pre(x, [&](const Tensor& y) { return sequential->forward(y); }), x + sequential->forward(normalised)));
  CHECK(same(pre(x, doubled), x + doubled(normalised)));
}

TEST_CASE("a sub-layer that works in place leaves the caller's tensor and the gradients alone") {
  const torch::nn::ReLU relu(torch::nn::ReLUOptions(true));
  for (const auto placement : {NormPlacement::pre, NormPlacement::post}) {
    auto wrapper = connection(placement);
    const Tensor x = torch::randn({2, 3, 4}), before = x.clone();
    const Tensor with_grad = x.clone().requires_grad_(true), expected_grad = x.clone().requires_grad_(true);
    const auto in_place = [&](const Tensor& y) { return torch::nn::ReLU(relu)(y); };
    const auto apart = [](const Tensor& y) { return y.relu(); };
    CHECK(same(wrapper(x, in_place), wrapper(x, apart)));
    CHECK(same(x, before));
    wrapper(with_grad, in_place).square().sum().backward();
    wrapper(expected_grad, apart).square().sum().backward();
    CHECK(same(with_grad.grad(), expected_grad.grad()));
    CHECK_FALSE(
        error_of([&] { wrapper(x, [](const Tensor& y) { return y.squeeze_(0).unsqueeze_(0).sum(); }); }).empty());
    CHECK(same(x, before));
  }
}

TEST_CASE("containers of LibTorch call the modules as the README shows") {
  const Tensor x = torch::randn({2, 5, 64}), ids = torch::randint(1000, {2, 5}, torch::kLong);
  const Tensor mask = torch::ones({5, 5}, torch::kBool).tril();
  const auto f = [](const Tensor& y) { return 2 * y; };
#include "data/containers.inc"
  CHECK(scores.sizes() == torch::IntArrayRef({2, 5, 3}));
  CHECK(y.sizes() == x.sizes());
  const auto text = [](const char* path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(
      text(PRENORM_TEST_DATA "/../../README.md").find("```cpp\n" + text(PRENORM_TEST_DATA "/containers.inc") + "```") !=
      std::string::npos);
}

TEST_CASE("dropout acts on the sub-layer's output, never on the stream") {
  torch::manual_seed(1);
  auto pre = connection(NormPlacement::pre, 0.5);
  const Tensor x = torch::randn({2, 3, 4});
  const Tensor added = (pre(x, [](const Tensor& y) { return torch::ones_like(y); }) - x).round();
  CHECK(((added == 0) | (added == 2)).all().item<bool>());
  CHECK((added == 0).any().item<bool>());
  CHECK((added == 2).any().item<bool>());
  pre->eval();
  CHECK(close(pre(x, [](const Tensor& y) { return torch::ones_like(y); }), x + 1));
}

TEST_CASE("a wrapper refuses bad options and a sub-layer that changes the shape") {
  CHECK(error_of([] { SubLayerConnection(SubLayerConnectionOptions(0)); }) == "d_model is 0, not a positive number");
  CHECK(error_of([] { SubLayerConnection(SubLayerConnectionOptions(4, 1.5)); }) == "dropout is 1.5, not in [0, 1)");
  CHECK(error_of([] { SubLayerConnection(SubLayerConnectionOptions(4).eps(0)); }) == "eps is 0, not a positive number");
  auto pre = connection(NormPlacement::pre);
  CHECK(error_of([&] { pre(kOneHot, [](const Tensor& x) { return x.sum(-1, true); }); }) ==
        "the sub-layer returned [1, 1, 1] for an input of [1, 1, 4]");
  CHECK(error_of([&] { pre(kOneHot, nullptr); }) == "the sub-layer is an empty function");
  CHECK(error_of([&] { pre(kOneHot, [](const Tensor&) { return Tensor(); }); }) ==
        "the sub-layer returned an undefined tensor");
}

}  // namespace sublayer_connection_test
