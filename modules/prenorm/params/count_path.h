#pragma once

#include <string>

#include "prenorm/params/report.h"

namespace prenorm::params {

/// Counts whatever `path` is: a config.json, a file of tensors, or a folder with either or both. Throws Error naming
/// the file.
Report count_path(const std::string& path, const ConfigOptions& options = {});

/// What several paths are. Those that are no models, such as the metrics in the folder of a run, are skipped.
struct PathCounts {
  std::vector<Report> reports = {};
  std::vector<std::string> skipped = {};
  std::vector<std::string> errors = {};  ///< one line each
};

/// The same for several, of which any may fail.
PathCounts count_paths(const std::vector<std::string>& paths, const ConfigOptions& options = {});

}  // namespace prenorm::params
