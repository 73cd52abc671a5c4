#include "prenorm/weights/weights.h"

#include <algorithm>
#include <filesystem>

#include "folder.h"
#include "prenorm/error.h"
#include "prenorm/model.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/weights/pretrained.h"
#include "support.h"

namespace weights_test {

namespace fs = std::filesystem;
using namespace prenorm;

namespace {

/// A folder of this test's own.
ModelConfig config(std::int64_t d_model = 8) {
  return {.vocab_size = 11,
          .d_model = d_model,
          .num_heads = 2,
          .num_layers = 2,
          .attention_bias = true,
          .position = Position::learned,
          .max_positions = 6,
          .head = Head::token,
          .num_classes = 3};
}

EncoderModel model(std::int64_t seed, std::int64_t d_model = 8) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return EncoderModel(config(d_model));
}

using State = std::vector<std::pair<std::string, Tensor>>;

State state_of(const torch::nn::Module& module) {
  State state;
  for (const auto& entry : module.named_parameters()) state.emplace_back(entry.key(), entry.value().detach().clone());
  return state;
}

bool same_state(const State& a, const State& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
}

/// Writes tensors of the file under other names, shapes and types.
void write(const fs::path& path, const State& tensors) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const auto type = tensor.scalar_type();
    const Dtype dtype = type == torch::kFloat    ? Dtype::F32
                        : type == torch::kDouble ? Dtype::F64
                        : type == torch::kHalf   ? Dtype::F16
                        : type == torch::kLong   ? Dtype::I64
                                                 : Dtype::BF16;
    views.push_back({name, dtype, tensor.sizes().vec(), tensor.data_ptr()});
  }
  write_safetensors(path, views);
}

std::string load_error(torch::nn::Module& module, const fs::path& path, const LoadOptions& options = {}) {
  return error_of([&] { load_weights(module, path, options); });
}

bool holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  UNSCOPED_INFO("not in: " << text);
  return false;
}

}  // namespace

TEST_CASE("weights come back from either kind of file, into a module that trains") {
  const Folder folder;
  const auto original = model(1);
  for (const char* name : {"model.safetensors", "model.pt", "model.bin"}) {
    save_weights(*original, folder.path / name);
    auto other = model(2);
    other->encoder->layers[0]->named_parameters()["mha.in_proj.weight"].set_requires_grad(false);
    const auto before = other->head->weight;
    const auto report = load_weights(*other, folder.path / name);
    CHECK((report.missing.empty() && report.unexpected.empty()));
    CHECK(same_state(state_of(*other), state_of(*original)));
    CHECK(other->head->weight.is_same(before));
    CHECK(other->head->weight.requires_grad());
    CHECK(other->is_training());
    CHECK_FALSE(other->named_parameters()["encoder.layers.0.mha.in_proj.weight"].requires_grad());

    torch::optim::SGD optimizer(other->parameters(), 0.1);
    other(torch::tensor({{1, 2, 3}})).square().sum().backward();
    optimizer.step();
    CHECK_FALSE(same(other->head->weight, original->head->weight));
  }
  CHECK(holds(error_of([&] { save_weights(*original, folder.path / "model.txt"); }),
              "weights are written as .safetensors, .pt, .pth or .bin, not as \".txt\""));
}

