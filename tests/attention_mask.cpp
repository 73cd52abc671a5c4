#include "prenorm/attention_mask.h"

#include "prenorm/attention.h"
#include "support.h"

namespace attention_mask_test {

using prenorm::attention;
using prenorm::AttentionMask;
using torch::Tensor;

namespace {

// N, L, H and d all differ, so that no check can confuse one with another.
constexpr int64_t B = 2, H = 3, T = 5, Dh = 4;

Tensor random_bool(torch::IntArrayRef sizes) {
  return torch::rand(sizes) < 0.7;
}

Tensor as_float(const Tensor& mask) {
  return torch::zeros(mask.sizes()).masked_fill(~mask, -INFINITY);
}

struct Heads {
  Tensor q = torch::randn({B, H, T, Dh}), k = torch::randn({B, H, T, Dh}), v = torch::randn({B, H, T, Dh});

  Tensor output(const AttentionMask& mask) const { return std::get<0>(attention(q, k, v, mask)); }
  Tensor weights(const AttentionMask& mask) const { return std::get<1>(attention(q, k, v, mask, 0.0, true)); }
};

/// Which keys each query gives weight to, as the mask should have it: [B,H,T,T] bool.
Tensor seen(const AttentionMask& mask) {
  return Heads().weights(mask) > 0;
}

}  // namespace

TEST_CASE("true means may attend, and a causal bool mask gives the hand-computed rows") {
  // pytorch#80494 adds the bool mask to the scores and gets 0.1553624, 0.4223188, 0.4223188 in the first row.
  const Tensor zero = torch::zeros({1, 1, 3, 2});
  const Tensor causal = torch::ones({3, 3}, torch::kBool).tril();
  const Tensor expected = torch::tensor({{1.0, 0.0, 0.0}, {0.5, 0.5, 0.0}, {1.0 / 3, 1.0 / 3, 1.0 / 3}}, torch::kFloat);
  CHECK(close(std::get<1>(attention(zero, zero, zero, causal, 0.0, true))[0][0], expected));
  CHECK(close(std::get<1>(attention(zero, zero, zero, AttentionMask::causal(), 0.0, true))[0][0], expected));
}

TEST_CASE("bool and {0, -inf} masks are the same mask") {
  torch::manual_seed(1);
  const Heads heads;
  const Tensor dense = random_bool({T, T}), padding = random_bool({B, T});
  CHECK(same(heads.output(dense), heads.output(as_float(dense))));
  CHECK(same(heads.weights(dense), heads.weights(as_float(dense))));
  const auto bool_padding = heads.output(AttentionMask::padding(padding));
  CHECK(same(bool_padding, heads.output(AttentionMask::padding(as_float(padding)))));
  CHECK_FALSE(torch::allclose(bool_padding, heads.output({})));
}

TEST_CASE("a floating mask is added to the scores") {
  const Tensor zero = torch::zeros({1, 1, 2, 4});
  const Tensor bias = torch::tensor({{0.0, std::log(3.0)}, {0.0, 0.0}}, torch::kFloat);
  const Tensor expected = torch::tensor({{0.25, 0.75}, {0.5, 0.5}}, torch::kFloat);
  CHECK(close(std::get<1>(attention(zero, zero, zero, bias, 0.0, true))[0][0], expected));
}

TEST_CASE("every dense shape means the same in each head and sequence, fused or not") {
  torch::manual_seed(2);
  const Heads heads;
  const Tensor full = random_bool({B, H, T, T}).logical_or(torch::eye(T).to(torch::kBool));
  const auto expand = [](const Tensor& mask) { return mask.expand({B, H, T, T}); };
  const Tensor two = full[0][0], three = full.select(1, 0), per_sequence = three.unsqueeze(1);
  CHECK(same(seen(two), expand(two)));
  CHECK(same(seen(three), expand(per_sequence)));
  CHECK(same(seen(per_sequence), expand(per_sequence)));
  CHECK(same(seen(full), full));
  const Tensor keys = full.select(2, 0).unsqueeze(2);
  CHECK(same(seen(keys), expand(keys)));
  for (const Tensor& mask : {two, three, per_sequence, full, keys}) {
    CHECK(close(heads.output(mask), torch::matmul(heads.weights(mask), heads.v)));
  }
}

TEST_CASE("lengths, padding and causal hide what they say, alone and together") {
  torch::manual_seed(3);
  const Tensor none = torch::zeros({T}, torch::kBool);
  const auto keys = [&](int64_t first, int64_t last) {
    Tensor row = none.clone();
    row.slice(0, first, last).fill_(true);
    return row;
  };
  const Tensor triangle = torch::ones({T, T}, torch::kBool).tril();

  const Tensor lengths = seen(AttentionMask::lengths({2, 5}));
  CHECK(same(lengths[0][0], torch::stack({keys(0, 2), keys(0, 2), none, none, none})));
  CHECK(lengths[1].all().item<bool>());

  const Tensor left = torch::stack({keys(2, 5), keys(0, 5)});
  const Tensor padding = seen(AttentionMask::padding(left));
  CHECK(same(padding[0][1], keys(2, 5).expand({T, T})));
  CHECK(padding[1].all().item<bool>());

  CHECK(same(seen(AttentionMask::causal()), triangle.expand({B, H, T, T})));
  CHECK(same(seen(AttentionMask::causal() & AttentionMask::padding(left))[0][0], triangle & keys(2, 5)));
  const Tensor both = seen(AttentionMask::lengths({3, 5}) & AttentionMask::causal());
  CHECK(same(both[0][0], triangle & keys(0, 3).unsqueeze(1) & keys(0, 3)));
  CHECK(same(both[1][0], triangle));
  CHECK(same(seen(AttentionMask::lengths({3, 5}) & AttentionMask::lengths({4, 2})),
             seen(AttentionMask::lengths({3, 2}))));
  const Tensor dense = random_bool({T, T});
  CHECK(same(seen(AttentionMask(dense) & AttentionMask::lengths({5, 5}))[0][0], dense));
  CHECK(same(seen(AttentionMask(dense) & AttentionMask(as_float(triangle)))[0][0], dense & triangle));
  CHECK(same(seen(AttentionMask(Tensor()) & AttentionMask()), torch::ones({B, H, T, T}, torch::kBool)));
}

TEST_CASE("a query with nothing to attend to has weights of zero and finite gradients") {
  torch::manual_seed(4);
  Tensor no_second = torch::ones({T, T}, torch::kBool);
  no_second[1].fill_(false);
  const Tensor left = torch::arange(T) >= torch::tensor(std::vector<int64_t>{3, T}).unsqueeze(1);
  for (const AttentionMask& mask :
       {AttentionMask(no_second), AttentionMask(as_float(no_second)),
        AttentionMask::padding(torch::zeros({B, T}, torch::kBool)),
        AttentionMask::padding(left) & AttentionMask::causal(), AttentionMask::lengths({0, 3}),
        AttentionMask::lengths({0, 3}) & no_second, AttentionMask::lengths({0, 3}) & AttentionMask::causal()}) {
    for (const bool need_weights : {false, true}) {
      Heads heads;
      for (Tensor* leaf : {&heads.q, &heads.k, &heads.v}) leaf->set_requires_grad(true);
      const auto [output, weights] = attention(heads.q, heads.k, heads.v, mask, 0.0, need_weights);
      CHECK(same(output[0].select(1, 1), torch::zeros({H, Dh})) == !seen(mask)[0].select(1, 1).any().item<bool>());
      output.square().sum().backward();
      for (const Tensor& leaf : {heads.q, heads.k, heads.v}) CHECK(leaf.grad().isfinite().all().item<bool>());
      if (need_weights) CHECK(weights.isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("a mask that does not fit is refused with what was given and what is allowed") {
  const Heads heads;
  const auto error = [&](const AttentionMask& mask) { return error_of([&] { heads.output(mask); }); };
  const auto dense = [](torch::IntArrayRef sizes) { return AttentionMask(torch::ones(sizes, torch::kBool)); };
  CHECK(
      error(dense({4, 5})) ==
      "the attention mask is [4, 5], expected [T, T], [B, T, T], [B, 1, T, T] or [B, H, T, T] with B 2, H 3, T 5 (key "
      "padding [B, T]: AttentionMask::padding)");
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {5, 4}, {1, 5}, {3, 5, 5}, {6, 5, 5}, {2, 1, 5}, {2, 2, 5, 5}, {3, 3, 5, 5}, {2, 3, 4, 5}, {2, 3, 5, 1}}) {
    CHECK(error(dense(sizes)).find("the attention mask is ") == 0);
  }
  CHECK(error(AttentionMask::padding(torch::ones({5, 2}, torch::kBool))) ==
        "the padding mask is [5, 2], expected [B, T] = [2, 5]");
  CHECK(error(AttentionMask::lengths({1, 2, 3})) == "the mask has 3 lengths for a batch of 2");
  CHECK(error(AttentionMask::lengths({1, 6})) == "length 6 of sequence 1 exceeds T 5");
  CHECK(error_of([] { AttentionMask::lengths({2, -1}); }) == "length -1 of sequence 1 is negative");
  CHECK(error_of([] { AttentionMask(torch::ones({5})); }).find("the attention mask is [5]; give") == 0);
  CHECK(error_of([] {
          AttentionMask(torch::ones({5, 5}, torch::kLong));
        }) == "the attention mask has type Long; give bool (true: may attend) or floating (added to the scores)");
  CHECK(error_of([] { AttentionMask::padding(torch::ones({2, 5}, torch::kLong)); }).find("the padding mask has") == 0);
  CHECK(error_of([] { AttentionMask::padding(torch::ones({5}, torch::kBool)); }) ==
        "the padding mask is [5]; give [B, T]");
  CHECK(error_of([] {
          AttentionMask::lengths({1}) & AttentionMask::lengths({1, 2});
        }) == "masks of 1 and 2 lengths do not combine");
}

TEST_CASE("two dimensions are refused where they may be those of key padding") {
  const auto attend = [](const AttentionMask& mask, int64_t batch, int64_t queries) {
    const Tensor q = torch::zeros({batch, H, queries, Dh}), k = torch::zeros({batch, H, T, Dh});
    return std::get<1>(attention(q, k, k, mask, 0.0, true)) > 0;
  };
  const Tensor mask = torch::arange(T) < torch::tensor({5, 1, 2, 3, 4}).unsqueeze(1);
  const std::string error =
      "an attention mask of [5, 5] may be [T, T] or key padding [B, T] where both are 5: say "
      "AttentionMask::dense(mask) "
      "or AttentionMask::padding(mask)";
  CHECK(error_of([&] { attend(mask, T, T); }) == error);
  CHECK(error_of([&] { attend(as_float(mask), T, T); }) == error);
  CHECK(error_of([&] { attend(AttentionMask::causal() & mask, T, T); }) == error);
  CHECK(error_of([&] { attend(AttentionMask(mask) & AttentionMask::lengths({5, 5, 5, 5, 5}), T, T); }) == error);
  CHECK(error_of([&] { attend(mask.slice(0, 0, 3), 3, 3); }).starts_with("an attention mask of [3, 5] may be"));
  CHECK(error_of([&] {
          attend(AttentionMask(mask.slice(0, 0, 2)) & AttentionMask::causal(), 2, T);
        }).ends_with("(key padding [B, T]: AttentionMask::padding)"));

  const Tensor expected = mask.expand({T, H, T, T});
  CHECK(same(attend(AttentionMask::dense(mask), T, T), expected));
  CHECK(same(attend(mask.unsqueeze(0), T, T), expected));
  CHECK(same(attend(AttentionMask::dense(mask) & AttentionMask(), T, T), expected));
  CHECK(same(attend(AttentionMask::padding(mask), T, T), mask.view({T, 1, 1, T}).expand({T, H, T, T})));
  CHECK(same(attend(mask, 1, T), expected.slice(0, 0, 1)));
  CHECK(same(attend(AttentionMask::causal(), T, T)[0][0], torch::ones({T, T}, torch::kBool).tril()));
}

TEST_CASE("queries may be fewer or more than keys") {
  torch::manual_seed(5);
  const Tensor q = torch::randn({B, H, 3, Dh}), k = torch::randn({B, H, T, Dh});
  const auto hidden = [&](const AttentionMask& mask) { return std::get<1>(attention(q, k, k, mask, 0.0, true)) == 0; };
  const Tensor expected = torch::tensor({{false, false, false, true, true}, {true, true, true, true, true}})
                              .unsqueeze(1)
                              .unsqueeze(1)
                              .expand({B, H, 3, T});
  CHECK(same(hidden(AttentionMask::lengths({3, 0})), expected));
  CHECK(same(hidden(AttentionMask::padding(~expected.select(1, 0).select(1, 0))), expected));
  CHECK(same(hidden(~expected[0][0]), expected[0].expand({B, H, 3, T})));
  CHECK(close(std::get<0>(attention(q, k, k, AttentionMask::lengths({3, 0}))),
              torch::matmul(std::get<1>(attention(q, k, k, AttentionMask::lengths({3, 0}), 0.0, true)), k)));
  CHECK(error_of([&] { hidden(AttentionMask::causal()); }) ==
        "a causal mask needs as many queries as keys, got 3 and 5");
}

TEST_CASE("a mask knows the real tokens and zeroes what lies past them") {
  const Tensor real = AttentionMask::lengths({1, 3}).real_tokens(2, 3, torch::kCPU);
  CHECK(same(real, torch::tensor({{true, false, false}, {true, true, true}})));
  CHECK_FALSE(AttentionMask::lengths({3, 3}).real_tokens(2, 3, torch::kCPU).defined());
  CHECK_FALSE(AttentionMask::causal().real_tokens(2, 3, torch::kCPU).defined());
  CHECK(same(AttentionMask::padding(as_float(real)).real_tokens(2, 3, torch::kCPU), real));
  CHECK(same(AttentionMask::lengths({1, 3}).zero_past_lengths(torch::ones({2, 3, 2})),
             real.unsqueeze(-1).expand({2, 3, 2}).to(torch::kFloat)));
}

}  // namespace attention_mask_test
