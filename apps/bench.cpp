#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "app.h"
#include "prenorm/error.h"
#include "prenorm/inference.h"
#include "prenorm/json.h"
#include "prenorm/training/trainer.h"
#include "prenorm/weights/weights.h"

namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using namespace prenorm;

/// What all contenders of a case compute (apps/bench.py writes it).
struct Spec {
  explicit Spec(const Json& json)
      : config(ModelConfig::from_json(json.at("config").dump())),
        weights(json.at("weights_path").get<std::string>()),
        lengths(json.at("lengths").get<std::vector<std::int64_t>>()),
        device(json.value("device", "cpu")),
        bfloat16(json.value("precision", "float32") == "bfloat16") {
    const auto batch = std::ssize(lengths), length = json.at("length").get<std::int64_t>();
    ids = torch::zeros({batch, length}, torch::kLong);
    targets = torch::full_like(ids, kIgnored);
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < lengths[static_cast<size_t>(b)]; ++t) {
        const std::int64_t id = (7919 * (b + 1) + 104729 * (t + 1)) % config.vocab_size;
        ids[b][t] = id;
        if (config.num_classes > 0) targets[b][t] = id % config.num_classes;
      }
    }
    ids = ids.to(device);
    targets = targets.to(device);
    full = std::ranges::all_of(lengths, [&](auto own) { return own == length; });
  }

  EncoderModel model() const {
    EncoderModel model(config);
    load_weights(*model, weights);
    model->to(device);
    return model;
  }

  AttentionMask mask() const { return full ? AttentionMask() : AttentionMask::lengths(lengths); }

  /// [B,T], true where there is padding; undefined where there is none.
  Tensor padding() const { return full ? Tensor() : ~mask().real_tokens(ids.size(0), ids.size(1), ids.device()); }

  ModelConfig config;
  fs::path weights;
  std::vector<std::int64_t> lengths;
  torch::Device device;
  bool bfloat16, full = false;
  Tensor ids, targets;
};

struct Contender {
  std::function<Tensor()> output;  ///< in evaluation mode
  std::function<void()> iteration;
  std::string other = {};  ///< what it computes, where its numbers are not the model's
};

/// What a model answers in evaluation mode; training goes on in its own.
template <typename Model, typename... Inputs>
std::function<Tensor()> evaluated(Model model, const Inputs&... inputs) {
  return [=]() mutable {
    const torch::NoGradGuard no_grad;
    model->eval();
    return model->forward(inputs...);
  };
}

TrainingOptions training_options(const Spec& spec) {
  TrainingOptions options;
  options.schedule.peak = 1e-4;
  options.precision = spec.bfloat16 ? Precision::bfloat16 : Precision::float32;
  return options;
}

Contender ours_trained(const Spec& spec) {
  auto model = spec.model();
  auto trainer = std::make_shared<Trainer>(model, training_options(spec));
  return {evaluated(model, spec.ids, spec.mask(), Tensor()), [=] {
            trainer->step({spec.ids, spec.targets, spec.lengths});
          }};
}

/// Our own step, with padding computed as an optimizer of a user's own would have it.
Contender ours_padded(const Spec& spec) {
  EncoderModel model = spec.model();
  auto optimizer = std::make_shared<AdamW>(model->named_parameters(), AdamWOptions());
  const AttentionMask mask = spec.full ? AttentionMask() : AttentionMask::padding(~spec.padding());
  return {evaluated(model, spec.ids, mask, Tensor()), [=]() mutable {
            model->train();
            optimizer->zero_grad();
            nn::functional::cross_entropy(model(spec.ids, mask).flatten(0, 1), spec.targets.flatten()).backward();
            optimizer->clip_gradients(1.0);
            optimizer->step(1e-4);
          }};
}

Contender ours_prepared(const Spec& spec) {
  EncoderModel model = spec.model();
  if (spec.bfloat16) model->to(torch::kBFloat16);
  model->eval();
  auto prepared = std::make_shared<const InferenceModel>(model);
  const auto forward = [=] { return (*prepared)(spec.ids, spec.mask()); };
  return {forward, forward};
}

/// Our embeddings and head around torch::nn::TransformerEncoder, which is post-norm and takes [T,B,D].
struct TorchModelImpl : nn::Module {
  explicit TorchModelImpl(const EncoderModel& model) : embeddings(model->embeddings), head(model->head) {
    const ModelConfig& config = model->config;
    TORCH_CHECK(config.activation == Activation::gelu, "torch::nn's layers are compared with exact GELU");
    nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(config.d_model, config.num_heads)
                                          .dim_feedforward(config.d_ff)
                                          .dropout(config.dropout)
                                          .activation(torch::kGELU));
    encoder = nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, config.num_layers));
    if (config.norm_placement == NormPlacement::pre) encoder->norm = nn::AnyModule(model->encoder->norm);
    register_module("embeddings", embeddings);
    register_module("encoder", encoder);
    if (head) register_module("head", head);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < encoder->layers->size(); ++i) {
      auto& theirs = *encoder->layers[i]->as<nn::TransformerEncoderLayerImpl>();
      auto& own = model->encoder->layer(i);
      auto& attention = *theirs.self_attn;
      attention.options.dropout(0.0);
      const auto linear = [](const auto& to, const auto& from) {
        to->weight.copy_(from.weight);
        to->bias.copy_(from.bias);
      };
      attention.in_proj_weight.copy_(own.mha->in_proj->weight);
      attention.in_proj_bias.copy_(own.mha->in_proj->bias);
      linear(attention.out_proj, *own.mha->out_proj);
      linear(theirs.linear1, *own.ff->net[0]->as<nn::LinearImpl>());
      linear(theirs.linear2, *own.ff->net[3]->as<nn::LinearImpl>());
      linear(theirs.norm1, *own.sub1->norm);
      linear(theirs.norm2, *own.sub2->norm);
      theirs.norm1->options.eps(config.norm_eps);
      theirs.norm2->options.eps(config.norm_eps);
    }
  }

  Tensor forward(const Tensor& ids, const Tensor& padding) {
    const Tensor x = embeddings(ids).transpose(0, 1);
    const Tensor y = encoder(x, Tensor(), padding).transpose(0, 1);
    return head ? head(y) : y;
  }

  Embeddings embeddings;
  nn::Linear head;
  nn::TransformerEncoder encoder{nullptr};
};
TORCH_MODULE(TorchModel);