TEST_CASE("what does not fit is listed in one line, and the module stays as it was") {
  const Folder folder;
  const auto path = folder.path / "model.safetensors";
  auto target = model(1);
  const State before = state_of(*target);

  save_weights(*model(2, 16), path);
  std::string error = load_error(*target, path);
  CHECK(error.find('\n') == std::string::npos);
  CHECK(error.starts_with(path.string() + " does not fit the module: shape mismatches: "));
  CHECK(holds(error, "\"encoder.layers.0.mha.in_proj.weight\" is [48, 16], expected [24, 8]"));
  CHECK(error.ends_with("\"encoder.layers.0.ff.net.3.bias\" is [16], expected [8], and 19 more"));
  CHECK(same_state(state_of(*target), before));

  State other = state_of(*model(2));
  std::erase_if(other, [](const auto& entry) { return entry.first.starts_with("encoder.layers.1.sub"); });
  other.emplace_back("extra.weight", torch::ones({2}));
  other.front().second = torch::ones({11, 8}, torch::kLong);
  write(path, other);
  error = load_error(*target, path);
  CHECK(holds(error,
              "missing keys: \"encoder.layers.1.sub1.norm.weight\", \"encoder.layers.1.sub1.norm.bias\", "
              "\"encoder.layers.1.sub2.norm.weight\", \"encoder.layers.1.sub2.norm.bias\"; "
              "unexpected keys: \"extra.weight\"; other mismatches: \"embeddings.token.weight\" is I64, expected F32"));
  CHECK(same_state(state_of(*target), before));

  other.front().second = torch::ones({11, 8});
  write(path, other);
  CHECK_FALSE(load_error(*target, path).empty());
  CHECK(same_state(state_of(*target), before));
  const auto report = load_weights(*target, path, {.strict = false});
  CHECK(report.missing.size() == 4);
  CHECK(report.unexpected == std::vector<std::string>{"extra.weight"});
  CHECK(same(target->embeddings->token->weight, torch::ones({11, 8})));

  write(path, {{"weight", torch::ones({2})}});
  CHECK(holds(load_error(*target, path, {.strict = false}), "missing keys: \"embeddings.token.weight\""));
  CHECK_THROWS_AS(load_weights(*target, folder.path / "none.pt"), Error);

  for (const char* name : {"cut.safetensors", "cut.pt"}) {
    save_weights(*model(2), folder.path / name);
    fs::resize_file(folder.path / name, fs::file_size(folder.path / name) / 2);
    const State kept = state_of(*target);
    CHECK(holds(message_of<Error>([&] { load_weights(*target, folder.path / name); }), name));
    CHECK(same_state(state_of(*target), kept));
  }
}

