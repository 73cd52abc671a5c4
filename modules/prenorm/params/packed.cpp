#include "prenorm/params/packed.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

#include "prenorm/json.h"

namespace prenorm::params {
namespace {

using Kind = TensorRole::Kind;

constexpr std::uint64_t kMaxBlob = 64 << 10;

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

/// The last part of a dotted name is one of these.
bool is_called(std::string_view name, std::initializer_list<std::string_view> names) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return std::find(names.begin(), names.end(), last) != names.end();
}

bool is_integer(Dtype dtype) {
  switch (dtype) {
    case Dtype::BOOL:
    case Dtype::U8:
    case Dtype::I8:
    case Dtype::I16:
    case Dtype::U16:
    case Dtype::I32:
    case Dtype::U32:
    case Dtype::I64:
    case Dtype::U64:
      return true;
    default:
      return false;
  }
}

/// A causal mask under the name of a bias: one square matrix, as no learnt bias is.
bool is_causal_bias(const TensorInfo& tensor) {
  const std::vector<std::int64_t>& shape = tensor.shape;
  const std::size_t size = shape.size();
  const bool in_attention = size == 4 || tensor.name.find("att") != std::string::npos;
  return size >= 2 && in_attention && is_called(tensor.name, {"bias"}) && shape[size - 1] == shape[size - 2] &&
         std::all_of(shape.begin(), shape.end() - 2, [](std::int64_t count) { return count == 1; });
}

/// What is computed, not learnt, of whatever type, by the names under which it is saved.
bool is_known_buffer(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  const std::size_t dot = name.rfind('.');
  const std::string_view module = dot == std::string_view::npos ? "" : name.substr(0, dot);
  const bool rotary = module.find("rotary") != std::string_view::npos || module.find("rope") != std::string_view::npos;
  return (rotary && !is_called(name, {"weight", "bias"})) || is_causal_bias(tensor) ||
         is_called(name, {"masked_bias",
                          "tril",
                          "triu",
                          "causal",  // masks
                          "freqs",
                          "freqs_cos",
                          "freqs_sin",
                          "cos",
                          "sin",
                          "rope",
                          "rope_freqs",  // rotary positions
                          "pe",
                          "pos_enc",
                          "pos_encoding",
                          "pos_table",
                          "position_encoding",  // sinusoids
                          "position_encodings",
                          "positional_encoding",
                          "positional_encodings",
                          "_float_tensor",
                          "alibi",
                          "slopes",
                          "alibi_slopes",
                          "relative_position_index",
                          "relative_coords_table",
                          "running_mean",
                          "running_var",
                          "num_batches_tracked",
                          "final_logits_bias",  // statistics
                          "pixel_mean",
                          "pixel_std",
                          "cache_k",
                          "cache_v",
                          "betas",
                          "_extra_state"}) ||
         ends_with_any(name, {"mask", "_ids", "inv_freq", "freqs_cis", "_cos", "_sin", "_cache", "_cached",
                              "alphas_cumprod", "embed_positions.weights"});
}

const TensorInfo* neighbour(const TensorFile& file, const std::string& name, std::string_view own,
                            std::string_view other) {
  return file.find(name.substr(0, name.size() - own.size()) + std::string(other));
}

template <typename Value>
std::vector<Value> read_small(const TensorFile& file, const TensorInfo& tensor) {
  const std::uint64_t bytes = nbytes(tensor.dtype, tensor.shape);
  if (bytes > kMaxBlob) return {};
  std::vector<Value> values(static_cast<std::size_t>(bytes) / sizeof(Value));
  file.read(tensor, values.data(), values.size() * sizeof(Value));
  return values;
}

TensorRole packed(Count elements, const char* format, const char* assumption = "") {
  return {.elements = elements, .format = format, .assumption = assumption};
}

constexpr const char* kFourBits = "4 bits each";

/// in*out of a GPTQ (packed along the inputs) or AWQ (along the outputs) matrix; `qzeros` tell the bits.
TensorRole gptq_or_awq(const TensorFile& file, const TensorInfo& tensor, const TensorInfo& scales) {
  const TensorInfo* zeros = neighbour(file, tensor.name, "qweight", "qzeros");
  const TensorInfo* group_index = neighbour(file, tensor.name, "qweight", "g_idx");
  const Count words = numel(tensor.shape);
  if (tensor.shape.size() != 2 || scales.shape.size() != 2) return packed(Count(8) * words, "4-bit", kFourBits);
  const std::int64_t out = scales.shape[1];
  if (tensor.shape[1] != out) return packed(Count(tensor.shape[0]) * out, "AWQ");
  if (group_index != nullptr && group_index->shape.size() == 1)
    return packed(Count(group_index->shape[0]) * out, "GPTQ");
  const bool has_bits = zeros != nullptr && zeros->shape.size() == 2 && zeros->shape[1] > 0;
  // out * bits / 32 words of zeros, in * bits / 32 rows of weights: out / words of zeros = inputs in a row.
  if (has_bits) return packed((words * out).value() / zeros->shape[1], "GPTQ");
  return packed(Count(8) * words, "GPTQ", kFourBits);
}

/// The unpacked shape is text in a tensor of its own.
TensorRole bitsandbytes(const TensorFile& file, const TensorInfo& tensor) {
  for (const char* kind : {"nf4", "fp4"}) {
    const TensorInfo* state = file.find(tensor.name + ".quant_state.bitsandbytes__" + kind);
    if (state == nullptr) continue;
    const std::vector<char> text = read_small<char>(file, *state);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("shape") || !json["shape"].is_array()) continue;
    Count elements = 1;
    for (const auto& size : json["shape"]) {
      elements = elements * (size.is_number_integer() ? size.get<std::int64_t>() : 0);
    }
    // Two to a byte, an odd one filled up: anything else is not the shape of this tensor.
    const Count bytes = numel(tensor.shape);
    if (elements > 0 && (elements.value() + 1) / 2 == bytes.value()) return packed(elements, "bitsandbytes 4-bit");
  }
  return packed(Count(2) * numel(tensor.shape), "bitsandbytes 4-bit", kFourBits);
}

