#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace prenorm::params {

/// A number of parameters, rows or bytes: 64 bits, and a sum, difference or product that does not fit throws Error.
class Count {
 public:
  constexpr Count(std::int64_t value = 0) : value_(value) {}
  constexpr std::int64_t value() const { return value_; }

  friend Count operator+(Count a, Count b);
  friend Count operator-(Count a, Count b);
  friend Count operator*(Count a, Count b);
  Count& operator+=(Count other) { return *this = *this + other; }

  friend constexpr auto operator<=>(Count, Count) = default;
  friend std::ostream& operator<<(std::ostream& stream, Count count) { return stream << count.value_; }

 private:
  std::int64_t value_;
};

/// A named part of a model and the parts inside it: what the table prints, the JSON carries, and a file is compared
/// with. All counts are of parameters.
struct Component {
  std::string name;
  std::string formula = {};  ///< of one copy, as arithmetic
  Count own = 0;             ///< of one copy, without its children
  std::vector<Component> children = {};
  Count copies = 1;         ///< how many of them the model has, each with weights of its own
  Count active_copies = 1;  ///< how many of them work on one token (fewer than `copies` in a mixture of experts)
  bool embedding = false;   ///< rows that are looked up: tokens, positions, segments
  Count tied = 0;           ///< what a file holds more if it also saves this weight, which is another's
  Count layer_width = 0;    ///< d, where each copy is one Transformer layer; 0 elsewhere

  Count one() const;            ///< parameters of one copy
  Count total() const;          ///< parameters of all copies
  Count active() const;         ///< parameters at work on one token
  Count embeddings() const;     ///< parameters in tables that are looked up
  Count tied_elements() const;  ///< sum of `tied`
  Count layers() const;         ///< L: layers with weights of their own
  Count rule() const;           ///< 12 d^2 L of the lesson
};

}  // namespace prenorm::params
