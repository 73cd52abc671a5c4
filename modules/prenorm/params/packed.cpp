#include "prenorm/params/packed.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

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

bool is_floating(Dtype dtype) {
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
      return false;
    default:
      return true;
  }
}

/// Floating-point tensors that are computed, not learnt. A causal mask is `bias` of attention with 4 dimensions.
bool is_known_buffer(const TensorInfo& tensor) {
  if (is_called(tensor.name, {"inv_freq", "original_inv_freq", "masked_bias", "cos_cached", "sin_cached",
                              "running_mean", "running_var", "_float_tensor", "pe"})) {
    return true;
  }
  return tensor.shape.size() == 4 && ends_with_any(tensor.name, {"attn.bias", "attention.bias"});
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

TensorRole packed(Count elements, const char* format, bool exact = true) {
  return {.elements = elements, .format = format, .exact = exact};
}

/// in*out of a GPTQ (packed along the inputs) or AWQ (along the outputs) matrix; `qzeros` tell the bits.
TensorRole gptq_or_awq(const TensorFile& file, const TensorInfo& tensor, const TensorInfo& scales) {
  const TensorInfo* zeros = neighbour(file, tensor.name, "qweight", "qzeros");
  const TensorInfo* group_index = neighbour(file, tensor.name, "qweight", "g_idx");
  const Count words = numel(tensor.shape);
  if (tensor.shape.size() != 2 || scales.shape.size() != 2) return packed(Count(8) * words, "4-bit", false);
  const std::int64_t out = scales.shape[1];
  if (tensor.shape[1] != out) return packed(Count(tensor.shape[0]) * out, "AWQ");
  if (group_index != nullptr && group_index->shape.size() == 1)
    return packed(Count(group_index->shape[0]) * out, "GPTQ");
  const bool has_bits = zeros != nullptr && zeros->shape.size() == 2 && zeros->shape[1] > 0;
  // out * bits / 32 words of zeros, in * bits / 32 rows of weights: out / words of zeros = inputs in a row.
  if (has_bits) return packed((words * out).value() / zeros->shape[1], "GPTQ");
  return packed(Count(8) * words, "GPTQ", false);
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
  return packed(Count(2) * numel(tensor.shape), "bitsandbytes 4-bit", false);
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
  return packed(per_word * words, "compressed-tensors", tensor.dtype == Dtype::U8);
}

bool is_constant(const TensorFile& file, const std::string& name) {
  if (name.find(".quant_state.") != std::string::npos) return true;
  if (is_called(name,
                {"absmax", "quant_map", "nested_absmax", "nested_quant_map", "SCB", "weight_format", "weight_scale",
                 "weight_scale_inv", "weight_zero_point", "weight_shape", "weight_g_idx", "weight_global_scale",
                 "input_global_scale", "input_scale", "output_scale", "k_scale", "v_scale"})) {
    return true;
  }
  for (const char* own : {"scales", "qzeros", "g_idx"}) {
    if (is_called(name, {own}) && neighbour(file, name, own, "qweight")) return true;
  }
  return name.ends_with("_scales") && neighbour(file, name, "_scales", "_blocks");
}

}  // namespace

TensorRole tensor_role(const TensorFile& file, const TensorInfo& tensor) {
  const std::string& name = tensor.name;
  const Count elements = numel(tensor.shape);
  if (is_constant(file, name)) return {.kind = Kind::constant, .elements = elements};
  if (is_floating(tensor.dtype)) {
    return {.kind = is_known_buffer(tensor) ? Kind::buffer : Kind::parameter, .elements = elements};
  }
  if (is_called(name, {"qweight"})) {
    if (const TensorInfo* scales = neighbour(file, name, "qweight", "scales"))
      return gptq_or_awq(file, tensor, *scales);
  }
  if (is_called(name, {"weight_packed"})) return compressed_tensors(file, tensor);
  if (tensor.dtype == Dtype::U8 && file.find(name + ".absmax")) return bitsandbytes(file, tensor);
  if (name.ends_with("_blocks") && neighbour(file, name, "_blocks", "_scales"))
    return packed(Count(2) * elements, "MXFP4");
  const bool has_scale = is_called(name, {"weight"}) &&
                         (neighbour(file, name, "weight", "SCB") || neighbour(file, name, "weight", "weight_scale"));
  if (has_scale) return packed(elements, "8-bit");
  return {.kind = Kind::buffer, .elements = elements};
}

}  // namespace prenorm::params
