#include "prenorm/module.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "folder.h"
#include "prenorm/model.h"
#include "prenorm/script/export.h"
#include "prenorm/weights/weights.h"
#include "support.h"

namespace module_test {

using prenorm::EncoderModel;
using prenorm::EncoderModelImpl;
using prenorm::Head;
using prenorm::ModelConfig;
using torch::Tensor;

namespace {

EncoderModel model() {
  return EncoderModel(ModelConfig{.vocab_size = 12,
                                  .d_model = 12,
                                  .num_heads = 3,
                                  .num_layers = 2,
                                  .position = prenorm::Position::learned,
                                  .num_segments = 2,
                                  .embedding_norm = true,
                                  .head = Head::token,
                                  .num_classes = 12});
}

const Tensor kIds = torch::tensor({{1, 2, 3}, {4, 5, 11}});

EncoderModel copy_of(const EncoderModel& original) {
  return EncoderModel(std::dynamic_pointer_cast<EncoderModelImpl>(original->clone()));
}

template <typename Holder, typename... Arguments>
void clones_twice(Arguments&&... arguments) {
  const Holder original(std::forward<Arguments>(arguments)...);
  const auto copy = original->clone(), again = original->clone(), of_copy = copy->clone();
  for (const auto& other : {copy, again, of_copy}) {
    CHECK(state_keys(*other) == state_keys(*original));
    CHECK(std::ranges::equal(other->parameters(), original->parameters(), same));
  }
}

/// Draws in every way that modules do, and needs what it draws to be drawn.
class NoisyImpl : public prenorm::Cloneable<NoisyImpl> {
 public:
  NoisyImpl() { NoisyImpl::reset(); }

  void reset() override {
    linear = register_module("linear", torch::nn::Linear(3, 3));
    order = register_buffer("order", torch::randperm(5));
    torch::nn::init::orthogonal_(linear->weight);
    while (torch::rand({1}).item<float>() < 0.9F) {
    }
    noise = torch::dropout(torch::randn({4}), 0.5, true) + torch::randint(3, {4}) + torch::bernoulli(torch::rand({4}));
  }

  torch::nn::Linear linear{nullptr};
  Tensor order, noise;
};

std::string saved(const torch::nn::Module& module) {
  torch::serialize::OutputArchive archive;
  module.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void load(torch::nn::Module& module, const std::string& bytes) {
  torch::serialize::InputArchive archive;
  std::istringstream stream(bytes);
  archive.load_from(stream);
  module.load(archive);
}

}  // namespace

TEST_CASE("every class clones, twice, and clones of clones do") {
  clones_twice<prenorm::MultiHeadAttention>(prenorm::MultiHeadAttentionOptions(8, 2));
  clones_twice<prenorm::SubLayerConnection>(8);
  clones_twice<prenorm::FeedForward>(8);
  clones_twice<prenorm::EncoderLayer>(prenorm::EncoderLayerOptions(8, 2));
  clones_twice<prenorm::Encoder>(prenorm::EncoderOptions(prenorm::EncoderLayerOptions(8, 2), 2));
  clones_twice<prenorm::PositionalEncoding>(prenorm::PositionalEncodingOptions(8, prenorm::Position::learned));
  clones_twice<prenorm::Embeddings>(prenorm::EmbeddingsOptions(5, 8).num_segments(2).norm(true));
  clones_twice<EncoderModel>(ModelConfig{.vocab_size = 5, .d_model = 8, .num_layers = 1});
}

TEST_CASE("a clone outlives its original and owns its weights") {
  torch::manual_seed(1);
  auto original = in_eval(model());
  auto copy = copy_of(original);
  const Tensor expected = original(kIds);
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : original->parameters()) parameter.zero_();
  original = nullptr;
  CHECK(same(copy(kIds), expected));

