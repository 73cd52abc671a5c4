// Runs the cases of a folder for tests/python/parity.py: for each NAME.json (a ModelConfig) and NAME.in.pt (a dict of
// tensors) writes NAME.out.pt with the outputs, every gradient and the weights after ten steps of AdamW.

#include <torch/torch.h>

#include <filesystem>
#include <iostream>

#include "prenorm/file.h"
#include "prenorm/model.h"
#include "prenorm/training/optimizer.h"

namespace {

using namespace prenorm;
using Tensors = c10::Dict<std::string, Tensor>;

Tensor get(const c10::impl::GenericDict& inputs, const std::string& name) {
  return inputs.contains(name) ? inputs.at(name).toTensor() : Tensor();
}

AttentionMask mask_of(const c10::impl::GenericDict& inputs) {
  AttentionMask mask = get(inputs, "dense");
  if (const Tensor padding = get(inputs, "padding"); padding.defined()) mask = mask & AttentionMask::padding(padding);
  if (const Tensor lengths = get(inputs, "lengths"); lengths.defined()) {
    const auto* first = lengths.const_data_ptr<std::int64_t>();
    mask = mask & AttentionMask::lengths({first, first + lengths.numel()});
  }
  return inputs.contains("causal") ? mask & AttentionMask::causal() : mask;
}

Tensors run(EncoderModel& model, const c10::impl::GenericDict& inputs) {
  const Tensor x = get(inputs, "x"), ids = get(inputs, "ids"), segments = get(inputs, "segments");
  const AttentionMask mask = mask_of(inputs);
  const auto forward = [&] { return x.defined() ? model->encoder(x, mask) : model->forward(ids, mask, segments); };
  const auto backward = [&] {
    model->zero_grad();
    const Tensor output = forward();
    (output * get(inputs, "upstream")).sum().backward();
    return output;
  };

  Tensors outputs;
  outputs.insert("output", backward().detach());
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.value().grad().defined()) outputs.insert("gradient." + parameter.key(), parameter.value().grad());
  }
  const auto states = x.defined() ? model->encoder->inspect(x, mask) : model->inspect(ids, mask, segments);
  for (size_t i = 0; i < states.attention_weights.size(); ++i) {
    outputs.insert("weights." + std::to_string(i), states.attention_weights[i].detach());
    outputs.insert("hidden." + std::to_string(i), states.hidden_states[i + 1].detach());
  }

  AdamW optimizer(model->named_parameters(), {.weight_decay = 0.1});
  for (int step = 0; step < 10; ++step) {
    backward();
    optimizer.step(1e-2);
  }
  for (const auto& parameter : model->named_parameters()) {
    outputs.insert("trained." + parameter.key(), parameter.value().detach());
  }
  return outputs;
}

void run_case(const std::filesystem::path& config) {
  auto path = config;
  const std::string bytes = read_file(path.replace_extension(".in.pt"));
  const auto inputs = torch::pickle_load({bytes.begin(), bytes.end()}).toGenericDict();
  EncoderModel model(ModelConfig::load(config));
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : model->named_parameters()) {
    parameter.value().set_data(inputs.at("state." + parameter.key()).toTensor());
  }
  const torch::AutoGradMode with_grad(true);
  const auto written = torch::pickle_save(run(model, inputs));
  path = config;
  write_file_atomically(path.replace_extension(".out.pt"), [&](std::ostream& stream) {
    stream.write(written.data(), static_cast<std::streamsize>(written.size()));
  });
}

}  // namespace

int main(int, char** argv) {
  try {
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
      if (entry.path().extension() == ".json") run_case(entry.path());
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
