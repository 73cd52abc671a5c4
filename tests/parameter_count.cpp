#include "prenorm/parameter_count.h"

#include "prenorm/model.h"
#include "support.h"

namespace parameter_count_test {

using prenorm::count_parameters;
using prenorm::EncoderModel;
using prenorm::Head;
using prenorm::ModelConfig;

namespace {

prenorm::ParameterCount of(const torch::nn::Module& module, const std::string& path) {
  for (const auto& [name, count] : count_parameters(module)) {
    if (name == path) return count;
  }
  FAIL("no module " << path);
  return {};
}

EncoderModel model() {
  return EncoderModel(
      ModelConfig{.vocab_size = 8, .d_model = 8, .num_layers = 2, .head = Head::token, .num_classes = 8});
}

}  // namespace

TEST_CASE("parameters are counted for the whole and for each part") {
  const auto counted = model();
  constexpr int64_t layer = 4 * 8 * 8 + (2 * 4 * 8 * 8 + 5 * 8) + 2 * 2 * 8;
  CHECK(of(*counted, "encoder.layers.1").total() == layer);
  CHECK(of(*counted, "encoder").total() == 2 * layer + 16);
  CHECK(of(*counted, "head").total() == 72);
  CHECK(of(*counted, "").total() == 64 + 2 * layer + 16 + 72);
  CHECK(of(*prenorm::EncoderLayer(), "").total() == 3'150'336);
}

TEST_CASE("frozen parameters and buffers are told apart, and shared tensors count once") {
  auto counted = model();
  const auto before = of(*counted, "");
  counted->embeddings->token->weight.set_requires_grad(false);
  CHECK(of(*counted, "").frozen == 64);
  CHECK(of(*counted, "").trainable == before.trainable - 64);
  counted->head->weight = counted->embeddings->token->weight;
  CHECK(of(*counted, "").total() == before.total() - 64);
  CHECK(of(*counted, "head").total() == 8);
  CHECK(of(*torch::nn::BatchNorm1d(5), "").buffers == 11);
  CHECK(of(*torch::nn::BatchNorm1d(5), "").total() == 10);
}

}  // namespace parameter_count_test
