#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prenorm/params/config_count.h"
#include "prenorm/params/count.h"
#include "prenorm/params/packed.h"
#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm::params {

/// A weight that a file holds a second time: an output matrix that is the token table, for instance.
struct Copy {
  std::string name;
  std::string original;
  Count elements;
  bool equal = false;  ///< the bytes are the same wherever they were compared
};

/// What a file of tensors holds, from its header; elements are read only where a copy is suspected, and few of them.
struct FileCount {
  Component tree = {};  ///< modules and tensors by the dots of their names; equal numbered ones as copies of one
  Count parameters = 0;
  Count buffers = 0;  ///< elements that are no parameters, constants of quantized formats among them
  Count bytes = 0;
  std::map<std::string, Count> by_dtype = {};  ///< elements as stored
  std::vector<Copy> copies = {};
  Count layers = 0;  ///< L as the names tell, d the commonest size of matrices in them; 0 when they do not
  Count d_model = 0;
  bool has_experts = false;
  bool exact = true;
  std::vector<std::string> notes = {};
};

/// `groupings` are those of the config.json beside the file.
FileCount count_file(const TensorFile& file, const Groupings& groupings = {});

}  // namespace prenorm::params
