#pragma once

#include <optional>
#include <string_view>

#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm {

/// A type in the names of a PyTorch pickle; `storage` is empty for those without a storage class of their own.
struct PtDtype {
  Dtype dtype;
  std::string_view name;     ///< "torch.float32"
  std::string_view storage;  ///< "torch.FloatStorage"
};

/// The row of a type, by its safetensors type; null when PyTorch has no such type.
const PtDtype* pt_dtype(Dtype dtype);

/// The type with that name or storage class, if it is one we read.
std::optional<Dtype> find_pt_dtype(std::string_view name_or_storage);

/// Whether a global ("module.name") is one that state dicts of PyTorch are made of, or a plain container.
bool pt_global_known(std::string_view name);

}  // namespace prenorm