Contender torch_nn(const Spec& spec, bool train) {
  TorchModel model(spec.model());
  model->to(spec.device);
  const Tensor padding = spec.padding();
  const auto output = evaluated(model, spec.ids, padding);
  const bool pre = spec.config.norm_placement == NormPlacement::pre;
  Contender contender{output, output, pre ? "post-norm, the same work" : ""};
  if (!train) return contender;
  auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-4));
  contender.iteration = [=]() mutable {
    model->train();
    optimizer->zero_grad();
    const Tensor logits = model->forward(spec.ids, padding);
    nn::functional::cross_entropy(logits.flatten(0, 1), spec.targets.flatten()).backward();
    nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer->step();
  };
  return contender;
}

/// The matrix products of a forward pass, or of a training step, back to back, and nothing else: what the machine could do.
Contender roof(const Spec& spec, bool train, bool pack) {
  const auto d = spec.config.d_model, f = spec.config.d_ff, heads = spec.config.num_heads;
  const auto batch = spec.ids.size(0), length = spec.ids.size(1), rows = batch * length;
  const auto type = spec.bfloat16 ? torch::kBFloat16 : torch::kFloat;
  const auto options = torch::dtype(type).device(spec.device);
  std::vector<std::function<void()>> products;
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    for (const auto& [in, out] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{d, 3 * d}, {d, d}, {d, f}, {f, d}}) {
      nn::Linear linear(nn::LinearOptions(in, out).bias(false));
      linear->to(spec.device, type);
      const Tensor x = torch::randn({rows, in}, options), y = torch::randn({rows, out}, options);
      products.push_back([x, product = PackedLinear(*linear, pack)] { product(x); });
      if (train) products.push_back([x, y, w = linear->weight] { at::mm(y, w), at::mm(y.t(), x); });
    }
    const Tensor q = torch::randn({batch * heads, length, d / heads}, options), k = q.transpose(1, 2).contiguous();
    for (int pass = 0; pass < (train ? 3 : 1); ++pass) products.push_back([=] { at::bmm(at::bmm(q, k), q); });
  }
  const auto all = [products] {
    const torch::NoGradGuard no_grad;
    for (const auto& product : products) product();
    return Tensor();
  };
  return {all, all, "matrix products alone"};
}

Contender contender(const std::string& name, const Spec& spec, bool train) {
  const std::map<std::string, std::function<Contender()>> contenders{
      {"prenorm", [&] { return train ? ours_trained(spec) : ours_prepared(spec); }},
      {"prenorm padded", [&] { return ours_padded(spec); }},
      {"torch::nn (C++)", [&] { return torch_nn(spec, train); }},
      {"roof plain", [&] { return roof(spec, train, /*pack=*/false); }},
      {"roof prepacked", [&] { return roof(spec, train, /*pack=*/true); }}};
  require(contenders.contains(name), "there is no contender ", name);
  return contenders.at(name)();
}

void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

/// Answers the lines of stdin until it ends; see apps/bench.py.
void serve(const Contender& contender, torch::Device device) {
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string verb;
    words >> verb >> std::ws;
    if (verb == "check") {
      std::string path;
      std::getline(words, path);
      if (!contender.other.empty()) {
        std::cout << "other " << contender.other << std::endl;
        continue;
      }
      const Tensor output = contender.output().to(torch::kCPU, torch::kFloat).contiguous();
      std::ofstream stream(path, std::ios::binary);
      stream.write(static_cast<const char*>(output.const_data_ptr()), static_cast<std::streamsize>(output.nbytes()));
      require(static_cast<bool>(stream.flush()), "cannot write ", path);
      std::cout << "ok" << std::endl;
    } else if (verb == "time") {
      std::int64_t times = 0;
      words >> times;
      for (std::int64_t i = 0; i < times; ++i) {
        wait_for(device);
        const auto begin = std::chrono::steady_clock::now();
        contender.iteration();
        wait_for(device);
        const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
        std::cout << (i == 0 ? "" : " ") << taken.count();
      }
      std::cout << std::endl;
    } else if (verb == "memory") {
      std::ifstream status("/proc/self/status");
      std::string word;
      double kilobytes = 0;
      while (status >> word && word != "VmHWM:") {
      }
      status >> kilobytes;
      std::cout << kilobytes / 1024 << std::endl;
    } else {
      fail("cannot do \"", line, "\"");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A contender of `./dev bench`, which apps/bench.py starts and asks by lines.", "bench");
  fs::path path;
  app.add_option("spec", path, "What is computed, by whom (JSON)")->required();
  return run_app(app, argc, argv, [&] {
    const auto json = parse_file(path, [](const std::string& text) { return parse_json(text); });
    at::set_num_threads(json.at("threads").get<int>());
    const Spec spec(json);
    serve(contender(json.at("contender").get<std::string>(), spec, json.at("train").get<bool>()), spec.device);
  });
}
