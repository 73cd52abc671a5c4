#include "prenorm/weights/stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "prenorm/weights/state.h"

namespace prenorm::detail {
namespace {

constexpr std::int64_t kChunkBytes = 16 << 20;

/// Rows to hold in memory at once on the way to where they cannot be read directly.
std::int64_t rows_at_once(const TensorInfo& info) {
  if (info.shape.empty() || info.shape[0] == 0 || !info.strides.empty()) return INT64_MAX;
  const auto row_bytes = static_cast<std::int64_t>(nbytes(info.dtype, info.shape)) / info.shape[0];
  return std::max<std::int64_t>(kChunkBytes / std::max<std::int64_t>(row_bytes, 1), 1);
}

/// Some rows of a tensor, which is contiguous in the file unless they are all.
Tensor read_rows(const TensorFile& file, TensorInfo info, std::int64_t first, std::int64_t rows) {
  if (!info.shape.empty() && rows < info.shape[0]) {
    const std::uint64_t row_bytes = nbytes(info.dtype, info.shape) / static_cast<std::uint64_t>(info.shape[0]);
    info.shape[0] = rows;
    info.begin += static_cast<std::uint64_t>(first) * row_bytes;
    info.end = info.begin + static_cast<std::uint64_t>(rows) * row_bytes;
  }
  Tensor read = torch::empty(info.shape, torch::dtype(*torch_type(info.dtype)));
  file.read(info, read.data_ptr(), read.nbytes());
  return read;
}

/// Calls `use(first row, number of rows)` for pieces of at most `step` rows of a tensor.
template <typename Use>
void for_each_piece(const TensorInfo& info, std::int64_t step, const Use& use) {
  const auto rows = info.shape.empty() ? 1 : info.shape[0];
  step = std::min(step, rows);
  for (std::int64_t first = 0; first < rows; first += step) use(first, std::min(step, rows - first));
}

}  // namespace

void copy_from_file(const TensorFile& file, const TensorInfo& info, const Tensor& to) {
  std::optional<c10::InferenceMode> inference;  // outside of which copy_ refuses a tensor that was made in it
  if (to.is_inference()) inference.emplace();
  if (to.is_cpu() && to.is_contiguous() && to.scalar_type() == torch_type(info.dtype)) {
    file.read(info, to.data_ptr(), to.nbytes());
    if (!to.is_inference()) to.unsafeGetTensorImpl()->bump_version();
    return;
  }
  for_each_piece(info, rows_at_once(info), [&](std::int64_t first, std::int64_t rows) {
    (to.dim() == 0 ? to : to.narrow(0, first, rows)).copy_(read_rows(file, info, first, rows));
  });
}

bool equal_in_file(const TensorFile& file, const TensorInfo& a, const TensorInfo& b) {
  if (&a == &b || a.same_elements(b)) return true;
  if (a.dtype != b.dtype) return false;
  bool equal = true;
  for_each_piece(a, std::min(rows_at_once(a), rows_at_once(b)), [&](std::int64_t first, std::int64_t rows) {
    if (!equal) return;
    const Tensor x = read_rows(file, a, first, rows), y = read_rows(file, b, first, rows);
    equal = std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
  });
  return equal;
}

}  // namespace prenorm::detail
