#pragma once

#include "prenorm/module.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm::detail {

/// Fills `to`, of the file's shape and any type, strides and device, from a tensor of the file: directly where it can
/// be, else by way of a few megabytes.
void copy_from_file(const TensorFile& file, const TensorInfo& info, const Tensor& to);

/// Whether two tensors of one shape in a file hold the same bytes.
bool equal_in_file(const TensorFile& file, const TensorInfo& a, const TensorInfo& b);

}  // namespace prenorm::detail
