#include "prenorm/params/count_path.h"

namespace prenorm::params {

Report count_path(const std::string& path, const ConfigOptions& options) {
  return report_config(path, load_config(path, options));
}

}  // namespace prenorm::params
