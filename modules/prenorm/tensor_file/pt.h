#pragma once

#include "prenorm/tensor_file/file_source.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm {

/// Reads a zip that PyTorch wrote: `torch.save` of a state dict, LibTorch's own archives, TorchScript. `entry` is that
/// of TensorFile::open. Executes nothing; throws Error naming what it refuses.
TensorFile::Contents read_pt(const FileSource& source, std::string_view entry = {});

}  // namespace prenorm
