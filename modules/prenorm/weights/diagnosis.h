#pragma once

#include <string>
#include <vector>

#include "prenorm/weights/weights.h"

namespace prenorm::detail {

/// What is likely wrong when the tensors `ours` of a module do not find their keys among `theirs` of a file: another
/// layout or prefix, a part of the module, an optimizer's file. Names the option that mends it; empty when nothing
/// tells.
std::string likely_cause(const std::vector<std::string>& ours, const std::vector<std::string>& theirs,
                         const LoadOptions& options);

/// For a message: at most ten of the names, in double quotes where asked for, and how many more there are.
std::string listed(const std::vector<std::string>& names, bool quoted = true);

}  // namespace prenorm::detail
