#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prenorm/module.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/weights/weights.h"

namespace prenorm::detail {

/// A key of a file without the names of wrappers, old names replaced: what load_weights compares.
std::string canonical(const std::string& key);

/// One tensor of a module's state under its full name.
struct StateEntry {
  std::string name;
  Tensor tensor;
};

/// The parameters as the modules use them, then the buffers, in registration order. A tied one appears under each name.
std::vector<StateEntry> state_entries(const torch::nn::Module& module);

/// A tensor of a file, as a view of the module's tensor in the file's shape.
struct StatePart {
  std::string key;
  Tensor view;
};

/// What `layout` makes of one entry. Throws c10::Error when the tensor cannot be cut into as many parts.
std::vector<StatePart> parts_of(const StateEntry& entry, const Layout& layout);

/// LibTorch's type for one of a file, if it has it, and back.
std::optional<torch::ScalarType> torch_type(Dtype type);
std::optional<Dtype> file_type(torch::ScalarType type);

/// save_weights for tensors of any kind, with more of `__metadata__`, which only safetensors has.
void save_state(const std::vector<StateEntry>& entries, const std::filesystem::path& path, const Layout& layout,
                std::map<std::string, std::string> metadata);

/// load_weights for tensors of any kind.
LoadReport load_state(const std::vector<StateEntry>& entries, const std::filesystem::path& path,
                      const LoadOptions& options);

/// What load_state checks and reports, without loading; the tensors may be on the meta device.
LoadReport check_state(const std::vector<StateEntry>& entries, const std::filesystem::path& path,
                       const LoadOptions& options);

}  // namespace prenorm::detail