  auto second = copy_of(copy);
  for (Tensor& parameter : second->parameters()) parameter.fill_(3);
  CHECK(same(copy(kIds), expected));
}

TEST_CASE("a clone keeps what is frozen, the mode and the type, and draws no random number") {
  auto original = in_eval(model());
  original->to(torch::kDouble);
  original->encoder->layers[1]->named_parameters()["mha.in_proj.weight"].set_requires_grad(false);
  original->embeddings->position->weight.set_requires_grad(false);
  torch::manual_seed(2);
  const auto before = at::detail::getDefaultCPUGenerator().get_state();
  auto copy = copy_of(original);
  CHECK(same(at::detail::getDefaultCPUGenerator().get_state(), before));
  for (const auto& parameter : copy->named_parameters()) {
    INFO(parameter.key());
    CHECK(parameter.value().requires_grad() == original->named_parameters()[parameter.key()].requires_grad());
    CHECK(parameter.value().scalar_type() == torch::kDouble);
    CHECK(parameter.value().is_leaf());
  }
  CHECK_FALSE(copy->named_parameters()["encoder.layers.1.mha.in_proj.weight"].requires_grad());
  CHECK_FALSE(copy->is_training());
  CHECK_FALSE(copy->encoder->layers[0]->is_training());
}

TEST_CASE("cloning leaves the draws of other threads alone") {
  constexpr size_t kDraws = 20000;
  const auto draws = [] {
    std::vector<float> values(kDraws);
    for (float& value : values) value = torch::rand({1}).item<float>();
    return values;
  };
  torch::manual_seed(4);
  const auto alone = draws();
  const Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const auto original = model();
  const auto noisy = std::make_shared<NoisyImpl>();
  torch::manual_seed(4);
  std::vector<float> beside;
  std::atomic<bool> done = false;
  std::jthread thread([&] {
    beside = draws();
    done = true;
  });
  for (int clones = 0; !done || clones == 0; ++clones) {
    original->clone();
    noisy->clone();
  }
  thread.join();
  CHECK(beside == alone);
  CHECK(same(at::detail::getDefaultCPUGenerator().get_state(), state));
}

TEST_CASE("what a module of somebody else's draws in reset() is drawn when it is cloned") {
  const auto original = std::make_shared<NoisyImpl>();
  const auto copy = std::dynamic_pointer_cast<NoisyImpl>(original->clone());
  CHECK(same(copy->linear->weight, original->linear->weight));
  CHECK(same(copy->order, original->order));
  CHECK(copy->noise.isfinite().all().item<bool>());
}

TEST_CASE("a clone keeps ties") {
  auto original = model();
  original->head->weight = original->embeddings->token->weight;
  original->encoder->layers[1]->as<prenorm::EncoderLayerImpl>()->mha->out_proj->weight =
      original->encoder->layers[0]->as<prenorm::EncoderLayerImpl>()->mha->out_proj->weight;
  auto copy = copy_of(copy_of(original));
  CHECK(copy->head->weight.is_same(copy->embeddings->token->weight));
  CHECK_FALSE(copy->head->weight.is_same(original->head->weight));
  CHECK(same(copy->head->weight, original->head->weight));
  const auto registered = copy->named_parameters();
  CHECK(registered["head.weight"].is_same(registered["embeddings.token.weight"]));
  CHECK(registered["encoder.layers.0.mha.out_proj.weight"].is_same(registered["encoder.layers.1.mha.out_proj.weight"]));
}

TEST_CASE("a clone trains on its own") {
  torch::manual_seed(3);
  auto original = model();
  const Tensor before = original->head->weight.detach().clone();
  auto copy = copy_of(original);
  torch::optim::SGD optimizer(copy->parameters(), 0.1);
  copy(kIds).square().sum().backward();
  optimizer.step();
  CHECK(same(original->head->weight, before));
  CHECK_FALSE(same(copy->head->weight, before));
  CHECK_FALSE(original->head->weight.grad().defined());
}

TEST_CASE("a clone has the values that its original uses, even those of a reassigned member") {
  auto original = model();
  original->head->weight = torch::ones({12, 12});
  CHECK(same(copy_of(original)->head->weight, torch::ones({12, 12})));
}

TEST_CASE("torch::save and torch::load go by the tensors that the modules use") {
  auto original = in_eval(model());
  original->head->weight = original->embeddings->token->weight;
  original->embeddings->position->weight = torch::ones({512, 12});
  const std::string bytes = saved(*original);
  const Tensor expected = original(kIds);
  for (const bool tied : {false, true}) {
    auto other = in_eval(model());
    if (tied) other->head->weight = other->embeddings->token->weight;
    load(*other, bytes);
    CHECK(same(other(kIds), expected));
    CHECK(other->head->weight.is_same(other->embeddings->token->weight) == tied);
  }
  const std::string apart = saved(*model());
  CHECK(error_of([&] { load(*original, apart); }) ==
        "embeddings.token.weight and head.weight are one tensor in the module but differ in the archive");
  CHECK(same(original(kIds), expected));
}

TEST_CASE("a module that is called but not registered is named before it is lost") {
  const Folder folder;
  auto replaced = model();
  replaced->head = torch::nn::Linear(12, 9);
  for (const std::function<void()>& action :
       std::vector<std::function<void()>>{[&] { replaced->clone(); }, [&] { saved(*replaced); },
                                          [&] { prenorm::save_weights(*replaced, folder.path / "model.safetensors"); },
                                          [&] { prenorm::export_torchscript(replaced, folder.path / "model.ts"); }}) {
    CHECK(
        error_of(action).starts_with("the \"head\" that a prenorm::EncoderModelImpl calls is not the one registered"));
  }
  CHECK(std::filesystem::is_empty(folder.path));
  replaced->head = replaced->replace_module("head", replaced->head);
  CHECK(same(copy_of(replaced)->head->weight, replaced->head->weight));

  auto inside = model();
  inside->encoder->layers->replace_module("1", inside->encoder->layers->ptr(0));
  CHECK_FALSE(error_of([&] { saved(*inside); }).empty());
}

}  // namespace module_test
