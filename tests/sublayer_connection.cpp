#include "prenorm/sublayer_connection.h"

#include "prenorm/feed_forward.h"
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
}

}  // namespace sublayer_connection_test
