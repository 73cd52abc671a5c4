#include "prenorm/feed_forward.h"

#include "support.h"

namespace feed_forward_test {

using prenorm::Activation;
using prenorm::FeedForward;
using prenorm::FeedForwardOptions;
using torch::Tensor;

TEST_CASE("each activation is its own function") {
  // Of 1 and -1; the two GELUs differ by 1.5e-4.
  const std::vector<std::pair<Activation, std::vector<float>>> expected{
      {Activation::gelu, {0.8413447f, -0.1586553f}},
      {Activation::gelu_tanh, {0.8411920f, -0.1588080f}},
      {Activation::relu, {1.0f, 0.0f}},
      {Activation::silu, {0.7310586f, -0.2689414f}}};
  const torch::NoGradGuard no_grad;
  for (const auto& [activation, values] : expected) {
    FeedForward ff(FeedForwardOptions(2, 2).activation(activation).dropout(0).bias(false));
    for (Tensor& weight : ff->parameters()) weight.copy_(torch::eye(2));
    INFO(prenorm::enum_name(activation));
    CHECK(torch::allclose(ff(torch::tensor({1.0f, -1.0f})), torch::tensor(values), 0.0, 1e-6));
  }
}

TEST_CASE("the inner width is 4 d_model unless given, under the course's keys") {
  using Keys = std::vector<std::string>;
  CHECK(state_keys(*FeedForward(3)) ==
        Keys{"net.0.weight [12, 3]", "net.0.bias [12]", "net.3.weight [3, 12]", "net.3.bias [3]"});
  CHECK(state_keys(*FeedForward(FeedForwardOptions(3, 5).bias(false))) ==
        Keys{"net.0.weight [5, 3]", "net.3.weight [3, 5]"});
}

TEST_CASE("each position stands alone, and dropout acts in training only") {
  torch::manual_seed(1);
  FeedForward ff(FeedForwardOptions(4).dropout(0.5));
  const Tensor x = torch::randn({2, 3, 4});
  CHECK_FALSE(same(ff(x), ff(x)));
  ff->eval();
  CHECK(same(ff(x), ff(x)));
  CHECK(close(ff(x)[1][2], ff(x[1][2])));
}

TEST_CASE("a feed-forward block refuses bad options") {
  CHECK(error_of([] { FeedForward(-1); }) == "d_model is -1, not a positive number");
  CHECK(error_of([] { FeedForward(FeedForwardOptions(4, -3)); }) ==
        "d_ff is -3, not a positive number or 0 (4 d_model)");
  CHECK(error_of([] { FeedForward(FeedForwardOptions(4).dropout(-0.1)); }) == "dropout is -0.1, not in [0, 1)");
}

}  // namespace feed_forward_test
