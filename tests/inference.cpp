#include "prenorm/inference.h"

#include <thread>

#include "support.h"

namespace inference_test {

using prenorm::Activation;
using prenorm::AttentionMask;
using prenorm::EncoderModel;
using prenorm::Head;
using prenorm::InferenceEncoder;
using prenorm::InferenceModel;
using prenorm::ModelConfig;
using prenorm::NormPlacement;
using torch::Tensor;

namespace {

constexpr int64_t B = 4, T = 7;

ModelConfig config() {
  ModelConfig config;
  config.vocab_size = 11;
  config.d_model = 15;
  config.num_heads = 3;
  config.num_layers = 2;
  config.d_ff = 21;
  return config;
}

EncoderModel model_of(const ModelConfig& config) {
  EncoderModel model(config);
  for (auto& parameter : model->parameters()) parameter.data().normal_(0.0, 0.3);
  return in_eval(model);
}

Tensor some_ids(int64_t batch = B, int64_t length = T) {
  return torch::randint(11, {batch, length}, torch::kLong);
}

}  // namespace

TEST_CASE("what is prepared gives the numbers of the model, packed or not") {
  torch::manual_seed(1);
  const Tensor ids = some_ids(), segments = torch::randint(2, {B, T}, torch::kLong);
  const std::vector<AttentionMask> masks{{},
                                         AttentionMask::lengths({7, 2, 0, 5}),
                                         AttentionMask::lengths({7, 7, 7, 6}),
                                         AttentionMask::padding(torch::rand({B, T}) < 0.7),
                                         AttentionMask(torch::randn({B, T, T})),
                                         AttentionMask::lengths({7, 2, 0, 5}) & AttentionMask::causal()};
  for (const auto placement : {NormPlacement::pre, NormPlacement::post}) {
    for (const auto head : {Head::none, Head::token, Head::sequence_mean, Head::sequence_first}) {
      for (const auto activation : {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
        ModelConfig changed = config();
        changed.norm_placement = placement;
        changed.head = head;
        changed.num_classes = head == Head::none ? 0 : 5;
        changed.activation = activation;
        const bool more = activation == Activation::relu || activation == Activation::silu;
        changed.attention_bias = changed.embedding_norm = changed.causal = more;
        changed.feed_forward_bias = changed.norm_bias = !more;
        changed.num_segments = more ? 2 : 0;
        changed.final_norm = more ? std::optional(placement == NormPlacement::post) : std::nullopt;
        auto model = model_of(changed);
        for (const bool pack : {true, false}) {
          const InferenceModel prepared(model, pack);
          if (!pack) CHECK_FALSE(prepared.packed());
          for (const auto& mask : masks) {
            const Tensor given = more ? segments : Tensor(), output = prepared(ids, mask, given);
            CHECK(close(output, model(ids, mask, given)));
            CHECK_FALSE(output.requires_grad());
          }
        }
      }
    }
  }
}

TEST_CASE("this LibTorch lays weights out, or the product is computed as it was") {
  const InferenceModel prepared(model_of(config()));
  CHECK(prepared.packed() == at::hasMKLDNN());
}

TEST_CASE("other types are not packed and give their numbers") {
  torch::manual_seed(2);
  for (const auto type : {torch::kDouble, torch::kBFloat16}) {
    auto model = model_of(config());
    model->to(type);
    const InferenceModel prepared(model);
    CHECK_FALSE(prepared.packed());
    const Tensor ids = some_ids();
    CHECK(close(prepared(ids), model(ids)));
  }
}

TEST_CASE("an encoder alone is prepared as a model's is") {
  torch::manual_seed(3);
  std::vector<prenorm::EncoderLayerOptions> layers{prenorm::EncoderLayerOptions(15, 3),
                                                   prenorm::EncoderLayerOptions(15, 5).d_ff(8)};
  auto encoder = in_eval(prenorm::Encoder(prenorm::EncoderOptions(layers)));
  const Tensor x = torch::randn({B, T, 15});
  const auto mask = AttentionMask::lengths({1, 7, 3, 2});
  const InferenceEncoder prepared(encoder);
  CHECK(close(prepared(x, mask), encoder(x, mask)));
  CHECK(error_of([&] { prepared(torch::randn({B, T, 16})); }).find("16") != std::string::npos);
}

TEST_CASE("it keeps the weights that it was made of, and stands alone") {
  torch::manual_seed(4);
  auto model = model_of(config());
  const Tensor ids = some_ids(), expected = model(ids);
  const InferenceModel prepared(model);
  for (auto& parameter : model->parameters()) parameter.data().zero_();
  model = nullptr;
  CHECK(close(prepared(ids), expected));
  const InferenceModel copy = prepared;
  CHECK(same(copy(ids), prepared(ids)));
}

TEST_CASE("threads use one at once, each with batches of its own") {
  torch::manual_seed(5);
  auto model = model_of(config());
  const InferenceModel prepared(model);
  std::vector<Tensor> inputs, expected;
  std::vector<AttentionMask> masks;
  for (int64_t i = 0; i < 8; ++i) {
    inputs.push_back(some_ids(1 + i % 3, 3 + i));
    masks.push_back(i % 2 == 0 ? AttentionMask() : AttentionMask::lengths(std::vector<int64_t>(1 + i % 3, 1 + i / 2)));
    expected.push_back(prepared(inputs.back(), masks.back()));
    CHECK(close(expected.back(), model(inputs.back(), masks.back())));
  }
  std::vector<char> right(8, 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        const size_t which = (i + static_cast<size_t>(round)) % 8;
        const Tensor found = prepared(inputs[which], masks[which]);
        if (!torch::allclose(found, expected[which], 1e-5, 1e-5)) right[i] = 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == std::vector<char>(8, 1));
}

TEST_CASE("what cannot be prepared says why") {
  EncoderModel training(config());
  const std::string expected = "a module in training mode was to be prepared for inference; call eval() first";
  CHECK(error_of([&] { InferenceModel{training}; }) == expected);
  CHECK(error_of([&] { InferenceEncoder{training->encoder}; }) == expected);

  auto model = model_of(config());
  const InferenceModel prepared(model);
  CHECK(error_of([&] { prepared(torch::full({1, 2}, 11, torch::kLong)); }) == "token ids hold 11, allowed are 0 to 10");
  CHECK(error_of([&] { prepared(some_ids(), AttentionMask::lengths({1})); }) ==
        "the mask has 1 lengths for a batch of 4");
  model->encoder->layer(1).ff->net->push_back(torch::nn::ReLU());
  CHECK(error_of([&] { InferenceModel{model}; }) ==
        "a feed-forward block is not the one that its options say, and cannot be prepared");
}

}  // namespace inference_test
