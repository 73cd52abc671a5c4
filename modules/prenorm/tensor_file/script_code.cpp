#include "prenorm/tensor_file/script_code.h"

#include <algorithm>

namespace prenorm {
namespace {

/// The strings of a line like `  __parameters__ = ["weight", "bias", ]`.
void add_names(std::string_view line, std::set<std::string>& names) {
  for (;;) {
    const std::size_t begin = line.find('"');
    const std::size_t end = begin == std::string_view::npos ? begin : line.find('"', begin + 1);
    if (end == std::string_view::npos) return;
    names.emplace(line.substr(begin + 1, end - begin - 1));
    line.remove_prefix(end + 1);
  }
}

}  // namespace

bool ScriptCode::in_state_dict(std::string_view class_name, const std::string& attribute) {
  const std::string_view module = class_name.substr(0, class_name.rfind('.'));
  if (modules_.find(module) == modules_.end()) read(std::string(module));
  const auto names = classes_.find(class_name);
  return names == classes_.end() || names->second.contains(attribute);
}

void ScriptCode::read(const std::string& module) {
  modules_.insert(module);
  std::string path = module;
  std::replace(path.begin(), path.end(), '.', '/');
  path = folder_ + "code/" + path + ".py";
  if (!zip_.sizes().contains(path)) return;
  const std::string code = zip_.read(path, code_left_);
  code_left_ -= code.size();
  std::set<std::string> parameters;
  std::string name;
  std::string_view rest = code;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.starts_with("class ")) {
      name = module + "." + std::string(line.substr(6, line.find_first_of("(:") - 6));
    } else if (line.starts_with("  __parameters__ = [")) {
      parameters.clear();
      add_names(line, parameters);
    } else if (line.starts_with("  __buffers__ = [")) {
      add_names(line, parameters);
      classes_[name] = std::move(parameters);
      parameters.clear();
    }
  }
}

}  // namespace prenorm
