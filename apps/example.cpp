#include "example.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "prenorm/weights/weights.h"

using namespace prenorm;

void save_example(const EncoderModel& model, const std::filesystem::path& folder) {
  const torch::NoGradGuard no_grad;
  const auto& config = model->config;
  const auto length = config.position == Position::learned ? std::min<std::int64_t>(16, config.max_positions) : 16;
  const Tensor ids = torch::randint(config.vocab_size, {8, length}, torch::kLong);
  const Tensor real = torch::arange(length) < torch::randint(1, length + 1, {8, 1});
  torch::nn::Module example("example");
  example.register_buffer("ids", ids);
  example.register_buffer("padding", real);
  EncoderModel copy(std::dynamic_pointer_cast<EncoderModelImpl>(model->clone(torch::kCPU)));
  copy->eval();
  for (const auto& [name, type] : {std::pair("float32", torch::kFloat), std::pair("float64", torch::kDouble)}) {
    copy->to(type);
    example.register_buffer(std::string(name) + "_none", copy(ids));
    example.register_buffer(std::string(name) + "_padding", copy(ids, AttentionMask::padding(real)));
  }
  save_weights(example, folder / "example.safetensors");
}
