#include "prenorm/saved_config.h"

#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace prenorm {
namespace {

using torch::nn::Module;
using Storage = std::pair<const c10::StorageImpl*, std::int64_t>;  // a meta tensor has one too, without an address

/// The modules of a model under their paths, the model itself under "".
std::map<std::string, const Module*> parts_of(const EncoderModelImpl& model) {
  std::map<std::string, const Module*> parts{{"", &model}};
  for (const auto& part : model.named_modules("", /*include_self=*/false)) parts.emplace(part.key(), part->get());
  return parts;
}

std::vector<std::pair<std::string, Tensor>> tensors_of(const Module& part) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, used] : detail::own_parameters(part)) {
    if (used->defined()) tensors.emplace_back(name, *used);
  }
  for (const auto& buffer : part.named_buffers(/*recurse=*/false)) tensors.emplace_back(buffer.key(), buffer.value());
  return tensors;
}

std::string shapes_of(const Module& part) {
  std::string shapes;
  for (const auto& [name, tensor] : tensors_of(part)) {
    shapes += c10::str(shapes.empty() ? "" : ", ", name, " ", tensor.sizes());
  }
  return shapes.empty() ? "no tensors" : shapes;
}

/// The shortest spelling that no other number has.
std::string spelled(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// What LibTorch's modules compute with beside their tensors.
std::string settings_of(const Module& part) {
  if (const auto* norm = part.as<torch::nn::LayerNormImpl>()) return "eps " + spelled(norm->options.eps());
  if (const auto* drop = part.as<DropoutImpl>()) return "p " + spelled(drop->options.p());
  if (const auto* gelu = part.as<torch::nn::GELUImpl>()) return "approximate " + gelu->options.approximate();
  if (const auto* table = part.as<torch::nn::EmbeddingImpl>()) {
    const auto& options = table->options;
    return (options.max_norm() ? "max_norm " + spelled(*options.max_norm()) : "no max_norm") +
           (options.padding_idx() ? ", padding_idx " + std::to_string(*options.padding_idx()) : ", no padding_idx");
  }
  return "";
}

/// Whether a module is one of ours, and its options are not those of `built`, which is of the same type.
template <typename... Impls>
bool options_differ(const Module& part, const Module& built) {
  const auto differ = [&]<typename Impl>(const Impl* ours) {
    return ours != nullptr && !(ours->options == built.as<Impl>()->options);
  };
  return (differ(part.as<Impls>()) || ...);
}

void check_part(const std::string& path, const Module& part, const Module& built) {
  const std::string what = path.empty() ? "the model" : path;
  const auto check = [&](const char* verb, const std::string& is, const std::string& said) {
    TORCH_CHECK(is == said, what, verb, is, ", the configuration says ", said);
  };
  check(" is a ", part.name(), built.name());
  check(" has ", shapes_of(part), shapes_of(built));
  check(" has ", settings_of(part), settings_of(built));
  const bool other = options_differ<EncoderImpl, EncoderLayerImpl, MultiHeadAttentionImpl, FeedForwardImpl,
                                    SubLayerConnectionImpl, EmbeddingsImpl, PositionalEncodingImpl>(part, built);
  TORCH_CHECK(!other, what, " has other options than the configuration gives it");
}

/// Each tensor of a model, and the first one that is the same memory.
std::map<std::string, std::string> ties_of(const std::map<std::string, const Module*>& parts) {
  std::map<std::string, std::string> ties;
  std::map<Storage, std::string> first_name;
  for (const auto& [path, part] : parts) {
    for (const auto& [name, tensor] : tensors_of(*part)) {
      if (!tensor.has_storage()) continue;
      const std::string full = path.empty() ? name : path + "." + name;
      const Storage storage(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset());
      ties.emplace(full, first_name.emplace(storage, full).first->second);
    }
  }
  return ties;
}

/// Throws c10::Error naming the first part in which a model is not as it is built from the configuration.
void check_same(const EncoderModelImpl& model, const EncoderModelImpl& built) {
  const auto parts = parts_of(model), expected = parts_of(built);
  for (const auto& [path, part] : parts) {
    const auto said = expected.find(path);
    TORCH_CHECK(said != expected.end(), path, " is a ", part->name(), ", the configuration says nothing of it");
    check_part(path, *part, *said->second);
  }
  for (const auto& [path, part] : expected) {
    TORCH_CHECK(parts.contains(path), path, " is missing, the configuration says ", part->name());
  }
  const auto said = ties_of(expected);
  for (const auto& [name, first] : ties_of(parts)) {
    TORCH_CHECK(said.at(name) == first, name,
                first == name ? " is a tensor of its own" : " is one tensor with " + first,
                ", which is not what the configuration says");
  }
}

}  // namespace

ModelConfig saved_config(const EncoderModelImpl& model) {
  ModelConfig config = model.config;
  config.tie_head = model.head && model.head->weight.is_same(model.embeddings->token->weight);
  const auto built = [&config] {
    const detail::Uninitialized uninitialized(torch::kFloat, torch::kMeta);
    return EncoderModel(config);
  }();
  check_same(model, *built);
  return config;
}

}  // namespace prenorm
