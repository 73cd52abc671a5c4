#pragma once

#include <sstream>
#include <stdexcept>

namespace prenorm {

/// The one exception of the rooms that link no LibTorch (config, tensor_file, params). `what()` is one line that names
/// the value at fault and what is allowed. The LibTorch rooms throw `c10::Error` instead.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws an Error whose message is `parts`, streamed one after the other.
template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

/// Throws as `fail` does unless `condition` holds.
template <typename... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) fail(parts...);
}

}  // namespace prenorm
