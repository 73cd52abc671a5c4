#include "prenorm/weights/state.h"

#include <set>
#include <sstream>
#include <utility>

namespace prenorm::detail {
namespace {

constexpr std::pair<Dtype, torch::ScalarType> kTypes[] = {
    {Dtype::BOOL, at::ScalarType::Bool},
    {Dtype::U8, at::ScalarType::Byte},
    {Dtype::I8, at::ScalarType::Char},
    {Dtype::F8_E5M2, at::ScalarType::Float8_e5m2},
    {Dtype::F8_E4M3, at::ScalarType::Float8_e4m3fn},
    {Dtype::F8_E8M0, at::ScalarType::Float8_e8m0fnu},
    {Dtype::F8_E4M3FNUZ, at::ScalarType::Float8_e4m3fnuz},
    {Dtype::F8_E5M2FNUZ, at::ScalarType::Float8_e5m2fnuz},
    {Dtype::I16, at::ScalarType::Short},
    {Dtype::U16, at::ScalarType::UInt16},
    {Dtype::F16, at::ScalarType::Half},
    {Dtype::BF16, at::ScalarType::BFloat16},
    {Dtype::I32, at::ScalarType::Int},
    {Dtype::U32, at::ScalarType::UInt32},
    {Dtype::F32, at::ScalarType::Float},
    {Dtype::C64, at::ScalarType::ComplexFloat},
    {Dtype::F64, at::ScalarType::Double},
    {Dtype::I64, at::ScalarType::Long},
    {Dtype::U64, at::ScalarType::UInt64},
};

/// What DataParallel, torch.compile, FullyShardedDataParallel, checkpoint_wrapper, Fabric and Opacus call the module
/// that they wrap.
bool is_wrapper(const std::string& name) {
  static const std::set<std::string> names{
      "module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module", "_module"};
  return names.contains(name);
}

template <typename Add>
void visit(const torch::nn::Module& module, const std::string& prefix, const Add& add) {
  add(module, prefix);
  for (const auto& child : module.named_children()) visit(*child.value(), prefix + child.key() + ".", add);
}

}  // namespace

std::string canonical(const std::string& key) {
  std::vector<std::string> names;
  std::istringstream stream(key);
  for (std::string name; std::getline(stream, name, '.');) {
    if (!is_wrapper(name)) names.push_back(name);
  }
  if (names.size() > 1 && names[names.size() - 2].ends_with("LayerNorm")) {
    if (names.back() == "gamma") names.back() = "weight";
    if (names.back() == "beta") names.back() = "bias";
  }
  std::string joined;
  for (const auto& name : names) joined += (joined.empty() ? "" : ".") + name;
  return joined;
}

std::vector<StateEntry> state_entries(const torch::nn::Module& module) {
  std::vector<StateEntry> entries;
  visit(module, "", [&](const torch::nn::Module& part, const std::string& prefix) {
    for (const auto& [name, tensor] : own_parameters(part)) {
      if (tensor->defined()) entries.push_back({prefix + name, *tensor});
    }
  });
  visit(module, "", [&](const torch::nn::Module& part, const std::string& prefix) {
    for (const auto& buffer : part.named_buffers(/*recurse=*/false)) {
      if (buffer.value().defined()) entries.push_back({prefix + buffer.key(), buffer.value()});
    }
  });
  return entries;
}

std::vector<StatePart> parts_of(const StateEntry& entry, const Layout& layout) {
  const FileKeys keys = file_keys(layout, entry.name);
  const Tensor tensor = entry.tensor.detach();
  const auto count = static_cast<std::int64_t>(keys.names.size());
  TORCH_CHECK(count == 1 || (tensor.dim() > 0 && tensor.size(0) % count == 0), entry.name, " of shape ", tensor.sizes(),
              " cannot be cut into ", count, " parts of equally many rows");
  std::vector<StatePart> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    Tensor view = tensor;
    if (count > 1) view = view.narrow(0, i * (tensor.size(0) / count), tensor.size(0) / count);
    if (keys.transposed && view.dim() == 2) view = view.t();
    parts.push_back({keys.names[static_cast<size_t>(i)], view});
  }
  return parts;
}

std::optional<torch::ScalarType> torch_type(Dtype type) {
  for (const auto& [file, torch] : kTypes) {
    if (file == type) return torch;
  }
  return std::nullopt;
}

std::optional<Dtype> file_type(torch::ScalarType type) {
  for (const auto& [file, torch] : kTypes) {
    if (torch == type) return file;
  }
  return std::nullopt;
}

}  // namespace prenorm::detail
