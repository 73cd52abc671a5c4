#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "prenorm/tensor_file/zip.h"

namespace prenorm {

/// The classes in the code of a TorchScript file, as far as they say which attributes are parameters and buffers.
class ScriptCode {
 public:
  ScriptCode(const ZipReader& zip, std::string folder) : zip_(zip), folder_(std::move(folder)) {}

  /// Whether Python's `state_dict()` has this tensor of a module; true for classes that do not say.
  bool in_state_dict(std::string_view class_name, const std::string& attribute);

 private:
  void read(const std::string& module);

  const ZipReader& zip_;
  const std::string folder_;
  std::uint64_t code_left_ = 100'000'000;  // bytes that may still be read, whatever names the pickle makes up
  std::set<std::string, std::less<>> modules_ = {};
  std::map<std::string, std::set<std::string>, std::less<>> classes_ = {};
};

}  // namespace prenorm
