#pragma once

#include "prenorm/tensor_file/file_source.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm {

/// Copies the elements of a tensor in row-major order to `destination`, swapped to the byte order of this machine.
void read_elements(const FileSource& source, const TensorInfo& info, char* destination);

/// The strides, in elements, of contiguous elements in row-major order.
std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& shape);

}  // namespace prenorm
