#include <torch/script.h>

#include <filesystem>
#include <fstream>

#include "folder.h"
#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/model.h"
#include "prenorm/script/export.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/weights/weights.h"
#include "support.h"

namespace script_test {

namespace {

using namespace prenorm;
namespace fs = std::filesystem;

/// A folder of its own, gone at the end.
const ModelConfig kConfig{.vocab_size = 7,
                          .d_model = 8,
                          .num_heads = 2,
                          .num_layers = 2,
                          .dropout = 0.5,
                          .position = Position::learned,
                          .max_positions = 6,
                          .head = Head::token,
                          .num_classes = 3};

torch::jit::Module exported(const torch::nn::Module& module, const fs::path& path) {
  export_torchscript(module, path);
  return torch::jit::load(path.string());
}

bool says(torch::jit::Module& module, std::vector<c10::IValue> inputs, const std::string& message) {
  try {
    module.forward(std::move(inputs));
  } catch (const std::exception& error) {
    return std::string(error.what()).find(message) != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("an exported model reads back in C++ with its keys, values and outputs") {
  const Folder folder;
  const auto path = folder.path / "model.ts";
  torch::manual_seed(1);
  EncoderModel model(kConfig);
  for (auto& parameter : model->parameters()) parameter.data().normal_(0.0, 0.5);
  auto script = exported(*model, path);
  model->eval();
  const Tensor ids = torch::randint(7, {3, 5}, torch::kLong);
  const Tensor real = torch::arange(5).unsqueeze(0) < torch::tensor({5, 2, 4}).unsqueeze(1);

  CHECK_FALSE(script.is_training());
  CHECK(close(script.forward({ids}).toTensor(), model(ids)));
  CHECK(close(script.forward({ids, c10::IValue()}).toTensor(), model(ids)));
  CHECK(close(script.forward({ids, real}).toTensor(), model(ids, AttentionMask::padding(real))));
  CHECK_FALSE(close(script.forward({ids, real}).toTensor(), model(ids)));

  const auto file = TensorFile::open(path);
  CHECK(file.kind() == TensorFile::Kind::torchscript);
  const auto parameters = model->named_parameters();
  const auto loaded = script.named_parameters();
  REQUIRE(file.tensors().size() == parameters.size());
  REQUIRE(loaded.size() == parameters.size());
  size_t i = 0;
  for (const auto& parameter : loaded) {
    CHECK(parameter.name == parameters[i].key());
    CHECK(same(parameter.value, parameters[i].value()));
    CHECK(file.tensors()[i].name == parameters[i].key());
    ++i;
  }

  torch::jit::ExtraFilesMap extra{{"config.json", ""}};
  torch::jit::load(path.string(), std::nullopt, extra);
  CHECK(ModelConfig::from_json(extra["config.json"]) == kConfig);

  const auto frozen_path = folder.path / "frozen.ts";
  torch::jit::freeze(script).save(frozen_path.string());
  const auto frozen = TensorFile::open(frozen_path);
  CHECK(frozen.kind() == TensorFile::Kind::frozen_torchscript);
  std::int64_t elements = 0, expected = 0;
  for (const auto& tensor : frozen.tensors()) elements += numel(tensor.shape);
  for (const auto& parameter : parameters) expected += parameter.value().numel();
  CHECK(elements == expected);
  CHECK(error_of([&] { load_weights(*model, frozen_path); }).find("is frozen TorchScript") != std::string::npos);
}

TEST_CASE("exporting leaves the model, its mode and the random generator as they were") {
  const Folder folder;
  EncoderModel model(kConfig);
  model->encoder->eval();  // a mixed mode
  std::vector<Tensor> before;
  for (const auto& parameter : model->parameters()) before.push_back(parameter.detach().clone());
  auto generator = at::detail::getDefaultCPUGenerator();
  const Tensor state = generator.get_state();
  auto script = exported(*model, folder.path / "model.ts");
  CHECK(same(generator.get_state(), state));
  CHECK(model->is_training());
  CHECK_FALSE(model->encoder->layers[0]->is_training());
  const auto after = model->parameters();
  for (size_t i = 0; i < after.size(); ++i) {
    CHECK(same(after[i], before[i]));
    CHECK(after[i].requires_grad());
    CHECK(after[i].is_leaf());
  }
  for (const auto& module : script.modules()) CHECK_FALSE(module.is_training());
}

TEST_CASE("ties, frozen parameters and slices are kept as what they are") {
  const Folder folder;
  EncoderModel model(ModelConfig{
      .vocab_size = 300, .d_model = 8, .num_heads = 2, .num_layers = 2, .head = Head::token, .num_classes = 300});
  const auto size = [&] {
    exported(*model, folder.path / "model.ts");
    return fs::file_size(folder.path / "model.ts");
  };
  const auto separate = size();
  model->head->weight = model->embeddings->token->weight;
  CHECK(size() + 300 * 8 * 4 - 1000 < separate);
  const auto tied = size();
  const torch::NoGradGuard no_grad;
  model->encoder->norm->bias.set_data(torch::zeros({100000}).slice(0, 0, 8));
  CHECK(size() < tied + 1000);

  model->embeddings->token->weight.set_requires_grad(false);
  auto script = exported(*model, folder.path / "model.ts");
  CHECK(script.attr("head").toModule().attr("weight").toTensor().data_ptr() ==
        script.attr("embeddings").toModule().attr("token").toModule().attr("weight").toTensor().data_ptr());
  for (const auto& parameter : script.named_parameters()) {
    const bool frozen = parameter.name == "head.weight" || parameter.name == "embeddings.token.weight";
    CHECK(parameter.value.requires_grad() == !frozen);
  }
}

TEST_CASE("attention weights can be asked for, as in C++") {
  const Folder folder;
  MultiHeadAttention mha = in_eval(MultiHeadAttention(MultiHeadAttentionOptions(8, 2)));
  auto script = exported(*mha, folder.path / "mha.ts");
  const Tensor x = torch::randn({2, 4, 8});
  for (const Tensor& mask : {Tensor(), torch::ones({4, 4}, torch::kBool).tril(-1), torch::randn({2, 4, 4})}) {
    const c10::IValue given = mask.defined() ? c10::IValue(mask) : c10::IValue();
    const auto [y, weights] = mha(x, mask, true);
    const auto outputs = script.forward({x, given, true}).toTuple();
    CHECK(close(outputs->elements()[0].toTensor(), y));
    CHECK(close(outputs->elements()[1].toTensor(), weights));
    CHECK(script.forward({x, given}).toTuple()->elements()[1].isNone());
  }
}

TEST_CASE("layers that differ only in values share a class, others do not") {
  const Folder folder;
  const EncoderLayerOptions layer(8, 2);
  const auto types = [&](std::vector<EncoderLayerOptions> layers) {
    auto script = exported(*Encoder(EncoderOptions(std::move(layers))), folder.path / "encoder.ts");
    std::vector<std::string> names;
    for (const auto& child : script.attr("layers").toModule().children()) {
      names.push_back(child.type()->name()->qualifiedName());
    }
    return names;
  };
  const std::string name = "__torch__.prenorm.EncoderLayer";
  CHECK(types({layer, EncoderLayerOptions(layer).eps(1e-3).num_heads(4).dropout(0.7)}) ==
        std::vector<std::string>{name, name});
  CHECK(types({layer, EncoderLayerOptions(layer).norm_placement(NormPlacement::post)}) ==
        std::vector<std::string>{name, name + "_2"});
}

TEST_CASE("inputs that do not fit are named by the exported file") {
  const Folder folder;
  auto script = exported(*EncoderModel(kConfig), folder.path / "model.ts");
  auto encoder = exported(*Encoder(EncoderOptions(EncoderLayerOptions(8, 2), 1)), folder.path / "encoder.ts");
  const Tensor ids = torch::zeros({2, 4}, torch::kLong), x = torch::randn({2, 4, 8});
  CHECK(says(script, {torch::zeros({1, 7}, torch::kLong)},
             "a sequence of length 7 exceeds the max_positions 6 of the learned positions"));
  CHECK(says(script, {torch::zeros({4}, torch::kLong)}, "token ids are [4], expected [B, T]"));
  CHECK(says(script, {torch::zeros({2, 4})}, "token ids are neither int64 nor int32"));
  CHECK(says(script, {ids, torch::ones({2, 3}, torch::kBool)}, "the padding mask is [2, 3], expected [B, T] = [2, 4]"));
  CHECK(says(script, {ids, ids}, "the padding mask is neither bool"));
  CHECK(says(encoder, {x, torch::ones({4, 4}, torch::kLong)}, "the attention mask is neither bool"));
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{
           {4}, {2, 4}, {1, 4}, {4, 1}, {3, 4, 4}, {2, 1, 4}, {2, 3, 4, 4}, {2, 2, 4, 3}, {2, 2, 2, 4}, {3, 1, 1, 4}}) {
    CHECK(says(encoder, {x, torch::ones(shape, torch::kBool)},
               c10::str("the attention mask is ", torch::IntArrayRef(shape), ", expected ")));
    CHECK_FALSE(error_of([&] {
                  Encoder(EncoderOptions(EncoderLayerOptions(8, 2), 1))(x, torch::ones(shape, torch::kBool));
                }).empty());
  }
}

TEST_CASE("the exported masks are refused and read as in C++") {
  const Folder folder;
  auto config = kConfig;
  config.head = Head::sequence_mean;
  torch::manual_seed(3);
  EncoderModel model(config);
  auto script = exported(*model, folder.path / "model.ts");
  model->eval();
  const Tensor ids = torch::randint(7, {3, 4}, torch::kLong);
  const Tensor real = torch::arange(4).unsqueeze(0) < torch::tensor({4, 2, 0}).unsqueeze(1);
  const Tensor expected = model(ids, AttentionMask::padding(real));
  for (const double hidden : {-double{INFINITY}, -3.4028234663852886e38, -10000.0}) {
    const Tensor added = torch::zeros({3, 4}).masked_fill(~real, hidden);
    CHECK(close(script.forward({ids, added}).toTensor(), expected));
  }
  CHECK(says(script, {ids, real.to(torch::kFloat)}, "the padding mask holds values above 0"));

  auto encoder = exported(*Encoder(EncoderOptions(EncoderLayerOptions(8, 2), 1)), folder.path / "encoder.ts");
  const Tensor x = torch::randn({4, 4, 8}), mask = torch::ones({4, 4}, torch::kBool).tril();
  CHECK(says(encoder, {x, mask}, "may be [T, T] or key padding [B, T]: give [1, T, T] or [B, 1, 1, T]"));
  CHECK(encoder.forward({x, mask.unsqueeze(0)}).toTensor().sizes() == x.sizes());
  CHECK(encoder.forward({x, mask.view({4, 1, 1, 4})}).toTensor().sizes() == x.sizes());
  CHECK(says(encoder, {torch::randn({2, 4, 8}), mask.slice(0, 0, 2)}, "(key padding: [B, 1, 1, T])"));
}

TEST_CASE("a tied head is one tensor under both names in the exported file") {
  const Folder folder;
  auto config = kConfig;
  config.num_classes = config.vocab_size;
  config.tie_head = true;
  EncoderModel model(config);
  auto script = exported(*model, folder.path / "model.ts");
  size_t found = 0;
  for (const auto& parameter : script.named_parameters()) {
    found += parameter.name == "head.weight" || parameter.name == "embeddings.token.weight";
  }
  CHECK(found == 2);
  CHECK(script.attr("head").toModule().attr("weight").toTensor().data_ptr() ==
        script.attr("embeddings").toModule().attr("token").toModule().attr("weight").toTensor().data_ptr());
}

TEST_CASE("an exported model is what its configuration says, or is not written") {
  const Folder folder;
  EncoderModel model(kConfig);
  model->encoder->layers->push_back(EncoderLayer(EncoderLayerOptions(8, 2)));
  CHECK(error_of([&] { export_torchscript(model, folder.path / "model.ts"); }) ==
        "encoder.layers.2 is a prenorm::EncoderLayerImpl, the configuration says nothing of it");
  Encoder encoder(EncoderOptions(EncoderLayerOptions(8, 2), 1));
  encoder->layers->insert(0, torch::nn::Linear(8, 8).ptr());
  CHECK(error_of([&] { export_torchscript(encoder, folder.path / "encoder.ts"); }) ==
        "layers[0] of the encoder is a torch::nn::LinearImpl, not an EncoderLayer");
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("a file that cannot be written and a module without a form leave the old file") {
  const Folder folder;
  const auto path = folder.path / "model.ts";
  std::ofstream(path) << "old";
  CHECK(error_of([&] { export_torchscript(torch::nn::Linear(2, 2), path); }) ==
        "cannot export a torch::nn::LinearImpl as TorchScript, only MultiHeadAttention, FeedForward, EncoderLayer, "
        "Encoder and EncoderModel");
  FeedForward ff(FeedForwardOptions(8));
  ff->net->push_back(torch::nn::Tanh());
  CHECK(error_of([&] { export_torchscript(ff, path); }) ==
        "a module of type torch::nn::TanhImpl has no TorchScript form");
  CHECK(read_file(path) == "old");
  CHECK_THROWS_AS(export_torchscript(FeedForward(FeedForwardOptions(8)), folder.path / "missing" / "model.ts"), Error);
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

}  // namespace script_test