TEST_CASE("wrappers, old names, prefixes and rename rules") {
  const Folder folder;
  const auto path = folder.path / "model.safetensors";
  const auto original = model(1);
  const auto loads = [&](const std::function<std::string(std::string)>& name, const LoadOptions& options = {}) {
    State renamed = state_of(*original);
    for (auto& [key, tensor] : renamed) key = name(key);
    write(path, renamed);
    auto other = model(2);
    load_weights(*other, path, options);
    return same_state(state_of(*other), state_of(*original));
  };
  for (const char* prefix :
       {"module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod.module.module.", "_fsdp_wrapped_module.",
        "module._fsdp_wrapped_module._orig_mod._checkpoint_wrapped_module.", "_forward_module._module."}) {
    CHECK(loads([&](const std::string& key) { return prefix + key; }));
    CHECK(loads([&](const std::string& key) { return std::string(prefix) + "net." + key; }, {.prefix = "net"}));
    CHECK(loads([&](const std::string& key) { return prefix + key; }, {.prefix = prefix}));
    CHECK(loads([&](std::string key) {
      const auto at = key.find("mha.");
      return at == std::string::npos ? key : key.insert(at, prefix);
    }));
  }
  CHECK(loads([](const std::string& key) { return "x_" + key; },
              {.rename = [](const std::string& key) { return key.substr(2); }}));

  torch::nn::Sequential norms;
  norms->push_back("LayerNorm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({2})));
  write(path, {{"LayerNorm.gamma", torch::full({2}, 3.0)}, {"LayerNorm.beta", torch::full({2}, 4.0)}});
  load_weights(*norms, path);
  CHECK(same(norms->named_parameters()["LayerNorm.weight"], torch::full({2}, 3.0)));
  CHECK(same(norms->named_parameters()["LayerNorm.bias"], torch::full({2}, 4.0)));

  auto target = model(2);
  write(path, {{"_orig_mod.head.weight", torch::zeros({3, 8})}, {"module.head.weight", torch::ones({3, 8})}});
  CHECK(holds(load_error(*target, path, {.strict = false}), "both stand for \"head.weight\""));

  // A module that has a child of a wrapper's name beside its own parameter.
  struct Wrapper : torch::nn::Module {
    Wrapper() : torch::nn::Module("Wrapper") {
      weight = register_parameter("weight", torch::zeros({2}));
      inner = register_module("module", torch::nn::Linear(torch::nn::LinearOptions(2, 1).bias(false)));
    }
    Tensor weight;
    torch::nn::Linear inner{nullptr};
  } wrapper;
  write(path, {{"weight", torch::ones({2})}, {"module.weight", torch::full({1, 2}, 2.0)}});
  load_weights(wrapper, path);
  CHECK(same(wrapper.weight, torch::ones({2})));
  CHECK(same(wrapper.inner->weight, torch::full({1, 2}, 2.0)));

  State inside = state_of(*original);
  for (auto& [key, tensor] : inside) key = "net." + key;
  inside.emplace_back("elsewhere", torch::ones({1}));
  write(path, inside);
  load_weights(*target, path, {.prefix = "net."});
  CHECK(same_state(state_of(*target), state_of(*original)));
  inside.erase(inside.begin());
  write(path, inside);
  CHECK(holds(load_error(*target, path, {.prefix = "net."}), "missing keys: \"net.embeddings.token.weight\""));
}

TEST_CASE("floating types convert unless the caller forbids it") {
  const Folder folder;
  const auto path = folder.path / "model.safetensors";
  auto original = model(1);
  original->to(torch::kHalf);
  save_weights(*original, path);
  auto target = model(2);
  const State before = state_of(*target);
  CHECK(holds(load_error(*target, path, {.convert_dtype = false}), "\"embeddings.token.weight\" is F16, expected F32"));
  CHECK(same_state(state_of(*target), before));
  load_weights(*target, path);
  CHECK(target->head->weight.scalar_type() == torch::kFloat);
  CHECK(same(target->head->weight, original->head->weight.to(torch::kFloat)));

  struct WithoutMemory : torch::nn::Module {
    WithoutMemory() { register_parameter("weight", torch::empty({3, 2}, torch::kMeta)); }
  } without_memory;
  save_weights(*torch::nn::Linear(torch::nn::LinearOptions(2, 3).bias(false)), path);
  CHECK(holds(load_error(without_memory, path), "the module is on the meta device"));

  // More than is read at once, on its way into another type.
  torch::nn::Linear large(torch::nn::LinearOptions(1000, 5000).bias(false)),
      copy(torch::nn::LinearOptions(1000, 5000).bias(false));
  save_weights(*large, path);
  copy->to(torch::kDouble);
  load_weights(*copy, path);
  CHECK(same(copy->weight, large->weight.to(torch::kDouble)));
}

TEST_CASE("a module that was made in inference mode, and one that is loaded in it") {
  const Folder folder;
  const auto path = folder.path / "model.safetensors";
  const auto original = model(1);
  State mixed = state_of(*original);
  for (size_t i = 0; i < mixed.size(); i += 2) mixed[i].second = mixed[i].second.to(torch::kBFloat16);
  write(path, mixed);
  auto target = [] {
    const c10::InferenceMode inference;
    return model(2);
  }();
  load_weights(*target, path);
  auto other = model(3);
  {
    const c10::InferenceMode inference;
    load_weights(*other, path);
    save_weights(*target, folder.path / "again.pt");
  }
  for (const auto& [name, tensor] : mixed) {
    CHECK(same(target->named_parameters()[name], tensor.to(torch::kFloat)));
    CHECK(same(other->named_parameters()[name], tensor.to(torch::kFloat)));
  }
  CHECK(other->head->weight.requires_grad());
}

TEST_CASE("what cannot be written to is found before the first copy") {
  const Folder folder;
  const auto path = folder.path / "model.safetensors";
  save_weights(*model(1), path);
  auto target = model(2);
  target->head->bias.set_data(torch::zeros({1}).expand({3}));
  const State before = state_of(*target);
  CHECK(holds(load_error(*target, path), "the module's tensor for \"head.bias\" is an expanded one"));
  CHECK(same_state(state_of(*target), before));
}

TEST_CASE("an error names ten keys of each kind and the likely cause") {
  const Folder folder;
  const auto path = folder.path / "model.safetensors";
  auto target = model(1);
  const auto error = [&](const std::function<std::string(std::string)>& name, const LoadOptions& options = {}) {
    State renamed = state_of(*target);
    for (auto& [key, tensor] : renamed) key = name(key);
    write(path, renamed);
    const std::string said = load_error(*target, path, options);
    CHECK(said.find('\n') == std::string::npos);
    return said.substr(said.find("module: ") + 8);
  };
  const std::string prefixed = error([](const std::string& key) { return "bert." + key; });
  CHECK(
      prefixed.starts_with("all keys have the prefix \"bert\" (.prefix = \"bert\"); missing keys: \"embeddings.token"));
  CHECK(holds(prefixed, "\"encoder.layers.0.ff.net.3.bias\", and 20 more; unexpected keys: \"bert.embeddings."));
  CHECK(prefixed.ends_with(", and 20 more"));
  CHECK(prefixed.size() < 1200);
  CHECK(error([](const std::string& key) {
          return (key[0] == 'h' ? "" : "module.net.") + key;
        }).starts_with("the module's keys have the prefix \"net\" (.prefix = \"net\"); "));
  CHECK(error([](const std::string& key) { return key; }, {.prefix = "net"})
            .starts_with("the keys do not have the prefix \"net\"; "));
  CHECK(error([](const std::string& key) { return "_" + key; }).starts_with("missing keys: "));

  const auto layout_error = [&](const Layout& layout, const LoadOptions& options = {}) {
    save_weights(*target, path, layout);
    const std::string said = load_error(*target, path, options);
    return said.substr(said.find("module: ") + 8);
  };
  CHECK(layout_error(torch_layout())
            .starts_with("this is the layout of torch.nn.TransformerEncoder (.layout = torch_layout()); "));
  CHECK(layout_error(bert_layout()).starts_with("this is the layout of BERT and RoBERTa (.layout = bert_layout()); "));
  CHECK(layout_error(distilbert_layout()).starts_with("this is the layout of DistilBERT "));
  CHECK(layout_error(gpt2_layout()).starts_with("this is the layout of GPT-2 "));
  CHECK(layout_error(course_layout()).starts_with("this is the layout of the course with w_q"));
  CHECK(layout_error({}, {.layout = gpt2_layout()}).starts_with("this is the layout of this library (.layout = {}); "));
  CHECK(error([](const std::string& key) { return "net." + file_keys(torch_layout(), key).names[0]; })
            .starts_with(
                "this is the layout of torch.nn.TransformerEncoder (.layout = torch_layout()), and all keys have the "
                "prefix \"net\" (.prefix = \"net\"); "));

  save_weights(*target->encoder, path);
  CHECK(holds(load_error(*target, path), "module: the file holds a part of the module: \"encoder\"; missing keys: "));
  save_weights(*target, path);
  CHECK(holds(load_error(*target->encoder, path), "module: the module's keys have the prefix \"encoder\" "));
  auto& first = *target->encoder->layers[0];
  CHECK(holds(load_error(first, path),
              "have the prefix one of \"encoder.layers.0\", \"encoder.layers.1\" (.prefix = one of "));

  torch::optim::AdamW optimizer(target->parameters());
  target(torch::tensor({{1, 2, 3}})).sum().backward();
  optimizer.step();
  torch::save(optimizer, (folder.path / "optimizer.pt").string());
  CHECK(holds(load_error(*target, folder.path / "optimizer.pt"),
              "module: the file holds an optimizer's state; missing keys: "));
  State moments;
  for (const auto& [name, tensor] : state_of(*target)) {
    moments.emplace_back("exp_avg." + name, tensor);
    moments.emplace_back("exp_avg_sq." + name, tensor);
  }
  write(path, moments);
  CHECK(holds(load_error(*target, path), "module: the file holds an optimizer's state; missing keys: "));
  for (const auto& [name, tensor] : state_of(*target)) moments.emplace_back("model." + name, tensor);
  write(path, moments);
  CHECK(holds(load_error(*target, path), "module: all keys have the prefix \"model\""));
}

TEST_CASE("buffers, scalars and empty tensors") {
  const Folder folder;
  torch::nn::BatchNorm1d norm(3), other(3);
  norm->running_mean.fill_(2.0);
  norm->num_batches_tracked.fill_(7);
  for (const char* name : {"norm.safetensors", "norm.pt"}) {
    save_weights(*norm, folder.path / name);
    load_weights(*other, folder.path / name);
    CHECK(same(other->running_mean, norm->running_mean));
    CHECK(other->num_batches_tracked.item<std::int64_t>() == 7);
    other = torch::nn::BatchNorm1d(3);
  }
}

TEST_CASE("a tied parameter is stored once and loaded once") {
  const Folder folder;
  const auto tied = [](std::int64_t seed) {
    torch::manual_seed(static_cast<std::uint64_t>(seed));
    ModelConfig tying = config();
    tying.num_classes = tying.vocab_size;
    EncoderModel made(tying);
    made->head->weight = made->embeddings->token->weight;
    return made;
  };
  const auto original = tied(1);
  auto untied_config = config();
  untied_config.num_classes = untied_config.vocab_size;
  for (const char* name : {"tied.safetensors", "tied.pt"}) {
    save_weights(*original, folder.path / name);
    auto other = tied(2);
    load_weights(*other, folder.path / name);
    CHECK(same(other->head->weight, original->embeddings->token->weight));
    CHECK(other->head->weight.is_same(other->embeddings->token->weight));
    EncoderModel untied(untied_config);
    load_weights(*untied, folder.path / name);
    CHECK(same(untied->head->weight, original->head->weight));
    CHECK(same(untied->embeddings->token->weight, original->head->weight));
  }

  State without = state_of(*original), twice = without;
  std::erase_if(without, [](const auto& entry) { return entry.first == "head.weight"; });
  std::erase_if(twice, [](const auto& entry) { return entry.first == "head.weight"; });
  write(folder.path / "without.safetensors", without);
  auto other = tied(2);
  load_weights(*other, folder.path / "without.safetensors");
  CHECK(same(other->head->weight, original->head->weight));

  twice.emplace_back("head.weight", original->head->weight.detach().clone());
  write(folder.path / "twice.safetensors", twice);
  load_weights(*other, folder.path / "twice.safetensors");
  twice.back().second[10][7] += 1;
  write(folder.path / "twice.safetensors", twice);
  const State before = state_of(*other);
  CHECK(holds(load_error(*other, folder.path / "twice.safetensors"),
              "\"embeddings.token.weight\" and \"head.weight\" are one tensor in the module but differ in the file"));
  CHECK(same_state(state_of(*other), before));
}

TEST_CASE("a tied head comes back from a saved model as one tensor, tied by hand too") {
  const Folder folder;
  for (const bool by_hand : {false, true}) {
    auto tying = config();
    tying.num_classes = tying.vocab_size;
    tying.tie_head = !by_hand;
    EncoderModel original(tying);
    if (by_hand) original->head->weight = original->embeddings->token->weight;
    save_pretrained(original, folder.path);
    auto other = from_pretrained(folder.path);
    CHECK(other->config.tie_head);
    CHECK(other->head->weight.is_same(other->embeddings->token->weight));
    CHECK(same(other->head->weight, original->head->weight));
    CHECK(TensorFile::open(folder.path).find("head.weight") == nullptr);
    if (by_hand) continue;
    State once = state_of(*original);  // as Python writes it without the metadata
    std::erase_if(once, [](const auto& entry) { return entry.first == "head.weight"; });
    write(folder.path / "model.safetensors", once);
    other = from_pretrained(folder.path);
    CHECK(other->head->weight.is_same(other->embeddings->token->weight));
  }
}

TEST_CASE("a model that is not what its configuration says is refused before anything is written") {
  const Folder folder;
  const fs::path path = folder.path / "saved";
  const auto refused = [&](const std::function<void(EncoderModel&)>& change, const std::string& error) {
    auto changed = model(1);
    change(changed);
    CHECK(error_of([&] { save_pretrained(changed, path); }) == error);
    CHECK_FALSE(fs::exists(path));
  };
  const std::string says = ", the configuration says ";
  const auto first = [](EncoderModel& changed) -> EncoderLayerImpl& { return changed->encoder->layer(0); };
  refused([](auto& changed) { changed->encoder->layers->push_back(EncoderLayer(EncoderLayerOptions(8, 2))); },
          "encoder.layers.2 is a prenorm::EncoderLayerImpl" + says + "nothing of it");
  refused([](auto& changed) { changed->encoder->layers->replace_module("0", torch::nn::Linear(8, 8).ptr()); },
          "the \"0\" that a torch::nn::ModuleListImpl calls is not the one registered under that name, which "
          "parameters(), saving and cloning go by: make a new list of what it is to call, "
          "LibTorch's insert and replace_module leave this one so");
  refused(
      [](auto& changed) {
        changed->encoder->unregister_module("norm");
        changed->encoder->norm = nullptr;
      },
      "encoder.norm is missing" + says + "torch::nn::LayerNormImpl");
  refused([&](auto& changed) { first(changed).sub1->drop->options.p(0.25); },
          "encoder.layers.0.sub1.drop has p 0.25" + says + "p 0.1");
  refused([&](auto& changed) { first(changed).mha->options.dropout(0.25); },
          "encoder.layers.0.mha has other options than the configuration gives it");
  refused([&](auto& changed) { first(changed).sub2->options.placement(NormPlacement::post); },
          "encoder.layers.0.sub2 has other options than the configuration gives it");
  refused([](auto& changed) { changed->encoder->norm->options.eps(1e-12); },
          "encoder.norm has eps 1e-12" + says + "eps 1e-05");
  refused([](auto& changed) { changed->embeddings->token->options.padding_idx(0); },
          "embeddings.token has no max_norm, padding_idx 0" + says + "no max_norm, no padding_idx");
  refused(
      [&](auto& changed) {
        auto& ff = *first(changed).ff;
        ff.net = ff.replace_module("net", torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::ReLU(),
                                                                torch::nn::Dropout(0.1), torch::nn::Linear(32, 8)));
      },
      "encoder.layers.0.ff.net.1 is a torch::nn::ReLUImpl" + says + "torch::nn::GELUImpl");
  refused([](auto& changed) { changed->head = changed->replace_module("head", torch::nn::Linear(8, 5)); },
          "head has weight [5, 8], bias [5]" + says + "weight [3, 8], bias [3]");
  refused([](auto& changed) { changed->config.num_classes = 5; },
          "head has weight [3, 8], bias [3]" + says + "weight [5, 8], bias [5]");
  refused([](auto& changed) { changed->register_buffer("extra", torch::ones({2})); },
          "the model has extra [2]" + says + "no tensors");
  refused(
      [&](auto& changed) { first(changed).mha->out_proj->weight = changed->encoder->layer(1).mha->out_proj->weight; },
      "encoder.layers.1.mha.out_proj.weight is one tensor with encoder.layers.0.mha.out_proj.weight, which is not "
      "what the configuration says");
  refused([](auto& changed) { changed->head = torch::nn::Linear(8, 3); },
          "the \"head\" that a prenorm::EncoderModelImpl calls is not the one registered under that name, which "
          "parameters(), saving and cloning go by: assign to the member what replace_module(\"head\", ...) returns");

  auto changed = model(1);
  changed->head = changed->replace_module("head", torch::nn::Linear(8, 5));
  changed->config.num_classes = 5;
  first(changed).sub1->drop->options.p(0.1);
  save_pretrained(changed, path);
  CHECK(same(from_pretrained(path)->head->weight, changed->head->weight));
}

