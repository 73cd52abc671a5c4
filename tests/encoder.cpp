#include "prenorm/encoder.h"

#include <ATen/autocast_mode.h>

#include "support.h"

namespace encoder_test {

using prenorm::AttentionMask;
using prenorm::Encoder;
using prenorm::EncoderLayer;
using prenorm::EncoderLayerImpl;
using prenorm::EncoderLayerOptions;
using prenorm::EncoderOptions;
using prenorm::NormPlacement;
using torch::Tensor;

namespace {

constexpr int64_t B = 4, T = 6, D = 15, H = 3, L = 2;  // all different, D / H too

EncoderLayerOptions layer(NormPlacement placement = NormPlacement::pre) {
  return EncoderLayerOptions(D, H).norm_placement(placement).attention_bias(true);
}

std::int64_t count(const torch::nn::Module& module) {
  std::int64_t total = 0;
  for (const Tensor& parameter : module.parameters()) total += parameter.numel();
  return total;
}

}  // namespace

TEST_CASE("a layer is the course's two lines") {
  torch::manual_seed(1);
  const Tensor x = torch::randn({B, T, D});
  for (const auto placement : {NormPlacement::pre, NormPlacement::post}) {
    auto block = in_eval(EncoderLayer(layer(placement)));
    const auto attend = [&](const Tensor& y) { return std::get<0>(block->mha(y)); };
    Tensor expected;
    if (placement == NormPlacement::pre) {
      const Tensor y = x + attend(block->sub1->norm(x));
      expected = y + block->ff(block->sub2->norm(y));
    } else {
      const Tensor y = block->sub1->norm(x + attend(x));
      expected = block->sub2->norm(y + block->ff(y));
    }
    CHECK(close(block(x), expected));
  }
}

TEST_CASE("in training a layer drops after each sub-layer, inside the feed-forward block and among its weights") {
  const auto options = layer().dropout(0.3).attention_dropout(0.2);
  EncoderLayer block(options);
  auto [mha, ff, sub1, sub2] = std::tuple(block->mha, block->ff, block->sub1, block->sub2);
  CHECK((sub1->drop->options.p() == 0.3 && sub2->drop->options.p() == 0.3 && mha->options.dropout() == 0.2));
  CHECK(ff->net->at<prenorm::DropoutImpl>(2).options.p() == 0.3);
  const Tensor x = torch::randn({B, T, D});
  const auto same_seed = [] { torch::manual_seed(12); };
  same_seed();
  const Tensor found = block(x);
  same_seed();
  const Tensor y = x + sub1->drop(std::get<0>(mha(sub1->norm(x))));
  CHECK(same(found, y + sub2->drop(ff(sub2->norm(y)))));
  Tensor z = sub1->norm(y);
  same_seed();
  const Tensor fed = ff(z);
  same_seed();
  z = ff->net[0]->as<torch::nn::LinearImpl>()->forward(z);
  CHECK(same(fed, ff->net[3]->as<torch::nn::LinearImpl>()->forward(prenorm::Dropout(0.3)(torch::gelu(z)))));
}

TEST_CASE("one layer of the course has 3,150,336 parameters, with attention biases 3,152,384") {
  CHECK(count(*EncoderLayer()) == 1'048'576 + 2'099'712 + 2'048);
  CHECK(count(*EncoderLayer(EncoderLayerOptions(512, 8).attention_bias(true))) == 3'152'384);
  const auto narrow = EncoderLayerOptions(128, 8).attention_bias(true);
  CHECK(count(*EncoderLayer(narrow)) == 198'272);
  CHECK(count(*Encoder(EncoderOptions(narrow, 3))) == 3 * 198'272 + 2 * 128);
}

TEST_CASE("the state dict holds the documented keys in their order") {
  const std::vector<std::string> expected{"layers.0.mha.in_proj.weight [12, 4]",
                                          "layers.0.mha.out_proj.weight [4, 4]",
                                          "layers.0.ff.net.0.weight [16, 4]",
                                          "layers.0.ff.net.0.bias [16]",
                                          "layers.0.ff.net.3.weight [4, 16]",
                                          "layers.0.ff.net.3.bias [4]",
                                          "layers.0.sub1.norm.weight [4]",
                                          "layers.0.sub1.norm.bias [4]",
                                          "layers.0.sub2.norm.weight [4]",
                                          "layers.0.sub2.norm.bias [4]",
                                          "norm.weight [4]",
                                          "norm.bias [4]"};
  CHECK(state_keys(*Encoder(EncoderOptions(EncoderLayerOptions(4, 2), 1))) == expected);
}

TEST_CASE("the final norm follows the placement unless asked for") {
  for (const auto& [placement, asked, present] :
       std::vector<std::tuple<NormPlacement, std::optional<bool>, bool>>{{NormPlacement::pre, std::nullopt, true},
                                                                         {NormPlacement::post, std::nullopt, false},
                                                                         {NormPlacement::pre, false, false},
                                                                         {NormPlacement::post, true, true}}) {
    Encoder encoder(EncoderOptions(layer(placement), L).final_norm(asked));
    CHECK(encoder->named_parameters().contains("norm.weight") == present);
    CHECK(encoder->norm.is_empty() != present);
  }
}

TEST_CASE("norms without a bias have none, and neither have their copies") {
  torch::manual_seed(11);
  const auto options = layer().norm_bias(false);
  auto encoder = in_eval(Encoder(EncoderOptions(options, L)));
  CHECK(count(*encoder) == count(*Encoder(EncoderOptions(layer(), L))) - (2 * L + 1) * D);
  for (auto& parameter : encoder->parameters()) parameter.data().normal_(0.0, 0.3);
  const auto keys = encoder->named_parameters().keys();
  CHECK(std::ranges::none_of(keys, [](const std::string& key) { return key.ends_with("norm.bias"); }));
  const Tensor x = torch::randn({B, T, D}), expected = encoder(x);
  CHECK(close(encoder->norm(x), torch::layer_norm(x, {D}, encoder->norm->weight)));

  auto copy = std::dynamic_pointer_cast<prenorm::EncoderImpl>(encoder->clone());
  CHECK(same(copy->forward(x), expected));
  CHECK(copy->named_parameters().keys() == keys);
  const auto norm = std::dynamic_pointer_cast<torch::nn::LayerNormImpl>(encoder->norm->clone());
  CHECK((same(norm->weight, encoder->norm->weight) && !norm->weight.is_same(encoder->norm->weight)));
  CHECK(norm->named_parameters().keys() == std::vector<std::string>{"weight"});
  Encoder other(EncoderOptions(options, L));
  std::stringstream archive;
  torch::save(encoder, archive);
  torch::load(other, archive);
  CHECK(same(in_eval(other)(x), expected));
  encoder->to(torch::kDouble);
  encoder->train();
  encoder(x.to(torch::kDouble)).square().sum().backward();
  CHECK(encoder->norm->weight.grad().isfinite().all().item<bool>());

  const auto with_final_bias = EncoderOptions(options, L).final_norm_bias(true);
  CHECK(Encoder(with_final_bias)->named_parameters().contains("norm.bias"));
}

TEST_CASE("an encoder is its layers in a row, with initial weights of their own") {
  torch::manual_seed(2);
  for (const auto placement : {NormPlacement::pre, NormPlacement::post}) {
    auto encoder = in_eval(Encoder(EncoderOptions(layer(placement), L)));
    const Tensor x = torch::randn({B, T, D});
    auto& first = *encoder->layers[0]->as<EncoderLayerImpl>();
    auto& second = *encoder->layers[1]->as<EncoderLayerImpl>();
    const Tensor last = second.forward(first.forward(x));
    CHECK(same(encoder(x), placement == NormPlacement::pre ? encoder->norm(last) : last));
    CHECK_FALSE(same(first.mha->in_proj->weight, second.mha->in_proj->weight));
    CHECK(first.mha->in_proj->weight.data_ptr() != second.mha->in_proj->weight.data_ptr());
  }
}

TEST_CASE("layers may differ in all but their width") {
  std::vector<EncoderLayerOptions> layers{layer(), EncoderLayerOptions(D, 5).d_ff(7)};
  auto encoder = in_eval(Encoder(EncoderOptions(layers)));
  CHECK(encoder(torch::randn({B, T, D}), AttentionMask::lengths({1, 2, 3, 6})).isfinite().all().item<bool>());
  layers[1].d_model(D + 2);
  CHECK(error_of([&] { Encoder(EncoderOptions{layers}); }) == "the layers of an encoder differ in d_model: 15 and 17");
  CHECK(error_of([&] { Encoder(EncoderOptions(layer(), 0)); }) == "num_layers is 0, not a positive number");
  CHECK(error_of([&] { Encoder(EncoderOptions(std::vector<EncoderLayerOptions>{})); }) ==
        "an encoder needs at least one layer");
}

TEST_CASE("inspect sees what forward computes") {
  torch::manual_seed(3);
  auto encoder = in_eval(Encoder(EncoderOptions(layer(), L)));
  const Tensor x = torch::randn({B, T, D});
  const auto mask = AttentionMask::lengths({6, 1, 4, 0});
  const auto states = encoder->inspect(x, mask);
  CHECK(close(states.output, encoder(x, mask)));
  REQUIRE(states.hidden_states.size() == L + 1);
  REQUIRE(states.attention_weights.size() == L);
  CHECK(same(states.hidden_states[0], x));
  CHECK(close(states.hidden_states[1], encoder->layers[0]->as<EncoderLayerImpl>()->forward(x, mask)));
  CHECK(same(states.hidden_states[2], states.output));
  for (const Tensor& weights : states.attention_weights) {
    CHECK(weights.sizes() == torch::IntArrayRef({B, H, T, T}));
    CHECK(close(weights[2].slice(1, 0, 4).sum(-1), torch::ones({H, 4})));
    CHECK(same(weights[2].slice(2, 4), torch::zeros({H, T, 2})));
  }
}

TEST_CASE("a padded batch gives, on its real tokens, what each sequence gives alone") {
  torch::manual_seed(4);
  for (const auto placement : {NormPlacement::pre, NormPlacement::post}) {
    auto encoder = in_eval(Encoder(EncoderOptions(layer(placement), L)));
    encoder->to(torch::kDouble);
    const Tensor x = torch::randn({B, T, D}, torch::kDouble);
    const std::vector<int64_t> lengths{6, 1, 4, 0};
    const Tensor padding = torch::arange(T) < torch::tensor(lengths).unsqueeze(1);
    const Tensor by_lengths = encoder(x, AttentionMask::lengths(lengths));
    const Tensor by_padding = encoder(x, AttentionMask::padding(padding));
    CHECK(by_lengths.sizes() == x.sizes());
    for (int64_t b = 0; b < B; ++b) {
      const auto own = lengths[b];
      CHECK(same(by_lengths[b].slice(0, own), torch::zeros({T - own, D}, torch::kDouble)));
      if (own == 0) continue;
      const Tensor alone = encoder(x[b].slice(0, 0, own).unsqueeze(0))[0];
      CHECK(close(by_lengths[b].slice(0, 0, own), alone));
      CHECK(close(by_padding[b].slice(0, 0, own), alone));
    }
    CHECK(gradients_finite(*encoder, encoder(x, AttentionMask::lengths(lengths))));
    CHECK(gradients_finite(*encoder, encoder(x, AttentionMask::padding(padding))));
  }
}

TEST_CASE("masked encoders run in every floating type of the CPU") {
  torch::manual_seed(5);
  auto encoder = in_eval(Encoder(EncoderOptions(layer(), L)));
  const Tensor x = torch::randn({B, T, D});
  const Tensor padding = torch::arange(T) < torch::tensor({6, 1, 4, 0}).unsqueeze(1);
  const Tensor float_padding = torch::zeros({B, T}).masked_fill(~padding, -INFINITY);
  const Tensor expected = encoder(x, AttentionMask::padding(padding));
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    encoder->to(type);
    for (const auto& mask : {AttentionMask::padding(padding), AttentionMask::padding(float_padding)}) {
      const Tensor output = encoder(x.to(type), mask);
      CHECK(output.scalar_type() == type);
      CHECK(output.isfinite().all().item<bool>());
      CHECK(torch::allclose(output.to(torch::kFloat), expected, 0.0, type == torch::kBFloat16 ? 0.1 : 1e-4));
    }
    CHECK(close(encoder->inspect(x.to(type), AttentionMask::padding(padding)).output,
                encoder(x.to(type), AttentionMask::padding(padding))));
  }
}

TEST_CASE("dropout rests in evaluation, and with and without grad the numbers are one") {
  torch::manual_seed(6);
  Encoder encoder(EncoderOptions(layer().dropout(0.5).attention_dropout(0.5), L));
  const Tensor x = torch::randn({B, T, D});
  CHECK_FALSE(same(encoder(x), encoder(x)));
  encoder->eval();
  const Tensor with_grad = encoder(x);
  CHECK(with_grad.requires_grad());
  const torch::NoGradGuard no_grad;
  const Tensor without = encoder(x);
  CHECK(same(with_grad, without));
  CHECK_FALSE(without.requires_grad());
}

TEST_CASE("a seed determines the initial weights") {
  const auto weights = [](uint64_t seed) {
    torch::manual_seed(seed);
    return Encoder(EncoderOptions(layer(), L))->parameters();
  };
  const auto first = weights(7), again = weights(7), other = weights(8);
  CHECK(std::ranges::equal(first, again, same));
  CHECK_FALSE(same(first[0], other[0]));
}

TEST_CASE("dense masks of every shape act alike in training and evaluation") {
  torch::manual_seed(8);
  Encoder encoder(EncoderOptions(layer().dropout(0.0), L));
  const Tensor x = torch::randn({B, T, D});
  const Tensor mask = (torch::rand({T, T}) < 0.6) | torch::eye(T).to(torch::kBool);
  const Tensor expected = encoder(x, mask);
  CHECK_FALSE(torch::allclose(expected, encoder(x)));
  for (const Tensor& same_mask : {mask.expand({B, T, T}), mask.expand({B, 1, T, T}), mask.expand({B, H, T, T})}) {
    for (const bool training : {true, false}) {
      encoder->train(training);
      CHECK(close(encoder(x, same_mask), expected));
    }
  }
}

TEST_CASE("under autocast a masked encoder runs in bfloat16") {
  torch::manual_seed(9);
  auto encoder = in_eval(Encoder(EncoderOptions(layer(), L)));
  const Tensor x = torch::randn({B, T, D}), bias = torch::randn({T, T});
  const auto mask = AttentionMask(bias) & AttentionMask::lengths({6, 1, 4, 0});
  const Tensor expected = encoder(x, mask);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor output = encoder(x, mask);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(torch::allclose(output.to(torch::kFloat), expected, 0.0, 0.1));
}

TEST_CASE("a mask may be used again, with another batch, type or length") {
  torch::manual_seed(10);
  auto encoder = in_eval(Encoder(EncoderOptions(layer(), L)));
  const auto causal = AttentionMask::causal();
  const Tensor x = torch::randn({B, T, D});
  const auto ready = causal.prepare(x, H);
  const Tensor expected = encoder(x, causal);
  CHECK(same(encoder(x, ready), expected));
  CHECK(close(encoder(x.slice(0, 0, 2), ready), expected.slice(0, 0, 2)));
  CHECK(close(encoder(x.slice(1, 0, 3), ready), expected.slice(1, 0, 3)));
  encoder->to(torch::kDouble);
  CHECK(torch::allclose(encoder(x.to(torch::kDouble), ready), expected.to(torch::kDouble), 0.0, 1e-5));
  CHECK(encoder(torch::zeros({0, T, D}, torch::kDouble), causal).sizes() == torch::IntArrayRef({0, T, D}));
}

TEST_CASE("a layer that is no EncoderLayer is named, one more is called") {
  auto encoder = in_eval(Encoder(EncoderOptions(layer(), L)));
  const Tensor x = torch::randn({B, T, D});
  EncoderLayer more = in_eval(EncoderLayer(layer()));
  const Tensor expected = encoder->norm(more(encoder->layer(1).forward(encoder->layer(0).forward(x))));
  encoder->layers->push_back(more);
  CHECK(close(encoder(x), expected));
  encoder->layers->insert(1, torch::nn::Linear(D, D).ptr());
  const std::string error = "layers[1] of the encoder is a torch::nn::LinearImpl, not an EncoderLayer";
  CHECK(error_of([&] { encoder(x); }) == error);
  CHECK(error_of([&] { encoder->inspect(x); }) == error);
}

}  // namespace encoder_test
