#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "prenorm/tensor_file/tensor_file.h"

namespace prenorm {

/// Throws Error unless every tensor has a name of its own, a shape that can be stored, and data where it has elements.
void check_views(const std::vector<TensorView>& tensors);

/// Finds tensors that share their elements with one seen before.
class TiedTensors {
 public:
  /// The first tensor seen with the elements of `tensor`, which must outlive this object; itself when it is the first.
  const TensorView& first(const TensorView& tensor);

 private:
  std::map<std::tuple<const void*, Dtype, std::vector<std::int64_t>>, const TensorView*> seen_;
};

}  // namespace prenorm
