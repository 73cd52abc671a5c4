#pragma once

#include <torch/torch.h>

namespace prenorm::detail {

/// While it lives, the modules that this thread builds get parameters of that type and on that device, whose memory
/// nobody has written yet: nothing is drawn from a random generator and no time is spent on it. What LibTorch sets to
/// constants (norms) is set as ever.
class Uninitialized {
 public:
  Uninitialized(torch::ScalarType type, torch::Device device);
  ~Uninitialized();
  Uninitialized(const Uninitialized&) = delete;
  Uninitialized& operator=(const Uninitialized&) = delete;
};

}  // namespace prenorm::detail
