#include "prenorm/model.h"

#include <fstream>
#include <limits>
#include <sstream>

#include "prenorm/parameter_count.h"
#include "prenorm/params/config_count.h"
#include "support.h"

namespace model_test {

using prenorm::AttentionMask;
using prenorm::EncoderModel;
using prenorm::Head;
using prenorm::ModelConfig;
using prenorm::Position;
using torch::Tensor;

namespace {

ModelConfig small(Head head) {
  return {.vocab_size = 7,
          .d_model = 12,
          .num_heads = 3,
          .num_layers = 2,
          .position = Position::learned,
          .max_positions = 6,
          .head = head,
          .num_classes = head == Head::none ? 0 : 5};
}

const Tensor kIds = torch::tensor({{1, 2, 3, 4, 5}, {6, 0, 1, 0, 0}});

std::int64_t resident_pages() {
  std::int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

}  // namespace

TEST_CASE("the state dict of a model holds the documented keys in their order") {
  auto config = small(Head::token);
  config.num_layers = 1;
  const std::vector<std::string> expected{"embeddings.token.weight [7, 12]",
                                          "embeddings.position.weight [6, 12]",
                                          "encoder.layers.0.mha.in_proj.weight [36, 12]",
                                          "encoder.layers.0.mha.out_proj.weight [12, 12]",
                                          "encoder.layers.0.ff.net.0.weight [48, 12]",
                                          "encoder.layers.0.ff.net.0.bias [48]",
                                          "encoder.layers.0.ff.net.3.weight [12, 48]",
                                          "encoder.layers.0.ff.net.3.bias [12]",
                                          "encoder.layers.0.sub1.norm.weight [12]",
                                          "encoder.layers.0.sub1.norm.bias [12]",
                                          "encoder.layers.0.sub2.norm.weight [12]",
                                          "encoder.layers.0.sub2.norm.bias [12]",
                                          "encoder.norm.weight [12]",
                                          "encoder.norm.bias [12]",
                                          "head.weight [5, 12]",
                                          "head.bias [5]"};
  CHECK(state_keys(*EncoderModel(config)) == expected);
}

TEST_CASE("each head reads the encoder's output its own way") {
  torch::manual_seed(1);
  for (const Head head : {Head::none, Head::token, Head::sequence_mean, Head::sequence_first}) {
    auto model = in_eval(EncoderModel(small(head)));
    const Tensor x = model->encoder(model->embeddings(kIds), AttentionMask::lengths({5, 3}));
    const Tensor output = model(kIds, AttentionMask::lengths({5, 3}));
    switch (head) {
      case Head::none:
        CHECK(same(output, x));
        break;
      case Head::token:
        CHECK(close(output[0], model->head(x[0])));
        CHECK(same(output[1].slice(0, 3), torch::zeros({2, 5})));
        break;
      case Head::sequence_mean:
        CHECK(close(output[0], model->head(x[0].mean(0))));
        CHECK(close(output[1], model->head(x[1].slice(0, 0, 3).mean(0))));
        break;
      case Head::sequence_first:
        CHECK(close(output, model->head(x.select(1, 0))));
        break;
    }
    CHECK(close(model->inspect(kIds, AttentionMask::lengths({5, 3})).output, output));
  }
}

TEST_CASE("padding tells the heads which tokens are real, wherever they stand") {
  torch::manual_seed(2);
  for (const Head head : {Head::sequence_mean, Head::sequence_first}) {
    auto config = small(head);
    config.position = Position::none;
    auto model = in_eval(EncoderModel(config));
    const Tensor alone = model(torch::tensor({{3, 4}}));
    const Tensor ids = torch::tensor({{0, 0, 3, 4}, {3, 4, 0, 0}});
    const Tensor real = torch::tensor({{false, false, true, true}, {true, true, false, false}});
    const Tensor padded = model(ids, AttentionMask::padding(real));
    CHECK(close(padded[0], alone[0]));
    CHECK(close(padded[1], alone[0]));
    const Tensor nothing = model(ids, AttentionMask::padding(torch::zeros({2, 4}, torch::kBool)));
    CHECK(nothing.isfinite().all().item<bool>());
  }
}

TEST_CASE("the mean of many tokens keeps its count and range in bfloat16") {
  const torch::NoGradGuard no_grad;
  auto config = small(Head::sequence_mean);
  config.position = Position::none;
  auto model = in_eval(EncoderModel(config));
  const Tensor ids = torch::full({1, 301}, 3, torch::kLong);
  const Tensor all = model(ids.slice(1, 0, 300));
  model->to(torch::kBFloat16);
  CHECK(torch::allclose(model(ids, AttentionMask::lengths({300})).to(torch::kFloat), all, 0.0, 0.05));
}

TEST_CASE("a model sees what it is told of segments and hidden states") {
  torch::manual_seed(3);
  auto config = small(Head::none);
  config.num_segments = 2;
  auto model = in_eval(EncoderModel(config));
  const Tensor segments = (kIds > 2).to(torch::kLong);
  CHECK_FALSE(torch::allclose(model->forward(kIds, {}, segments), model(kIds)));
  const auto states = model->inspect(kIds, {}, segments);
  CHECK(same(states.hidden_states[0], model->embeddings(kIds, segments)));
  CHECK(states.hidden_states.size() == 3);
  CHECK(states.attention_weights.size() == 2);

  auto with_head = in_eval(EncoderModel(small(Head::token)));
  const auto seen = with_head->inspect(kIds);
  CHECK(close(seen.output, with_head(kIds)));
  CHECK(close(with_head->head(seen.hidden_states[2]), seen.output));  // the last one is behind the final norm
}

TEST_CASE("a fresh head on a body, for fine-tuning") {
  torch::manual_seed(5);
  auto model = in_eval(EncoderModel(small(Head::none)));
  model->to(torch::kDouble);
  const Tensor states = model(kIds);
  model->set_head(Head::sequence_first, 3);
  CHECK((model->config.head == Head::sequence_first && model->config.num_classes == 3));
  CHECK(close(model(kIds), model->head(states.select(1, 0))));
  CHECK_FALSE(model->head->is_training());
  CHECK(model->named_parameters().keys().back() == "head.bias");
  auto copy = std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(model->clone());
  CHECK(same(copy->forward(kIds), model(kIds)));

  const Tensor old = model->head->weight;
  model->set_head(Head::sequence_first, 3);
  CHECK_FALSE(same(model->head->weight, old));
  CHECK(error_of([&] { model->set_head(Head::token); }) == "num_classes is 0, not a positive number");
  CHECK((model->config.head == Head::sequence_first && model(kIds).sizes() == torch::IntArrayRef({2, 3})));
  model->set_head(Head::none);
  CHECK(same(model(kIds), states));
  CHECK(model->config == small(Head::none));
}

TEST_CASE("a configuration that cannot be built names its field") {
  auto config = small(Head::token);
  config.num_heads = 5;
  CHECK(error_of([&] { EncoderModel{config}; }) == "d_model 12 is not divisible by num_heads 5");
  config = small(Head::token);
  config.num_classes = 0;
  CHECK(error_of([&] { EncoderModel{config}; }) == "num_classes is 0, not a positive number");
}

TEST_CASE("models move between types and through archives as LibTorch's own do") {
  torch::manual_seed(4);
  auto model = in_eval(EncoderModel(small(Head::token)));
  const Tensor expected = model(kIds);
  std::stringstream archive;
  torch::save(model, archive);
  EncoderModel loaded(small(Head::token));
  torch::load(loaded, archive);
  loaded->eval();
  CHECK(same(loaded(kIds), expected));

  model->to(torch::kDouble);
  const Tensor output = model(kIds, AttentionMask::lengths({5, 3}));
  CHECK(output.scalar_type() == torch::kDouble);
  CHECK(torch::allclose(output[0], expected[0].to(torch::kDouble), 0.0, 1e-5));
  model->to(torch::kFloat);
  CHECK(same(model(kIds), expected));

  torch::nn::AnyModule any(model);
  CHECK(same(any.forward(kIds), expected));
}

TEST_CASE("models without biases train, move and copy too") {
  auto config = small(Head::token);
  config.feed_forward_bias = false;
  EncoderModel model(config);
  model->to(torch::kDouble);
  model->to(torch::kCPU);
  auto copy = std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(model->clone());
  torch::optim::Adam optimizer(copy->parameters());
  copy->forward(kIds).square().sum().backward();
  optimizer.step();
  CHECK_FALSE(same(copy->parameters()[0], model->parameters()[0]));
  std::stringstream archive;
  torch::save(copy, archive);
  torch::load(model, archive);
  CHECK(std::ranges::equal(copy->parameters(), model->parameters(), same));
}

TEST_CASE("a tied head is the token table under two names, in whatever way the model is used") {
  auto config = small(Head::token);
  config.num_classes = config.vocab_size;
  const auto untied_keys = state_keys(*EncoderModel(config));
  const auto untied = prenorm::count_parameters(*EncoderModel(config)).front().second.total();
  config.tie_head = true;
  const auto tied = [](const EncoderModel& model) {
    return model->head->weight.is_same(model->embeddings->token->weight);
  };
  auto model = in_eval(EncoderModel(config));
  CHECK(tied(model));
  CHECK(state_keys(*model) == untied_keys);
  CHECK(model->named_parameters()["head.weight"].is_same(model->embeddings->token->weight));
  const auto count = prenorm::count_parameters(*model).front().second.total();
  CHECK(count == untied - 7 * 12);
  CHECK(prenorm::params::count_model(config).total().value() == count);
  const Tensor x = model->encoder(model->embeddings(kIds));
  CHECK(close(model(kIds), torch::linear(x, model->embeddings->token->weight, model->head->bias)));

  model(kIds).square().sum().backward();
  CHECK(model->head->weight.grad().is_same(model->embeddings->token->weight.grad()));
  EncoderModel copy(std::dynamic_pointer_cast<prenorm::EncoderModelImpl>(model->clone()));
  CHECK(tied(copy));
  CHECK_FALSE(copy->head->weight.is_same(model->head->weight));
  const Tensor expected = model(kIds);
  copy->to(torch::kDouble);
  copy->to(torch::kCPU, torch::kFloat);
  CHECK(tied(copy));
  CHECK(same(copy(kIds), expected));
  std::stringstream archive;
  torch::save(model, archive);
  auto loaded = in_eval(EncoderModel(config));
  torch::load(loaded, archive);
  CHECK(tied(loaded));
  CHECK(same(loaded(kIds), expected));

  config.num_classes = 5;
  CHECK(error_of([&] { EncoderModel{config}; }) ==
        "tie_head needs a head with as many classes as there are token ids: num_classes is 5, vocab_size 7");
}

TEST_CASE("padding of 0 and very negative numbers pools as the bool mask does") {
  torch::manual_seed(5);
  const Tensor real = torch::arange(5) < torch::tensor({{5}, {2}});
  for (const Head head : {Head::sequence_mean, Head::sequence_first}) {
    for (const Tensor& mask : {real, real.flip(1), real & (torch::arange(2) == 0).unsqueeze(1)}) {
      auto model = in_eval(EncoderModel(small(head)));
      const Tensor expected = model(kIds, AttentionMask::padding(mask));
      for (const double hidden : {-double{INFINITY}, std::numeric_limits<float>::lowest() * 1.0, -10000.0, -100.0}) {
        for (const auto type : {torch::kFloat, torch::kDouble}) {
          const Tensor added = torch::zeros({2, 5}, type).masked_fill(~mask, hidden);
          CHECK(close(model(kIds, AttentionMask::padding(added)), expected));
        }
      }
      const Tensor half = (1 - mask.to(torch::kBFloat16)) * -10000;
      CHECK(close(model(kIds, AttentionMask::padding(half)), expected));
    }
  }
  const std::string says =
      "the padding mask holds 1, but a floating one is added to the scores: 0 attends, -inf hides;";
  CHECK(error_of([&] { AttentionMask::padding(real.to(torch::kFloat)); }).starts_with(says));
  CHECK_FALSE(error_of([&] { AttentionMask::padding(torch::full({2, 5}, NAN)); }).empty());
}

TEST_CASE("inference builds no graph and holds its memory") {
  auto model = in_eval(EncoderModel(small(Head::token)));
  const torch::NoGradGuard no_grad;
  const auto run = [&](int calls) {
    for (int i = 0; i < calls; ++i) CHECK_FALSE(model(kIds, AttentionMask::lengths({5, 3})).requires_grad());
  };
  run(50);
  const auto before = resident_pages();
  run(200);
#ifndef __SANITIZE_ADDRESS__               // which keeps what was freed for a while
  CHECK(resident_pages() - before < 256);  // 1 MiB
#else
  CHECK(before > 0);
#endif
}

}  // namespace model_test
