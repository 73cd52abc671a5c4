#pragma once

#include "prenorm/error.h"

namespace prenorm {

/// For `Json::parse`: refuses what is nested more deeply than a recursion over it, such as writing it out, bears.
template <typename Json>
bool refuse_deep(int depth, typename Json::parse_event_t, Json&) {
  require(depth <= 100, "JSON nested more than 100 deep");
  return true;
}

}  // namespace prenorm
