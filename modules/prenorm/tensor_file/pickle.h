#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace prenorm {

/// What a pickle describes, taken literally: a call is recorded, never made.
struct PickleValue {
  enum class Kind {
    other,       ///< None, numbers that are no integers of 64 bits, bytes
    integer,     ///< also True and False
    text,        ///< a string
    list,        ///< a list, tuple or set: items
    dict,        ///< items: key, value, key, value, ...
    global,      ///< text: "module.name"
    foreign,     ///< a global that the reader does not know, or what a call of it would return. text: "module.name"
    call,        ///< items: function, arguments (a list)
    object,      ///< items: class, arguments, and the state once it is set
    persistent,  ///< items: the identifier (PyTorch: a list that describes a storage)
  };
  Kind kind = Kind::other;
  std::int64_t integer = 0;
  std::string_view text = {};
  std::vector<const PickleValue*> items = {};

  bool is(Kind wanted) const { return kind == wanted; }
};

/// A pickle read into values, without executing anything in it.
class Pickle {
 public:
  /// Reads protocols 2 to 5. `known` says of each "module.name" whether it means something to the reader; all else is
  /// foreign, and what is built of it opaque. Throws Error when the bytes are damaged.
  Pickle(std::string bytes, const std::function<bool(std::string_view)>& known);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& root() const { return *root_; }

  /// Every value, in the order in which they stand in the pickle.
  const std::deque<PickleValue>& values() const { return values_; }

 private:
  friend class PickleMachine;

  // Values point at each other, in circles too, and into the bytes: they go all at once.
  const std::string bytes_;
  std::deque<PickleValue> values_;
  std::set<std::string> names_;
  const PickleValue* root_ = nullptr;
};

}  // namespace prenorm
