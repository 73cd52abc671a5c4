#include "prenorm/module.h"

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "prenorm/model.h"

namespace prenorm {

void check_positive(const char* name, std::int64_t value) {
  TORCH_CHECK(value > 0, name, " is ", value, ", not a positive number");
}

void check_dropout(const char* name, double probability) {
  TORCH_CHECK(probability >= 0.0 && probability < 1.0, name, " is ", probability, ", not in [0, 1)");
}

void check_eps(double eps) {
  TORCH_CHECK(eps > 0.0, "eps is ", eps, ", not a positive number");
}

void check_input(const Tensor& x, std::int64_t d_model) {
  TORCH_CHECK(x.dim() == 3 && x.size(2) == d_model, "the input is ", x.sizes(), ", expected [B, T, ", d_model, "]");
}

namespace detail {
namespace {

/// Reaches the protected registry of a module, where a tied parameter has to stand under both of its names.
struct Registry : torch::nn::Module {
  static Tensor& parameter(torch::nn::Module& module, const std::string& name) {
    return (module.*&Registry::parameters_)[name];
  }
};

template <typename Holder>
const torch::nn::Module* used(const Holder& holder) {
  return holder.is_empty() ? nullptr : holder.get();
}

/// The children of one module as its forward calls them, under the names of those that are registered.
std::vector<std::pair<std::string, const torch::nn::Module*>> own_children(const torch::nn::Module& module) {
  if (const auto* model = module.as<EncoderModelImpl>()) {
    return {{"embeddings", used(model->embeddings)}, {"encoder", used(model->encoder)}, {"head", used(model->head)}};
  }
  if (const auto* encoder = module.as<EncoderImpl>()) {
    return {{"layers", used(encoder->layers)}, {"norm", used(encoder->norm)}};
  }
  if (const auto* layer = module.as<EncoderLayerImpl>()) {
    return {
        {"mha", used(layer->mha)}, {"ff", used(layer->ff)}, {"sub1", used(layer->sub1)}, {"sub2", used(layer->sub2)}};
  }
  if (const auto* mha = module.as<MultiHeadAttentionImpl>()) {
    return {{"in_proj", used(mha->in_proj)}, {"out_proj", used(mha->out_proj)}};
  }
  if (const auto* ff = module.as<FeedForwardImpl>()) return {{"net", used(ff->net)}};
  if (const auto* connection = module.as<SubLayerConnectionImpl>()) {
    return {{"norm", used(connection->norm)}, {"drop", used(connection->drop)}};
  }
  if (const auto* embeddings = module.as<EmbeddingsImpl>()) {
    return {{"token", used(embeddings->token)},
            {"position", used(embeddings->position)},
            {"segment", used(embeddings->segment)},
            {"norm", used(embeddings->norm)},
            {"drop", used(embeddings->drop)}};
  }
  std::vector<std::pair<std::string, const torch::nn::Module*>> children;
  const auto add_items = [&](const auto* list) {
    const auto registered = list->named_children();
    for (size_t i = 0; i < list->size(); ++i) {
      children.emplace_back(i < registered.size() ? registered[i].key() : std::to_string(i), list->ptr(i).get());
    }
  };
  if (const auto* list = module.as<torch::nn::ModuleListImpl>()) add_items(list);
  if (const auto* list = module.as<torch::nn::SequentialImpl>()) add_items(list);
  return children;
}

void check_registered(const torch::nn::Module& module) {
  const auto registered = module.named_children();
  const bool list =
      module.as<torch::nn::ModuleListImpl>() != nullptr || module.as<torch::nn::SequentialImpl>() != nullptr;
  for (const auto& [name, child] : own_children(module)) {
    const auto* found = registered.find(name);
    TORCH_CHECK((found != nullptr ? found->get() : nullptr) == child, "the \"", name, "\" that a ", module.name(),
                " calls is not the one registered under that name, which parameters(), saving and cloning go by: ",
                list ? "make a new list of what it is to call, LibTorch's insert and replace_module leave this one so"
                     : "assign to the member what replace_module(\"" + name + "\", ...) returns");
  }
}

/// Calls `use(part, path)` for `module` and each module inside it; the path of a parameter is `path` + its name.
template <typename Use>
void for_each_part(const torch::nn::Module& module, const std::string& path, const Use& use) {
  use(module, path);
  for (const auto& child : module.named_children()) for_each_part(*child.value(), path + child.key() + ".", use);
}

/// The tensor of that path in an archive; undefined where there is none.
Tensor tensor_in(torch::serialize::InputArchive& archive, const std::string& path) {
  Tensor tensor;
  const auto dot = path.find('.');
  if (dot == std::string::npos) {
    archive.try_read(path, tensor);
    return tensor;
  }
  torch::serialize::InputArchive inner;
  return archive.try_read(path.substr(0, dot), inner) ? tensor_in(inner, path.substr(dot + 1)) : tensor;
}

}  // namespace

std::vector<std::pair<std::string, Tensor*>> own_parameters(const torch::nn::Module& owner) {
  check_registered(owner);
  auto& module = const_cast<torch::nn::Module&>(owner);  // LibTorch's as() and members have no const form
  if (auto* linear = module.as<torch::nn::LinearImpl>()) return {{"weight", &linear->weight}, {"bias", &linear->bias}};
  if (auto* embedding = module.as<torch::nn::EmbeddingImpl>()) return {{"weight", &embedding->weight}};
  if (auto* norm = module.as<torch::nn::LayerNormImpl>()) return {{"weight", &norm->weight}, {"bias", &norm->bias}};
  if (auto* position = module.as<PositionalEncodingImpl>()) return {{"weight", &position->weight}};
  std::vector<std::pair<std::string, Tensor*>> parameters;
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    parameters.emplace_back(parameter.key(), &Registry::parameter(module, parameter.key()));
  }
  return parameters;
}

void restore_frozen_and_tied(const torch::nn::Module& original, torch::nn::Module& copy) {
  const auto originals = original.modules();
  const auto copies = copy.modules();
  TORCH_CHECK(originals.size() == copies.size(), "clone() gave ", copies.size(), " modules for ", originals.size());
  const torch::NoGradGuard no_grad;
  std::unordered_map<const c10::TensorImpl*, Tensor> copy_of;
  for (size_t i = 0; i < originals.size(); ++i) {
    const auto before = own_parameters(*originals[i]);
    const auto after = own_parameters(*copies[i]);
    for (size_t j = 0; j < before.size(); ++j) {
      const auto& [name, source] = before[j];
      Tensor& target = *after[j].second;
      if (!source->defined()) continue;
      const auto [seen, first] = copy_of.emplace(source->unsafeGetTensorImpl(), target);
      if (first) {
        const bool reassigned =
            !source->is_same(Registry::parameter(const_cast<torch::nn::Module&>(*originals[i]), name));
        if (reassigned)
          target.set_data(source->detach().to(target.device(), source->scalar_type(), false, /*copy=*/true));
        target.set_requires_grad(source->requires_grad());
      } else {
        target = Registry::parameter(*copies[i], name) = seen->second;
      }
    }
  }
}

void register_used(const torch::nn::Module& module) {
  for_each_part(module, "", [](const torch::nn::Module& part, const std::string&) {
    for (const auto& [name, used] : own_parameters(part)) {
      if (!used->defined() && !part.named_parameters(/*recurse=*/false).contains(name)) continue;
      Tensor& registered = Registry::parameter(const_cast<torch::nn::Module&>(part), name);
      if (!registered.is_same(*used)) registered = *used;
    }
  });
}

void check_ties(const torch::nn::Module& module, torch::serialize::InputArchive& archive) {
  std::map<const c10::TensorImpl*, std::string> first_name;
  for_each_part(module, "", [&](const torch::nn::Module& part, const std::string& path) {
    for (const auto& [name, used] : own_parameters(part)) {
      if (!used->defined()) continue;
      const auto [first, is_first] = first_name.emplace(used->unsafeGetTensorImpl(), path + name);
      if (is_first) continue;
      const Tensor one = tensor_in(archive, first->second), other = tensor_in(archive, path + name);
      TORCH_CHECK(!one.defined() || !other.defined() || torch::equal(one, other), first->second, " and ", path, name,
                  " are one tensor in the module but differ in the archive");
    }
  });
}

}  // namespace detail
}  // namespace prenorm
