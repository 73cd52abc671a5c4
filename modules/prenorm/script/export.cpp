#include "prenorm/script/export.h"

#include <torch/csrc/jit/serialization/export.h>
#include <torch/script.h>

#include <map>
#include <memory>
#include <unordered_map>

#include "prenorm/file.h"
#include "prenorm/script/definition.h"

namespace prenorm {
namespace {

/// Builds the TorchScript module of a module and its children. Modules that differ only in values share a class.
class Builder {
 public:
  torch::jit::Module build(const torch::nn::Module& module) {
    const script::Definition definition = script::definition(module);
    std::vector<std::pair<std::string, Tensor>> parameters;
    for (const auto& [name, tensor] : detail::own_parameters(module)) {
      if (tensor->defined()) parameters.emplace_back(name, on_cpu(*tensor));
    }
    std::vector<std::pair<std::string, torch::jit::Module>> children;
    for (const auto& child : module.named_children()) children.emplace_back(child.key(), build(*child.value()));

    std::string identity = definition.name + definition.code;
    for (const auto& [name, child] : children) identity += name + " " + child.type()->name()->qualifiedName() + "\n";
    auto& type = types_[identity];
    const bool is_new = !type;
    if (is_new) type = new_type(definition.name);

    torch::jit::Module script(unit_, type);
    script.register_attribute("training", c10::BoolType::get(), false);
    for (const auto& [name, value] : definition.attributes) script.register_attribute(name, value.type(), value);
    for (const auto& [name, tensor] : parameters) script.register_parameter(name, tensor, /*is_buffer=*/false);
    for (const auto& [name, child] : children) script.register_module(name, child);
    if (is_new) script.define(definition.code);
    return script;
  }

 private:
  c10::ClassTypePtr new_type(const std::string& name) {
    const int number = ++names_[name];
    const std::string unique = number == 1 ? name : name + "_" + std::to_string(number);
    auto type = c10::ClassType::create("__torch__.prenorm." + unique, unit_, /*is_module=*/true);
    unit_->register_type(type);
    return type;
  }

  /// The parameter as the file keeps it: of no device that the reader may lack, with nothing else in its storage. One
  /// tensor stays one under all of its names.
  Tensor on_cpu(const Tensor& parameter) {
    Tensor& kept = kept_[parameter.unsafeGetTensorImpl()];
    if (!kept.defined()) {
      kept = parameter.detach().to(torch::kCPU).contiguous();
      if (kept.storage().nbytes() != kept.nbytes()) kept = kept.clone();
      kept.set_requires_grad(parameter.requires_grad());
    }
    return kept;
  }

  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
  std::map<std::string, c10::ClassTypePtr> types_;
  std::map<std::string, int> names_;
  std::unordered_map<const c10::TensorImpl*, Tensor> kept_;
};

}  // namespace

void export_torchscript(const torch::nn::Module& module, const std::filesystem::path& path) {
  const torch::jit::ExtraFilesMap extra_files{{"config.json", script::config_json(module)}};
  const torch::jit::Module script = Builder().build(module);
  write_file_atomically(path, [&](std::ostream& stream) {
    // LibTorch's writer ends the program when it hears of a failure; the stream remembers one until it is closed.
    const auto write = [&](const void* data, size_t size) {
      stream.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
      return size;
    };
    torch::jit::ExportModule(script, write, extra_files);
  });
}

}  // namespace prenorm
