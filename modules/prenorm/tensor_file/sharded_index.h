#pragma once

#include <map>
#include <string>

#include "prenorm/tensor_file/file_source.h"

namespace prenorm {

/// The `*.index.json` beside the shards of a checkpoint.
struct ShardedIndex {
  std::map<std::string, std::string> weight_map;  ///< tensor -> file name of its shard
  std::map<std::string, std::string> metadata;    ///< "metadata", scalars as text
};

/// Throws Error when the text is not JSON, has no weight_map, a key twice, or a shard's name that leaves the folder.
ShardedIndex read_sharded_index(const FileSource& source);

}  // namespace prenorm
