#include <array>
#include <limits>

#include "prenorm/error.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {
namespace {

struct DtypeRow {
  std::string_view name;
  int bits;
};

// One row for each Dtype, in its order.
constexpr std::array<DtypeRow, 22> kDtypes{{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};
static_assert(kDtypes.size() == static_cast<std::size_t>(Dtype::U64) + 1);

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return kDtypes.at(static_cast<std::size_t>(dtype)).name;
}

int dtype_bits(Dtype dtype) {
  return kDtypes.at(static_cast<std::size_t>(dtype)).bits;
}

std::optional<Dtype> find_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::int64_t numel(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    require(size >= 0, "shape ", ShapeText(shape), " has a negative size");
    require(!__builtin_mul_overflow(count, size, &count), "shape ", ShapeText(shape), " overflows 64 bits");
  }
  return count;
}

std::uint64_t nbytes(Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::uint64_t bits = 0;
  const bool overflow = __builtin_mul_overflow(static_cast<std::uint64_t>(numel(shape)),
                                               static_cast<std::uint64_t>(dtype_bits(dtype)), &bits);
  require(!overflow, dtype_name(dtype), " of shape ", ShapeText(shape), " overflows 64 bits");
  require(bits % 8 == 0, dtype_name(dtype), " of shape ", ShapeText(shape), " does not end at a whole byte");
  return bits / 8;
}

bool TensorInfo::same_elements(const TensorInfo& other) const {
  return file == other.file && begin == other.begin && end == other.end && begin != end && dtype == other.dtype &&
         shape == other.shape && strides == other.strides;
}

}  // namespace prenorm
