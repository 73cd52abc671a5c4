#pragma once

#include <map>
#include <string>
#include <string_view>

#include "prenorm/params/count.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm::params {

/// What a tensor in a file is to someone who counts parameters.
struct TensorRole {
  enum class Kind {
    parameter,
    buffer,   ///< position ids, masks, rotary tables, running means: what never trains
    constant  ///< scales, zero points and tables of a quantized format
  };
  Kind kind = Kind::parameter;
  Count elements = 0;           ///< parameters it stands for: of a packed tensor, after unpacking
  std::string format = {};      ///< of a packed tensor: "bitsandbytes 4-bit", ...
  std::string assumption = {};  ///< where nothing says how many parameters are packed: "4 bits each"
};

/// How MLX packs a row: groups of `size` parameters, of `bits` each, share a scale.
struct Grouping {
  std::int64_t size = 0;
  std::int64_t bits = 0;
};

/// By the names of modules; "" for all others.
using Groupings = std::map<std::string, Grouping>;

/// What a config.json says under "quantization"; nothing when it does not, or is none.
Groupings mlx_groupings(std::string_view config_json);

/// Decides by name, type, shape and neighbours; reads the few bytes in which some formats keep the unpacked shape.
TensorRole tensor_role(const TensorFile& file, const TensorInfo& tensor, const Groupings& groupings);

}  // namespace prenorm::params
