#include "prenorm/params/count.h"

#include "prenorm/error.h"

namespace prenorm::params {
namespace {

template <typename Value>
Count sum(const Component& component, Count own, const Value& value) {
  for (const Component& child : component.children) own += value(child);
  return own;
}

}  // namespace

Count operator+(Count a, Count b) {
  std::int64_t result = 0;
  require(!__builtin_add_overflow(a.value_, b.value_, &result), a, " + ", b, " does not fit in 64 bits");
  return result;
}

Count operator-(Count a, Count b) {
  std::int64_t result = 0;
  require(!__builtin_sub_overflow(a.value_, b.value_, &result), a, " - ", b, " does not fit in 64 bits");
  return result;
}

Count operator*(Count a, Count b) {
  std::int64_t result = 0;
  require(!__builtin_mul_overflow(a.value_, b.value_, &result), a, " * ", b, " does not fit in 64 bits");
  return result;
}

Count Component::one() const {
  return sum(*this, own, [](const Component& child) { return child.total(); });
}

Count Component::total() const {
  return copies * one();
}

Count Component::active() const {
  return active_copies * sum(*this, own, [](const Component& child) { return child.active(); });
}

Count Component::embeddings() const {
  return embedding ? total() : copies * sum(*this, 0, [](const Component& child) { return child.embeddings(); });
}

Count Component::tied_elements() const {
  return copies * sum(*this, tied, [](const Component& child) { return child.tied_elements(); });
}

Count Component::layers() const {
  return layer_width > 0 ? copies : sum(*this, 0, [](const Component& child) { return child.layers(); });
}

Count Component::rule() const {
  if (layer_width > 0) return Count(12) * layer_width * layer_width * copies;
  return sum(*this, 0, [](const Component& child) { return child.rule(); });
}

}  // namespace prenorm::params
