// What tests/python/pretrained.py asks of the library:
//   weights_tool run FOLDER IN OUT [double or float [FIELD...]]   from_pretrained, passing over those fields; IN and OUT
//                                             are dicts of tensors: "ids", "padding", "segments", then "hidden.N" and
//                                             "output". Prints the type and what was left out
//   weights_tool classify FOLDER IN OUT       the logits of a BertForSequenceClassification, "output", with what
//                                             from_pretrained leaves out, and of a fresh head of 5 classes, "fresh"
//   weights_tool import CONFIG FILE LAYOUT FOLDER   a model of that config with those weights, to save_pretrained
//   weights_tool export FOLDER FILE LAYOUT          from_pretrained to save_weights
//   weights_tool load CONFIG FILE                   builds a model, then prints by how many MiB the peak memory rose
//   weights_tool save FOLDER                        save_pretrained of two models in turn, until it is killed

#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "prenorm/file.h"
#include "prenorm/weights/pretrained.h"
#include "prenorm/weights/weights.h"

namespace {

using namespace prenorm;

Layout layout_named(const std::string& name) {
  static const std::map<std::string, Layout> layouts{
      {"prenorm", {}},         {"course", course_layout()},         {"torch", torch_layout()},
      {"bert", bert_layout()}, {"distilbert", distilbert_layout()}, {"gpt2", gpt2_layout()}};
  return layouts.at(name);
}

long peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

c10::impl::GenericDict read_tensors(const std::string& path) {
  const std::string bytes = read_file(path);
  return torch::pickle_load({bytes.begin(), bytes.end()}).toGenericDict();
}

void write_tensors(const std::string& path, const c10::Dict<std::string, Tensor>& tensors) {
  const auto written = torch::pickle_save(tensors);
  write_file_atomically(
      path, [&](std::ostream& stream) { stream.write(written.data(), static_cast<std::streamsize>(written.size())); });
}

void run(const std::string& folder, const std::string& in, const std::string& out, bool in_double,
         const std::vector<std::string>& ignored_fields) {
  torch::manual_seed(1);
  const auto generator = at::detail::getDefaultCPUGenerator().get_state();
  std::vector<std::string> left_out;
  EncoderModel model = from_pretrained(folder, &left_out, {.ignored_fields = ignored_fields});
  TORCH_CHECK(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), generator), "random numbers were drawn");
  TORCH_CHECK(!model->is_training(), "the model is not in evaluation mode");
  std::cout << "type " << model->embeddings->token->weight.dtype() << "\n";
  for (const auto& name : left_out) std::cout << "left out " << name << "\n";
  if (in_double) model->to(torch::kDouble);

  const auto inputs = read_tensors(in);
  const auto get = [&](const char* name) { return inputs.contains(name) ? inputs.at(name).toTensor() : Tensor(); };
  const auto padding = get("padding");
  const torch::NoGradGuard no_grad;
  const auto states = model->inspect(get("ids"), padding.defined() ? AttentionMask::padding(padding) : AttentionMask(),
                                     get("segments"));
  c10::Dict<std::string, Tensor> outputs;
  outputs.insert("output", states.output);
  for (size_t i = 0; i < states.hidden_states.size(); ++i) {
    outputs.insert("hidden." + std::to_string(i), states.hidden_states[i]);
  }
  write_tensors(out, outputs);
}

void classify(const std::string& folder, const std::string& in, const std::string& out) {
  const torch::NoGradGuard no_grad;
  EncoderModel model = from_pretrained(folder);
  torch::nn::Linear pooler(model->config.d_model, model->config.d_model), classifier(model->config.d_model, 4);
  load_weights(*pooler, folder, {.prefix = "bert.pooler.dense"});
  load_weights(*classifier, folder, {.prefix = "classifier"});
  const auto inputs = read_tensors(in);
  const Tensor ids = inputs.at("ids").toTensor();
  const auto mask = AttentionMask::padding(inputs.at("padding").toTensor());
  c10::Dict<std::string, Tensor> outputs;
  outputs.insert("output", classifier(torch::tanh(pooler(model(ids, mask).select(1, 0)))));
  model->set_head(Head::sequence_first, 5);
  outputs.insert("fresh", model(ids, mask));
  write_tensors(out, outputs);
}

void load(const std::string& config, const std::string& file) {
  EncoderModel model(ModelConfig::load(config));
  std::int64_t bytes = 0;
  for (const auto& parameter : model->parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
  const auto before = peak_mib();
  load_weights(*model, file);
  std::cout << peak_mib() - before << " " << bytes / (1 << 20) << "\n";
}

void save_for_ever(const std::string& folder) {
  const EncoderModel models[] = {
      EncoderModel(ModelConfig{.vocab_size = 1000, .d_model = 64, .num_heads = 4, .num_layers = 2}),
      EncoderModel(ModelConfig{.vocab_size = 500, .d_model = 32, .num_heads = 8, .num_layers = 1})};
  for (int round = 0;; ++round) {
    save_pretrained(models[round % 2], folder);
    if (round == 0) std::cout << "saved" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  try {
    if (command == "run") {
      const size_t options = std::min<size_t>(arguments.size(), 5);
      run(arguments.at(1), arguments.at(2), arguments.at(3), options == 5 && arguments[4] == "double",
          {arguments.begin() + static_cast<std::ptrdiff_t>(options), arguments.end()});
    } else if (command == "classify") {
      classify(arguments.at(1), arguments.at(2), arguments.at(3));
    } else if (command == "import") {
      EncoderModel model(ModelConfig::load(arguments.at(1)));
      if (arguments.size() > 5) model->to(torch::kDouble);
      load_weights(*model, arguments.at(2), {.layout = layout_named(arguments.at(3))});
      save_pretrained(model, arguments.at(4));
    } else if (command == "export") {
      save_weights(*from_pretrained(arguments.at(1)), arguments.at(2), layout_named(arguments.at(3)));
    } else if (command == "load") {
      load(arguments.at(1), arguments.at(2));
    } else if (command == "save") {
      save_for_ever(arguments.at(1));
    } else {
      return 2;
    }
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << "\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
