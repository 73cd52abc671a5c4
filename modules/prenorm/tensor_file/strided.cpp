#include "prenorm/tensor_file/strided.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace prenorm {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian, and read as they are");

struct Dimension {
  std::int64_t size;
  std::int64_t from;  // bytes between neighbours in the file
  std::int64_t to;    // bytes between neighbours in the destination
};

/// A window that moves over the file, mostly forwards.
class Window {
 public:
  Window(const FileSource& source, std::uint64_t end) : source_(source), end_(end) {}

  const char* at(std::uint64_t position, std::size_t count) {
    if (position < begin_ || position + count > begin_ + bytes_.size()) {
      bytes_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(end_ - position, 1 << 20)));
      source_.read(position, bytes_.data(), bytes_.size());
      begin_ = position;
    }
    return bytes_.data() + (position - begin_);
  }

 private:
  const FileSource& source_;
  std::uint64_t end_;
  std::uint64_t begin_ = 0;
  std::vector<char> bytes_ = {};
};

/// Visits the elements in the order of the file, so that it is read once, whatever the strides are.
void gather(const FileSource& source, const TensorInfo& info, char* destination) {
  const auto item = dtype_bits(info.dtype) / 8;
  const auto row_major = contiguous_strides(info.shape);
  std::vector<Dimension> dimensions;
  for (std::size_t i = 0; i < info.shape.size(); ++i) {
    if (info.shape[i] > 1) dimensions.push_back({info.shape[i], info.strides[i] * item, row_major[i] * item});
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const Dimension& a, const Dimension& b) { return a.from > b.from; });

  Window window(source, info.end);
  std::vector<std::int64_t> index(dimensions.size(), 0);
  std::uint64_t from = info.begin;
  for (;;) {
    std::memcpy(destination, window.at(from, item), item);
    std::size_t d = dimensions.size();
    for (; d > 0; --d) {
      const Dimension& dimension = dimensions[d - 1];
      if (++index[d - 1] < dimension.size) {
        from += dimension.from;
        destination += dimension.to;
        break;
      }
      index[d - 1] = 0;
      from -= (dimension.size - 1) * dimension.from;
      destination -= (dimension.size - 1) * dimension.to;
    }
    if (d == 0) return;
  }
}

}  // namespace

std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

void read_elements(const FileSource& source, const TensorInfo& info, char* destination) {
  const std::size_t size = nbytes(info.dtype, info.shape);
  if (size == 0) return;
  if (info.strides.empty()) {
    source.read(info.begin, destination, size);
  } else {
    gather(source, info, destination);
  }
  if (info.big_endian) {
    // A complex number is two of its parts.
    const std::size_t width = info.dtype == Dtype::C64 ? 4 : dtype_bits(info.dtype) / 8;
    for (std::size_t i = 0; i < size; i += width) std::reverse(destination + i, destination + i + width);
  }
}

}  // namespace prenorm
