#pragma once

#include <optional>
#include <string>

#include "prenorm/params/count.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm::params {

/// What a tensor in a file is to someone who counts parameters.
struct TensorRole {
  enum class Kind {
    parameter,
    buffer,   ///< position ids, masks, rotary frequencies, running means
    constant  ///< scales, zero points and tables of a quantized format
  };
  Kind kind = Kind::parameter;
  Count elements = 0;       ///< parameters it stands for: of a packed tensor, after unpacking
  std::string format = {};  ///< of a packed tensor: "bitsandbytes 4-bit", ...
  bool exact = true;        ///< false where the file does not say how many parameters are packed
};

/// Decides by name, type, shape and neighbours; reads the few bytes in which some formats keep the unpacked shape.
TensorRole tensor_role(const TensorFile& file, const TensorInfo& tensor);

}  // namespace prenorm::params
