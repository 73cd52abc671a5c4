#include "prenorm/unpadded.h"

#include <ATen/autocast_mode.h>

#include "prenorm/attention.h"
#include "prenorm/model.h"
#include "support.h"

namespace unpadded_test {

using prenorm::AttentionMask;
using prenorm::EncoderModel;
using prenorm::Head;
using prenorm::ModelConfig;
using prenorm::Unpadded;
using torch::Tensor;
using Lengths = std::vector<int64_t>;

namespace {

constexpr int64_t B = 6, T = 9, H = 3, Dh = 5;
const Lengths kLengths{4, 0, 9, 4, 1, 4};  // 22 tokens

/// Each sequence by itself, where there is nothing to pad; [B,T,...], 0 past the lengths.
template <typename Forward>
Tensor one_by_one(const Lengths& lengths, const Forward& forward) {
  std::vector<Tensor> rows;
  Tensor some;
  for (size_t b = 0; b < lengths.size(); ++b) {
    Tensor row = lengths[b] == 0 ? Tensor() : forward(static_cast<int64_t>(b), lengths[b]);  // [1,t,...]
    if (row.defined()) some = row;
    rows.push_back(row);
  }
  for (auto& row : rows) {
    auto sizes = some.sizes().vec();
    sizes[1] = T - (row.defined() ? row.size(1) : 0);
    const Tensor rest = torch::zeros(sizes, some.options());
    row = row.defined() ? torch::cat({row, rest}, 1) : rest;
  }
  return torch::cat(rows);
}

ModelConfig config() {
  ModelConfig config;
  config.vocab_size = 11;
  config.d_model = 15;
  config.num_heads = 3;
  config.num_layers = 2;
  config.d_ff = 21;
  config.dropout = 0;
  return config;
}

/// Of a sum in which each element has a weight of its own. (The squares behind a norm have a sum that hardly depends on
/// what is before it: such gradients are rounding alone.)
std::vector<Tensor> gradients(const Tensor& output, const torch::nn::Module& module) {
  const Tensor weight = torch::arange(output.numel(), output.options()).sin().view_as(output);
  return torch::autograd::grad({(output * weight).sum()}, module.parameters());
}

AttentionMask mask_of(const Lengths& lengths, bool causal) {
  return causal ? AttentionMask::lengths(lengths) & AttentionMask::causal() : AttentionMask::lengths(lengths);
}

}  // namespace

TEST_CASE("packing takes the tokens alone, the shortest sequences first, and padding brings them back") {
  const Tensor x = torch::arange(1, 9).view({2, 4}).to(torch::kFloat);
  const auto row = Unpadded::of(x, AttentionMask::lengths({3, 2}));
  CHECK(same(row->pack(x), torch::tensor({{5., 6., 1., 2., 3.}}, torch::kFloat)));
  CHECK(same(row->pad(row->pack(x)), torch::tensor({{1., 2., 3., 0.}, {5., 6., 0., 0.}}, torch::kFloat)));
  const Tensor wide = torch::randn({B, T, 2, 3});
  const Unpadded as_they_come(kLengths, false, torch::kCPU);
  const Tensor back = as_they_come.pad(as_they_come.pack(wide));
  CHECK(same(back, AttentionMask::lengths(kLengths).zero_past_lengths(wide)));
}

TEST_CASE("there is a row where lengths and causality alone hide keys, and padding is worth it") {
  const Tensor x = torch::zeros({2, 20, 3});
  const auto lengths = AttentionMask::lengths({20, 11});
  CHECK(Unpadded::of(x, lengths));
  CHECK(Unpadded::of(x, lengths & AttentionMask::causal()));
  CHECK_FALSE(Unpadded::of(x, {}));
  CHECK_FALSE(Unpadded::of(x, AttentionMask::causal()));
  CHECK_FALSE(Unpadded::of(x, AttentionMask::lengths({20, 19})));
  CHECK_FALSE(Unpadded::of(x, AttentionMask::lengths({0, 0})));
  CHECK_FALSE(Unpadded::of(x, lengths & AttentionMask::padding(torch::ones({2, 20}, torch::kBool))));
  CHECK_FALSE(Unpadded::of(x, lengths & AttentionMask(torch::ones({1, 20, 20}, torch::kBool))));
  CHECK(error_of([&] { Unpadded::of(x, AttentionMask::lengths({20, 21})); }) == "length 21 of sequence 1 exceeds T 20");
  CHECK(error_of([&] { Unpadded::of(x, AttentionMask::lengths({20})); }) == "the mask has 1 lengths for a batch of 2");
}

TEST_CASE("attention in a row is that of each sequence by itself, gradients too") {
  torch::manual_seed(1);
  const int threads = at::get_num_threads();
  const auto total = std::accumulate(kLengths.begin(), kLengths.end(), int64_t{0});
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    for (const bool causal : {false, true}) {
      for (const int count : {1, 2, 3}) {
        at::set_num_threads(count);
        const Tensor qkv = torch::randn({1, total, 3 * H * Dh}, type).requires_grad_();
        AttentionMask mask = AttentionMask::unpadded(kLengths);
        if (causal) mask = mask & AttentionMask::causal();
        const Tensor output = std::get<0>(prenorm::attention_in_heads(qkv, H, mask));
        std::vector<Tensor> parts;
        for (int64_t first = 0; const auto length : kLengths) {
          const auto own = causal ? AttentionMask::causal() : AttentionMask();
          // With weights, the formula is computed as it stands.
          parts.push_back(std::get<0>(prenorm::attention_in_heads(qkv.narrow(1, first, length), H, own, 0.0, true)));
          first += length;
        }
        const Tensor expected = torch::cat(parts, 1), weight = torch::randn_like(expected);
        CHECK(close(output, expected));
        CHECK(close(torch::autograd::grad({output}, {qkv}, {weight})[0],
                    torch::autograd::grad({expected}, {qkv}, {weight})[0]));
        const auto [again, weights] = prenorm::attention_in_heads(qkv, H, mask, 0.0, /*need_weights=*/true);
        CHECK(close(again, expected));
        CHECK(weights.sizes() == torch::IntArrayRef({1, H, total, total}));
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("threads share many sequences, and the answer does not depend on how") {
  torch::manual_seed(2);
  const int threads = at::get_num_threads();
  Lengths lengths;
  for (int64_t i = 0; i < 60; ++i) lengths.push_back((7 * i) % 31);
  const auto total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const Tensor qkv = torch::randn({1, total, 3 * H * Dh}).requires_grad_();
  std::vector<Tensor> outputs, found;
  for (const int count : {1, 2, 5}) {
    at::set_num_threads(count);
    outputs.push_back(std::get<0>(prenorm::attention_in_heads(qkv, H, AttentionMask::unpadded(lengths))));
    found.push_back(torch::autograd::grad({outputs.back().square().sum()}, {qkv})[0]);
    CHECK(close(outputs.back(), outputs.front()));
    CHECK(close(found.back(), found.front()));
  }
  at::set_num_threads(threads);
}

TEST_CASE("a model with lengths gives what each sequence by itself gives, with every head, gradients too") {
  torch::manual_seed(3);
  const Tensor ids = torch::randint(11, {B, T}, torch::kLong);
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    for (const auto head : {Head::none, Head::token, Head::sequence_mean, Head::sequence_first}) {
      for (const bool causal : {false, true}) {
        ModelConfig changed = config();
        changed.head = head;
        changed.num_classes = head == Head::none ? 0 : 4;
        changed.causal = causal;
        changed.norm_placement = causal ? prenorm::NormPlacement::post : prenorm::NormPlacement::pre;
        EncoderModel model(changed);
        model->to(type);
        const bool per_token = head == Head::none || head == Head::token;
        const Lengths lengths = per_token ? kLengths : Lengths{4, 2, 9, 4, 1, 4};
        const auto alone = [&](int64_t b, int64_t length) { return model(ids.narrow(0, b, 1).narrow(1, 0, length)); };
        Tensor expected;
        if (per_token) {
          expected = one_by_one(lengths, alone);
        } else {
          std::vector<Tensor> answers;
          for (int64_t b = 0; b < B; ++b) answers.push_back(alone(b, lengths[static_cast<size_t>(b)]));
          expected = torch::cat(answers);
        }
        const Tensor output = model(ids, AttentionMask::lengths(lengths));
        CHECK(close(output, expected));
        const auto found = gradients(output, *model), wanted = gradients(expected, *model);
        for (size_t i = 0; i < found.size(); ++i) CHECK(close(found[i], wanted[i]));
      }
    }
  }
}

TEST_CASE("an encoder with lengths computes no padding") {
  torch::manual_seed(4);
  prenorm::Encoder encoder(prenorm::EncoderOptions(prenorm::EncoderLayerOptions(15, 3).dropout(0.0), 2));
  const Tensor x = torch::randn({B, T, 15});
  for (const bool causal : {false, true}) {
    const AttentionMask own = causal ? AttentionMask::causal() : AttentionMask();
    const auto alone = [&](int64_t b, int64_t length) { return encoder(x.narrow(0, b, 1).narrow(1, 0, length), own); };
    const Tensor output = encoder(x, mask_of(kLengths, causal));
    CHECK(close(output, one_by_one(kLengths, alone)));
    CHECK(close(encoder->inspect(x, mask_of(kLengths, causal)).output, output));
  }
  Tensor poisoned = x.clone();
  poisoned[1].fill_(NAN);
  poisoned[4].slice(0, 1).fill_(NAN);
  CHECK(same(encoder(poisoned, AttentionMask::lengths(kLengths)), encoder(x, AttentionMask::lengths(kLengths))));
}

TEST_CASE("dropout among the attention weights pads for attention alone") {
  torch::manual_seed(5);
  const auto total = std::accumulate(kLengths.begin(), kLengths.end(), int64_t{0});
  const Tensor qkv = torch::randn({1, total, 3 * H * Dh});
  const auto mask = AttentionMask::unpadded(kLengths);
  Tensor mean = torch::zeros({1, total, H * Dh});
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) mean += std::get<0>(prenorm::attention_in_heads(qkv, H, mask, 0.25)) / kDraws;
  const Tensor expected = std::get<0>(prenorm::attention_in_heads(qkv, H, mask));
  CHECK((mean - expected).abs().max().item<double>() < 0.15);  // a weight's deviation is at most sqrt(1/3) of it

  // A weight that is all there is, is dropped whole: at one in four, times 4/3 otherwise.
  const Tensor single = std::get<0>(
      prenorm::attention_in_heads(torch::ones({1, 4000, 3}), 1, AttentionMask::unpadded(Lengths(4000, 1)), 0.25));
  CHECK(close(single.max(), torch::tensor(4.0F / 3)));
  CHECK(std::abs(single.mean().item<double>() - 1) < 0.05);
}

TEST_CASE("a row under autocast, of one sequence, and of a type that stays") {
  torch::manual_seed(6);
  EncoderModel model(config());
  const Tensor ids = torch::randint(11, {B, T}, torch::kLong);
  const auto lengths = AttentionMask::lengths(kLengths);
  const Tensor expected = model(ids, lengths);
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  const Tensor lower = model(ids, lengths);
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  at::autocast::clear_cache();
  CHECK((lower.to(torch::kFloat) - expected).abs().max().item<double>() < 0.1);
  const Tensor one = model(ids.narrow(0, 0, 1), AttentionMask::lengths({4}));
  CHECK(close(one.narrow(1, 0, 4), expected.narrow(0, 0, 1).narrow(1, 0, 4)));
  model->to(torch::kBFloat16);
  CHECK(model(ids, lengths).scalar_type() == torch::kBFloat16);
}

TEST_CASE("an unpadded mask says what it does not do") {
  const Tensor x = torch::randn({1, 6, 15});
  const auto mask = AttentionMask::unpadded({4, 2});
  CHECK(error_of([] { AttentionMask::unpadded({3, -1}); }) == "length -1 of sequence 1 is negative");
  for (const auto& other : {AttentionMask::lengths({6}), AttentionMask(torch::ones({1, 6, 6}, torch::kBool)),
                            AttentionMask::padding(torch::ones({1, 6}, torch::kBool)), mask}) {
    CHECK(error_of([&] { mask& other; }) == "an unpadded mask combines with a causal one alone");
    CHECK(error_of([&] { other& mask; }) == "an unpadded mask combines with a causal one alone");
  }
  CHECK(error_of([&] {
          mask.prepare(x.expand({2, 6, 15}), 3);
        }) == "the unpadded mask is of 6 tokens in one row, the queries are [B, T] = [2, 6] and the keys [2, 6]");
  CHECK(error_of([&] { mask.prepare(x.narrow(1, 0, 5), 3); }) ==
        "the unpadded mask is of 6 tokens in one row, the queries are [B, T] = [1, 5] and the keys [1, 5]");
  const Tensor qkv = torch::randn({1, 6, 45}).requires_grad_();
  const Tensor output = std::get<0>(prenorm::attention_in_heads(qkv, 3, mask));
  CHECK(error_of([&] {
          torch::autograd::grad({output.sum()}, {qkv}, {}, /*retain_graph=*/true, /*create_graph=*/true);
        }) == "attention has no gradient of its gradient");
}

}  // namespace unpadded_test