TEST_CASE("layouts name and shape tensors, both ways") {
  CHECK(file_keys(course_layout(), "sub.mha.in_proj.weight").names ==
        std::vector<std::string>{"sub.mha.w_q.weight", "sub.mha.w_k.weight", "sub.mha.w_v.weight"});
  CHECK(file_keys(torch_layout(), "layers.3.mha.in_proj.bias").names ==
        std::vector<std::string>{"layers.3.self_attn.in_proj_bias"});
  CHECK(file_keys(bert_layout(), "encoder.layers.11.ff.net.3.weight").names ==
        std::vector<std::string>{"encoder.layer.11.output.dense.weight"});
  CHECK(file_keys(gpt2_layout(), "encoder.layers.0.ff.net.0.weight").transposed);
  CHECK_FALSE(file_keys(gpt2_layout(), "embeddings.token.weight").transposed);

  const Folder folder;
  const auto original = model(1);
  const State state = state_of(*original);
  for (const auto& layout :
       {Layout{}, course_layout(), torch_layout(), bert_layout(), distilbert_layout(), gpt2_layout()}) {
    for (const char* name : {"model.safetensors", "model.pt"}) {
      save_weights(*original, folder.path / name, layout);
      auto other = model(2);
      load_weights(*other, folder.path / name, {.layout = layout});
      CHECK(same_state(state_of(*other), state));
      auto twice = model(3);
      twice->to(torch::kDouble);
      load_weights(*twice, folder.path / name, {.layout = layout});
      CHECK(same(twice->embeddings->token->weight, original->embeddings->token->weight.to(torch::kDouble)));
      CHECK(same(twice->parameters()[2], original->parameters()[2].to(torch::kDouble)));
    }
  }
  save_weights(*original, folder.path / "gpt2.safetensors", gpt2_layout());
  const auto file = TensorFile::open(folder.path / "gpt2.safetensors");
  CHECK(file.find("h.0.attn.c_attn.weight")->shape == std::vector<std::int64_t>{8, 24});
  CHECK(file.find("h.0.mlp.c_proj.weight")->shape == std::vector<std::int64_t>{32, 8});

  auto target = model(2);
  save_weights(*original, folder.path / "course.safetensors", course_layout());
  CHECK(holds(load_error(*target, folder.path / "course.safetensors"),
              "missing keys: \"encoder.layers.0.mha.in_proj.weight\""));
  State without = state;
  for (auto& [key, tensor] : without) key = file_keys(course_layout(), key).names.front();
  write(folder.path / "part.safetensors", without);
  CHECK(holds(load_error(*target, folder.path / "part.safetensors", {.layout = course_layout()}),
              "missing keys: \"encoder.layers.0.mha.w_k.weight\", \"encoder.layers.0.mha.w_v.weight\""));
}

