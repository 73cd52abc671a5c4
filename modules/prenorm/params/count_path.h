#pragma once

#include <string>

#include "prenorm/params/report.h"

namespace prenorm::params {

/// Counts whatever `path` is: a config.json, a file of tensors, or a folder with either or both. Throws Error naming
/// the file.
Report count_path(const std::string& path, const ConfigOptions& options = {});

}  // namespace prenorm::params
