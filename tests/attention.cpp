#include "prenorm/attention.h"

#include "support.h"

namespace attention_test {

using prenorm::attention;
using prenorm::AttentionMask;
using prenorm::MultiHeadAttention;
using prenorm::MultiHeadAttentionOptions;
using torch::Tensor;

namespace {

constexpr int64_t B = 3, H = 2, T = 5, D = 8;

Tensor output_of(MultiHeadAttention& mha, const Tensor& x, const AttentionMask& mask = {}) {
  return std::get<0>(mha(x, mask));
}

/// Attention whose projections leave everything as it is: values are the input, the output is what the heads saw.
MultiHeadAttention transparent(int64_t d_model, int64_t heads) {
  const torch::NoGradGuard no_grad;
  MultiHeadAttention mha(MultiHeadAttentionOptions(d_model, heads));
  mha->in_proj->weight.copy_(torch::eye(d_model).repeat({3, 1}));
  mha->out_proj->weight.copy_(torch::eye(d_model));
  return mha;
}

}  // namespace

TEST_CASE("scores are divided by the root of the head's width") {
  const Tensor q = torch::tensor({2.0, 0.0, 0.0, 0.0}, torch::kFloat).view({1, 1, 1, 4});
  const Tensor k = torch::cat({q, torch::zeros({1, 1, 1, 4})}, 2);
  const auto [output, weights] = attention(q, k, k, {}, 0.0, true);
  CHECK(close(weights, torch::tensor({0.8807971, 0.1192029}, torch::kFloat).view({1, 1, 1, 2})));
  CHECK(close(output, q * 0.8807971));
}

TEST_CASE("heads merge side by side, each with its own mask") {
  const Tensor x = torch::tensor({{{1, 2, 5, 6}, {3, 4, 7, 8}}}, torch::kFloat);
  const Tensor self = torch::eye(2).to(torch::kBool);
  auto mha = transparent(4, 2);
  CHECK(close(output_of(mha, x, self), x));
  const Tensor second_head_swapped = torch::stack({self, ~self}).unsqueeze(0);
  CHECK(close(output_of(mha, x, second_head_swapped), torch::tensor({{{1, 2, 7, 8}, {3, 4, 5, 6}}}, torch::kFloat)));
}

TEST_CASE("permuting tokens permutes outputs") {
  torch::manual_seed(1);
  MultiHeadAttention mha(MultiHeadAttentionOptions(D, H));
  const Tensor x = torch::randn({B, T, D}), order = torch::randperm(T);
  CHECK(close(output_of(mha, x.index_select(1, order)), output_of(mha, x).index_select(1, order)));
}

TEST_CASE("weights are formed only when asked for, and change nothing") {
  torch::manual_seed(2);
  MultiHeadAttention mha(MultiHeadAttentionOptions(D, H));
  const Tensor x = torch::randn({B, T, D});
  for (const AttentionMask& mask : {AttentionMask(), AttentionMask::causal(), AttentionMask::lengths({5, 2, 3})}) {
    const auto [fused, none] = mha(x, mask);
    CHECK_FALSE(none.defined());
    const auto [output, weights] = mha->forward(x, mask, /*need_weights=*/true);
    CHECK(weights.sizes() == torch::IntArrayRef({B, H, T, T}));
    CHECK(close(output, fused));
  }
}

TEST_CASE("a causal mask keeps the past from the future") {
  torch::manual_seed(3);
  MultiHeadAttention mha(MultiHeadAttentionOptions(D, H));
  const Tensor x = torch::randn({B, T, D});
  Tensor changed = x.clone();
  changed.select(1, 3).normal_();
  for (const AttentionMask& mask : {AttentionMask::causal(), AttentionMask(torch::ones({T, T}, torch::kBool).tril())}) {
    const Tensor before = output_of(mha, x, mask), after = output_of(mha, changed, mask);
    CHECK(same(before.slice(1, 0, 3), after.slice(1, 0, 3)));
    CHECK_FALSE(torch::allclose(before.select(1, 3), after.select(1, 3)));
  }
}

TEST_CASE("a sequence that is all padding gives the output bias and touches no other") {
  torch::manual_seed(4);
  for (const bool bias : {false, true}) {
    MultiHeadAttention mha(MultiHeadAttentionOptions(D, H).bias(bias));
    const Tensor x = torch::randn({B, T, D});
    Tensor real = torch::ones({B, T}, torch::kBool);
    real[1].fill_(false);
    const auto mask = AttentionMask::padding(real);
    const auto [output, weights] = mha->forward(x, mask, /*need_weights=*/true);
    const Tensor expected = bias ? mha->out_proj->bias.detach() : torch::zeros({D});
    CHECK(same(output[1], expected.expand({T, D})));
    CHECK(same(output_of(mha, x, mask)[1], expected.expand({T, D})));
    CHECK(same(weights[1], torch::zeros({H, T, T})));
    CHECK(gradients_finite(*mha, output_of(mha, x, mask)));

    Tensor other = x.clone();
    other[1].normal_();
    for (const int64_t b : {0, 2}) {
      CHECK(same(output_of(mha, other, mask)[b], output_of(mha, x, mask)[b]));
      CHECK(close(output_of(mha, x, mask)[b], output_of(mha, x[b].unsqueeze(0))[0]));
    }
  }
}

TEST_CASE("positions past a sequence's length are zero") {
  torch::manual_seed(5);
  MultiHeadAttention mha(MultiHeadAttentionOptions(D, H).bias(true));
  const Tensor x = torch::randn({B, T, D});
  const auto [output, weights] = mha->forward(x, AttentionMask::lengths({0, 2, 5}), /*need_weights=*/true);
  CHECK(same(output[0], torch::zeros({T, D})));
  CHECK(same(output[1].slice(0, 2), torch::zeros({T - 2, D})));
  CHECK(same(weights[1].slice(1, 2), torch::zeros({H, T - 2, T})));
  CHECK(close(output[1].slice(0, 0, 2), output_of(mha, x[1].slice(0, 0, 2).unsqueeze(0))[0]));
}

TEST_CASE("dropout acts on the weights in training only") {
  torch::manual_seed(6);
  MultiHeadAttention mha(MultiHeadAttentionOptions(D, H).dropout(0.5)), plain(MultiHeadAttentionOptions(D, H));
  torch::NoGradGuard no_grad;
  plain->in_proj->weight.copy_(mha->in_proj->weight);
  plain->out_proj->weight.copy_(mha->out_proj->weight);
  const Tensor x = torch::randn({B, T, D});
  CHECK_FALSE(same(output_of(mha, x), output_of(mha, x)));
  const Tensor dropped = std::get<1>(mha->forward(x, {}, true));
  CHECK(same(dropped == 0, std::get<1>(mha->forward(x, {}, true)) == 0) == false);
  mha->eval();
  CHECK(same(output_of(mha, x), output_of(mha, x)));
  CHECK(same(output_of(mha, x), output_of(plain, x)));
}

TEST_CASE("attention refuses what does not fit") {
  CHECK(error_of([] { MultiHeadAttention(MultiHeadAttentionOptions(512, 10)); }) ==
        "d_model 512 is not divisible by num_heads 10");
  CHECK(error_of([] { MultiHeadAttention(MultiHeadAttentionOptions(0, 1)); }) == "d_model is 0, not a positive number");
  CHECK(error_of([] { MultiHeadAttention(MultiHeadAttentionOptions(8, -2)); }) ==
        "num_heads is -2, not a positive number");
  CHECK(error_of([] { MultiHeadAttention(MultiHeadAttentionOptions(8, 2).dropout(1.0)); }) ==
        "the dropout of the attention weights is 1, not in [0, 1)");
  MultiHeadAttention mha(MultiHeadAttentionOptions(D, H));
  CHECK(error_of([&] { mha(torch::zeros({T, D})); }) == "the input is [5, 8], expected [B, T, 8]");
  CHECK(error_of([&] { mha(torch::zeros({B, T, 7})); }) == "the input is [3, 5, 7], expected [B, T, 8]");
  const Tensor q = torch::zeros({1, 2, 3, 4});
  CHECK(error_of([&] {
          attention(q, torch::zeros({1, 2, 3, 5}), q);
        }) == "q [1, 2, 3, 4], k [1, 2, 3, 5] and v [1, 2, 3, 4] do not fit together");
}

}  // namespace attention_test