TEST_CASE("LibTorch's own encoder gives its weights, and takes them") {
  const Folder folder;
  torch::manual_seed(1);
  torch::nn::TransformerEncoder theirs(torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(0.0).activation(torch::kGELU), 2));
  for (auto& parameter : theirs->parameters()) parameter.data().normal_(0.0, 0.5);
  Encoder ours(EncoderOptions(
      EncoderLayerOptions(8, 2).d_ff(12).dropout(0.0).norm_placement(NormPlacement::post).attention_bias(true), 2));
  for (const char* name : {"encoder.safetensors", "encoder.pt"}) {
    save_weights(*theirs, folder.path / name);
    load_weights(*ours, folder.path / name, {.layout = torch_layout()});
    const auto x = torch::randn({3, 5, 8});
    const auto expected = theirs(x.transpose(0, 1)).transpose(0, 1);
    CHECK(close(ours(x), expected));
    save_weights(*ours, folder.path / name, torch_layout());
    for (auto& parameter : theirs->parameters()) parameter.data().zero_();
    load_weights(*theirs, folder.path / name);
    CHECK(same(theirs(x.transpose(0, 1)).transpose(0, 1), expected));
  }
  ours = Encoder(EncoderOptions(EncoderLayerOptions(8, 2).d_ff(12).attention_bias(true).norm_bias(false), 2));
  CHECK(holds(load_error(*ours, folder.path / "encoder.pt", {.layout = torch_layout()}),
              "unexpected keys: \"layers.0.norm1.bias\", \"layers.0.norm2.bias\""));
  ours = Encoder(EncoderOptions(EncoderLayerOptions(8, 2).d_ff(12).attention_bias(true), 2).final_norm(false));
  torch::save(theirs, (folder.path / "archive.pt").string());
  load_weights(*ours, folder.path / "archive.pt", {.layout = torch_layout()});
}

TEST_CASE("what a C++ program pickled is loaded, of several state dicts the one that is named") {
  const Folder folder;
  const auto original = model(1), other = model(2);
  const auto dict_of = [](const EncoderModel& from) {
    c10::Dict<std::string, Tensor> dict;
    for (const auto& [name, tensor] : state_of(*from)) dict.insert(name, tensor);
    return dict;
  };
  const auto pickled = [&](const c10::IValue& value) {
    const std::vector<char> bytes = torch::pickle_save(value);
    return folder.write("a.pt", std::string(bytes.begin(), bytes.end()));
  };
  auto target = model(3);
  load_weights(*target, pickled(dict_of(original)));
  CHECK(same_state(state_of(*target), state_of(*original)));
  c10::Dict<std::string, c10::Dict<std::string, Tensor>> two;
  two.insert("teacher", dict_of(original));
  two.insert("student", dict_of(other));
  const auto path = pickled(two);
  CHECK(message_of<Error>([&] {
          load_weights(*target, path);
        }).find("holds several state dicts, \"teacher\", \"student\": name the one to read") != std::string::npos);
  load_weights(*target, path, {.entry = "student"});
  CHECK(same_state(state_of(*target), state_of(*other)));
}

}  // namespace weights_test
