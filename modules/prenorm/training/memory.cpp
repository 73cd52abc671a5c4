#include "prenorm/training/memory.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace prenorm {
namespace {

/// The number after `name` in a file of words and numbers; the first one with an empty name.
std::optional<double> number_in(const std::string& path, const std::string& name) {
  std::ifstream stream(path);
  std::string word;
  while (word != name && stream >> word) {
  }
  double value = 0;
  if (stream >> value) return value;
  return std::nullopt;
}

std::optional<double> least(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : (a ? a : b);
}

std::optional<double> machine_memory() {
  const auto kilobytes = number_in("/proc/meminfo", "MemAvailable:");
  return kilobytes ? std::optional(1024 * *kilobytes) : std::nullopt;
}

/// What is left below the limit of a control group (version 2); pages of files give way.
std::optional<double> group_memory(const std::string& group) {
  const std::string folder = "/sys/fs/cgroup" + group + "/memory.";
  const auto most = number_in(folder + "max", ""), now = number_in(folder + "current", "");
  if (!most || !now) return std::nullopt;
  const auto files = [&](const char* kind) { return number_in(folder + "stat", kind).value_or(0); };
  return std::max(0.0, *most - *now + files("active_file") + files("inactive_file"));
}

/// The least of the process's group and those above it.
std::optional<double> groups_memory() {
  std::ifstream stream("/proc/self/cgroup");
  std::optional<double> found = group_memory("");
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string group = line.substr(3); group.size() > 1; group.resize(group.rfind('/'))) {
      found = least(found, group_memory(group));
    }
  }
  return found;
}

std::optional<double> address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const double used = number_in("/proc/self/statm", "").value_or(0) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - used);
}

/// Through the CUDA runtime that a LibTorch with CUDA brings; its headers are not needed to build without.
std::optional<double> gpu_memory(torch::Device device) {
  const auto get_info = reinterpret_cast<int (*)(size_t*, size_t*)>(::dlsym(RTLD_DEFAULT, "cudaMemGetInfo"));
  if (get_info == nullptr) return std::nullopt;
  const c10::DeviceGuard guard(device);
  size_t free = 0, total = 0;
  if (get_info(&free, &total) != 0) return std::nullopt;
  return static_cast<double>(free);
}

double parameter_count(const ModelConfig& config) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double d = number(config.d_model), f = config.d_ff > 0 ? number(config.d_ff) : 4 * d;
  const double positions = config.position == Position::learned ? number(config.max_positions) : 0;
  return number(config.num_layers) * (4 * d * d + 2 * d * f) +
         d * (number(config.vocab_size) + positions + number(config.num_segments) + number(config.num_classes));
}

}  // namespace

MemoryEstimate training_memory(const ModelConfig& config, const TrainingOptions& options, std::int64_t batch_size,
                               std::int64_t length) {
  const double parts = std::min(static_cast<double>(options.accumulate), static_cast<double>(batch_size));
  const double sequences = std::ceil(static_cast<double>(batch_size) / parts), t = static_cast<double>(length);
  const double d = static_cast<double>(config.d_model), h = static_cast<double>(config.num_heads);
  const double f = config.d_ff > 0 ? static_cast<double>(config.d_ff) : 4 * d;
  const double answers = (config.head == Head::token ? t : 1) * static_cast<double>(config.num_classes);
  // Measured on the CPU (tests/python/crash.py): what a layer keeps for each token, and what backward needs meanwhile.
  double kept = 13.5 * d + 2 * f;
  if (config.dropout > 0) kept += 2.5 * d + 1.25 * f;     // masks of one byte, and products
  if (config.attention_dropout > 0) kept += 3.5 * h * t;  // else the weights are never all there at once
  const double element =
      options.precision == Precision::bfloat16 ? 2.5 : 4;  // the residual stream and norms stay float
  return {.parameters = 16 * parameter_count(config),
          .activations = element * sequences * t * (static_cast<double>(config.num_layers) * kept + 2 * d) +
                         4 * sequences * 3 * answers + 48 * static_cast<double>(batch_size) * t};
}

std::optional<double> available_memory(torch::Device device) {
  if (!device.is_cpu()) return gpu_memory(device);
  return least(machine_memory(), least(groups_memory(), address_space()));
}

}  // namespace prenorm