TensorRole compressed_tensors(const TensorFile& file, const TensorInfo& tensor) {
  const Count per_word = dtype_bits(tensor.dtype) / 4;
  const Count words = numel(tensor.shape);
  const TensorInfo* shape = neighbour(file, tensor.name, "weight_packed", "weight_shape");
  if (shape != nullptr && (shape->dtype == Dtype::I64 || shape->dtype == Dtype::I32)) {
    Count elements = 1;
    std::size_t sizes = 0;
    const auto multiply = [&](const auto& values) {
      sizes = values.size();
      for (const auto size : values) elements = elements * Count(size);
    };
    if (shape->dtype == Dtype::I64) multiply(read_small<std::int64_t>(file, *shape));
    if (shape->dtype == Dtype::I32) multiply(read_small<std::int32_t>(file, *shape));
    // 2 to 8 bits each.
    const bool plausible =
        elements > 0 && elements <= Count(4) * per_word * words && per_word * words <= Count(8) * elements;
    if (sizes > 0 && plausible) return packed(elements, "compressed-tensors");
  }
  // Without a shape: two 4-bit floats to a byte say all; integers may have another width.
  return packed(per_word * words, "compressed-tensors", tensor.dtype == Dtype::U8 ? "" : kFourBits);
}

/// out*in of MLX's words of 32 bits, if it is that. They and the scales give the bits of a group, its size times the
/// bits of a parameter, which several groupings share: a config.json has to tell.
std::optional<TensorRole> mlx(const TensorFile& file, const TensorInfo& tensor, const Groupings& told) {
  const std::string& name = tensor.name;
  if (tensor.dtype != Dtype::U32 || !is_called(name, {"weight"}) || tensor.shape.empty()) return std::nullopt;
  const TensorInfo* scales = neighbour(file, name, "weight", "scales");
  const TensorInfo* biases = neighbour(file, name, "weight", "biases");
  if (scales == nullptr || scales->shape.size() != tensor.shape.size()) return std::nullopt;
  const Count row = Count(32) * tensor.shape.back();
  const std::int64_t groups = scales->shape.back();
  const bool alike = std::equal(tensor.shape.begin(), tensor.shape.end() - 1, scales->shape.begin());
  // 4 and 8-bit floats have no biases, but scales of 8 bits.
  const bool typed = biases ? biases->shape == scales->shape : scales->dtype == Dtype::U8;
  if (!alike || !typed || groups == 0 || row.value() % groups != 0) return std::nullopt;
  const std::int64_t bits_of_group = row.value() / groups;

  const auto by_name = told.find(name.substr(0, name.rfind('.')));
  const auto entry = by_name != told.end() ? by_name : told.find("");
  if (entry != told.end() && Count(entry->second.size) * entry->second.bits == bits_of_group) {
    return packed(Count(numel(scales->shape)) * entry->second.size, "MLX");
  }
  for (const std::int64_t size : {biases ? 64 : 32, biases ? 32 : 16, 128}) {  // the default first
    const std::int64_t bits = bits_of_group / size;
    if (bits_of_group % size != 0 || bits < 2 || bits > 8 || bits == 7) continue;
    TensorRole role = packed(Count(numel(scales->shape)) * size, "MLX");
    role.assumption = "groups of " + std::to_string(size);
    return role;
  }
  return std::nullopt;
}

