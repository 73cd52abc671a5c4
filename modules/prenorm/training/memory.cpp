#include "prenorm/training/memory.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "prenorm/training/evaluation.h"

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

/// The sizes of a model, and how many parameters there are of it.
struct Sizes {
  explicit Sizes(const ModelConfig& config)
      : d(number(config.d_model)),
        f(config.d_ff > 0 ? number(config.d_ff) : 4 * d),
        heads(number(config.num_heads)),
        layers(number(config.num_layers)),
        classes(number(config.num_classes)) {
    const auto norm = [&](bool there) { return there ? (config.norm_bias ? 2 * d : d) : 0; };
    const double positions = config.position == Position::learned ? number(config.max_positions) : 0;
    const double biases = (config.attention_bias ? 4 * d : 0) + (config.feed_forward_bias ? f + d : 0);
    layer_matrices = 4 * d * d + 2 * d * f;
    layer = layer_matrices + biases + 2 * norm(true);
    head = classes > 0 ? d * classes + classes : 0;
    all = layers * layer + (config.tie_head ? classes : head) +
          d * (number(config.vocab_size) + positions + number(config.num_segments)) + norm(config.embedding_norm) +
          norm(config.final_norm.value_or(config.norm_placement == NormPlacement::pre));
    largest = d * std::max({number(config.vocab_size), positions, f, 3 * d, classes});
  }

  static double number(std::int64_t value) { return static_cast<double>(value); }

  double d, f, heads, layers, classes;
  double layer_matrices, layer, head, all, largest;  // parameters: of one layer, of the head, of the greatest matrix
};

/// Attention without dropout on its weights is computed in blocks of them: one for each thread in forward, two in
/// backward, in float and, where that is the precision, in bfloat16 too. oneDNN's scratch for each product of bfloat16
/// blocks is not in it: some kilobytes times the threads, on the CPUs that have such products.
double block_bytes(double t, bool half) {
  const double queries = t >= 768 ? 256 : t >= 192 ? 64 : 32;
  return 2 * (half ? 6 : 4) * at::get_num_threads() * std::min(queries, t) * std::min(512.0, t);
}

/// A step's part of `sequences` sequences: what forward keeps for backward, and the most that backward adds to it.
double step_bytes(const ModelConfig& config, Precision precision, double sequences, double t) {
  const Sizes of(config);
  const bool half = precision == Precision::bfloat16, drops = config.dropout > 0;
  const bool attention_drops = config.attention_dropout > 0, relu = config.activation == Activation::relu;
  const double element = half ? 2 : 4;  // the residual stream stays float
  const double d = of.d, f = of.f, weights = 4 * of.heads * t;

  // A layer, for each token. Float: the inputs of the norms, which are the residual stream, and small things: their
  // statistics, the logarithms of softmax's sums, masks. `element`: both normalised, q, k, v, the attended, and that
  // with the padding zeroed; of the feed-forward what the activation (relu: its output) and the second matrix need.
  const double wide = relu && !drops ? 1 : 2;
  double layer = 4 * (2 * d + of.heads + 8) + element * ((attention_drops ? 6 : 7) * d + wide * f);
  // The weights as softmax gives them, their noise and the product, all in float as q, k and v then are.
  if (attention_drops) layer += 3 * weights + (4 - element) * 3 * d;

  // Backward begins at the end, where all layers are still kept. In the last feed-forward: the gradient of the residual
  // stream, and of the wide tensors those before and behind the activation, since what is used is given up;
  // LibTorch sums a bias's gradient in bfloat16 by way of two float copies. In the last attention, when that
  // feed-forward is gone: the gradients of q, k and v, apart and in one, and of the weights.
  double feed_forward = element * (relu && !drops ? 2 : 1) * f;
  if (half && config.feed_forward_bias) feed_forward = (8 + element) * f - element * wide * f;
  double attention = 12 * d + element * (d - wide * f);
  if (attention_drops) attention += weights + element * 6 * d;
  // At the head: the last norm's input and output and a gradient; the logits, their softmax and the gradients of both,
  // of which all but the logits are gone when backward comes to the layers.
  const double logits = sequences * (config.head == Head::token ? t : 1) * 4 * of.classes;
  const double tokens = sequences * t;
  const double embeddings = 4 * d * ((config.embedding_dropout > 0 ? 1 : 0) + (config.embedding_norm ? 1 : 0));
  return tokens * (of.layers * layer + embeddings) + logits +
         std::max({tokens * (4 * d + feed_forward), tokens * (4 * d + attention) + block_bytes(t, half),
                   tokens * 12 * d + 3 * logits});
}

/// An evaluation batch, which keeps nothing: the most that a layer or the head has at once, in float.
double evaluation_bytes(const ModelConfig& config, double sequences, double t) {
  const Sizes of(config);
  const double answers = config.head == Head::token ? of.classes : of.classes / t;
  // In the attention: the embeddings, the residual stream, a norm's output, q, k, v and the attended, thrice where it is
  // zeroed past the lengths. Or the wide tensors before and behind the activation, or two of the logits' size. Beside
  // them ids, targets and answers.
  return sequences * t * (4 * std::max({9 * of.d, 4 * of.d + 2 * of.f, 3 * of.d + 2 * answers}) + 40) +
         (sequences > 0 ? block_bytes(t, false) / 2 : 0);
}

}  // namespace

MemoryEstimate training_memory(const ModelConfig& config, const TrainingOptions& options, std::int64_t batch_size,
                               std::int64_t length, std::int64_t evaluation_size,
                               std::optional<std::int64_t> evaluation_length) {
  const Sizes of(config);
  const bool half = options.precision == Precision::bfloat16;
  const double t = Sizes::number(length), whole = Sizes::number(batch_size);
  const double parts = std::min(Sizes::number(options.accumulate), whole), sequences = std::ceil(whole / parts);
  const double batch = 20 * whole * t;  // ids, targets and whether these count

  // Weights and moments are always there. The gradients appear as backward gives up the activations: first those of the
  // head and of the last layer. Where a batch has parts, those of the part before are there from the beginning, and each is
  // added to. bfloat16 has its own copies of the matrices.
  const double gradients = parts > 1 ? 4 * of.all + (half ? 6 : 4) * of.largest : 4 * (of.head + of.layer);
  const double copies = half ? 2 * (of.layers * of.layer_matrices + of.head) : 0;
  const double step = 12 * of.all + gradients + copies + batch + step_bytes(config, options.precision, sequences, t);
  // After the step all gradients are there. The embeddings' come last, with the gradient of what they gave; later each
  // parameter is asked whether it is finite, by way of its absolute value and three masks.
  const double after = 16 * of.all + 7 * of.largest + batch + 8 * sequences * t * of.d;
  const double judged = Sizes::number(evaluation_length.value_or(length));
  const double evaluated = std::min({Sizes::number(evaluation_size), Sizes::number(kEvaluationSequences),
                                     std::max(1.0, std::floor(Sizes::number(kEvaluationTokens) / judged))});
  const double evaluation = 16 * of.all + evaluation_bytes(config, evaluated, judged);
  const double rest = 1.1;  // of tensors too small or too short-lived to be counted here
  return {.parameters = 16 * of.all, .activations = rest * std::max({step, after, evaluation}) - 16 * of.all};
}

std::optional<double> available_memory(torch::Device device) {
  if (!device.is_cpu()) return gpu_memory(device);
  return least(machine_memory(), least(groups_memory(), address_space()));
}

}  // namespace prenorm
