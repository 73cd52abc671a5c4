#pragma once

#include "prenorm/tensor_file/file_source.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm {

/// The longest header that the format allows, in bytes.
constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Reads the header of a safetensors file by the rules of the reference reader (safetensors 0.8, `tensor.rs`) and of
/// the format's description (starts with `{`, no duplicate keys). Throws Error naming the tensor at fault.
TensorFile::Contents read_safetensors(const FileSource& source);

}  // namespace prenorm