/// Two to a byte, sixteen to a scale.
bool is_nvfp4(const TensorInfo& tensor, const TensorInfo* scale) {
  return scale != nullptr && tensor.dtype == Dtype::U8 && scale->dtype == Dtype::F8_E4M3 && !tensor.shape.empty() &&
         scale->shape.size() == tensor.shape.size() && Count(8) * scale->shape.back() == tensor.shape.back();
}

/// Integers that nothing says what they are: a matrix, or what is called a weight.
bool may_be_packed(const TensorInfo& tensor) {
  if (tensor.dtype == Dtype::BOOL) return false;
  const bool weight = tensor.name.find("weight") != std::string::npos;
  const bool wide = tensor.dtype == Dtype::I64 || tensor.dtype == Dtype::U64;
  return weight || (tensor.shape.size() > 1 && !wide);
}

bool is_constant(const TensorFile& file, const std::string& name, const Groupings& told) {
  if (name.find(".quant_state.") != std::string::npos) return true;
  if (is_called(name,
                {"absmax", "quant_map", "nested_absmax", "nested_quant_map", "SCB", "weight_format", "weight_scale",
                 "weight_scale_2", "weight_scale_inv", "weight_zero_point", "weight_shape", "weight_g_idx",
                 "weight_global_scale", "input_global_scale", "input_scale", "output_scale", "k_scale", "v_scale"})) {
    return true;
  }
  for (const char* own : {"scales", "qzeros", "g_idx"}) {
    if (is_called(name, {own}) && neighbour(file, name, own, "qweight")) return true;
  }
  for (const char* own : {"scales", "biases"}) {
    const TensorInfo* weight = is_called(name, {own}) ? neighbour(file, name, own, "weight") : nullptr;
    if (weight != nullptr && mlx(file, *weight, told)) return true;
  }
  return name.ends_with("_scales") && neighbour(file, name, "_scales", "_blocks");
}

}  // namespace

Groupings mlx_groupings(std::string_view config_json) {
  Groupings groupings;
  const SortedJson config = SortedJson::parse(config_json, nullptr, false);
  if (!config.is_object() || !config.contains("quantization")) return groupings;
  const SortedJson& fields = config["quantization"];
  const auto add = [&](const std::string& module, const SortedJson& own) {
    const auto number = [&](const char* name) -> std::int64_t {
      const SortedJson value = own.value(name, fields.value(name, SortedJson()));
      return value.is_number_unsigned() && value <= 1024 ? value.get<std::int64_t>() : 0;
    };
    groupings[module] = {number("group_size"), number("bits")};
  };
  if (!fields.is_object()) return groupings;
  add("", fields);
  for (const auto& [name, value] : fields.items()) {
    if (value.is_object()) add(name, value);
  }
  return groupings;
}

TensorRole tensor_role(const TensorFile& file, const TensorInfo& tensor, const Groupings& told) {
  const std::string& name = tensor.name;
  const Count elements = numel(tensor.shape);
  if (is_constant(file, name, told)) return {.kind = Kind::constant, .elements = elements};
  if (is_known_buffer(tensor)) return {.kind = Kind::buffer, .elements = elements};
  if (!is_integer(tensor.dtype)) return {.elements = elements};
  if (is_called(name, {"qweight"})) {
    if (const TensorInfo* scales = neighbour(file, name, "qweight", "scales"))
      return gptq_or_awq(file, tensor, *scales);
  }
  if (is_called(name, {"weight_packed"})) return compressed_tensors(file, tensor);
  if (tensor.dtype == Dtype::U8 && file.find(name + ".absmax")) return bitsandbytes(file, tensor);
  if (tensor.dtype == Dtype::U8 && name.ends_with("_blocks") && neighbour(file, name, "_blocks", "_scales"))
    return packed(Count(2) * elements, "MXFP4");
  if (const auto role = mlx(file, tensor, told)) return *role;
  if (is_called(name, {"weight"})) {
    const TensorInfo* scale = neighbour(file, name, "weight", "weight_scale");
    if (is_nvfp4(tensor, scale)) return packed(Count(2) * elements, "NVFP4");
    if (tensor.dtype == Dtype::I8 && (scale || neighbour(file, name, "weight", "SCB")))
      return packed(elements, "8-bit");
  }
  if (may_be_packed(tensor)) return packed(elements, "a packing that is not known", "one parameter an integer");
  return {.kind = Kind::buffer, .elements = elements};
}

}  // namespace prenorm::params
