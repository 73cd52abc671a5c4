#pragma once

#include <torch/torch.h>

#include <vector>

namespace prenorm::detail {

/// While it lives, the dispatcher asks it about each operation of this thread, and of no other; the innermost is asked.
/// LibTorch's modules take neither a type nor a generator nor "no initial weights", and its defaults are one for all
/// threads.
class Interception {
 public:
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;

  /// Changes the arguments on the stack, or puts the result in their place and returns true.
  virtual bool answers(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) = 0;

 protected:
  Interception();
  virtual ~Interception();

 private:
  Interception* outer_;
  c10::impl::IncludeDispatchKeyGuard asked_;
};

/// While it lives, this thread draws from copies of the default random generators: these do not move, and the draws of
/// other threads neither change nor wait for it.
class DrawsApart : public Interception {
 public:
  bool answers(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) override;

 private:
  at::Generator copy_of_default(torch::Device device);

  std::vector<at::Generator> copies_;
};

/// While it lives, the modules that this thread builds get parameters of that type and on that device, whose memory
/// nobody has written yet: nothing is drawn from a random generator and no time is spent on it. What LibTorch sets to
/// constants (norms) is set as ever.
class Uninitialized : public Interception {
 public:
  Uninitialized(torch::ScalarType type, torch::Device device) : type_(type), device_(device) {}
  bool answers(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) override;

 private:
  torch::ScalarType type_;
  torch::Device device_;
};

}  // namespace prenorm::detail
