#include "prenorm/tensor_file/writing.h"

#include <string_view>
#include <unordered_set>

#include "prenorm/error.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {

void check_views(const std::vector<TensorView>& tensors) {
  std::unordered_set<std::string_view> names;
  std::uint64_t total = 0;
  for (const TensorView& tensor : tensors) {
    const InQuotes name(tensor.name);
    require(tensor.name != "__metadata__", "a tensor cannot be named ", name);
    require(is_utf8(tensor.name), "the name ", name, " is not UTF-8");
    require(names.insert(tensor.name).second, "two tensors are named ", name);
    try {
      const std::uint64_t size = nbytes(tensor.dtype, tensor.shape);
      require(!__builtin_add_overflow(total, size, &total), "the sizes overflow 64 bits");
      require(size == 0 || tensor.data != nullptr, "has no data");
    } catch (const Error& error) {
      fail("tensor ", name, ": ", error.what());
    }
  }
}

const TensorView& TiedTensors::first(const TensorView& tensor) {
  if (numel(tensor.shape) == 0) return tensor;
  return *seen_.emplace(std::tuple(tensor.data, tensor.dtype, tensor.shape), &tensor).first->second;
}

}  // namespace prenorm
