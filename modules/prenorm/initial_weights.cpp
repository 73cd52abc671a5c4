#include "prenorm/initial_weights.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <optional>

namespace prenorm::detail {
namespace {

// The key that the dispatcher has for deferred initialisation comes before all others that matter here.
constexpr auto kKey = c10::DispatchKey::DeferredInit;

thread_local Interception* innermost = nullptr;

void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (innermost != nullptr && innermost->answers(op, *stack)) return;
  // What the operation calls in turn comes here again.
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

void register_once() {
  // Never destroyed: the dispatcher it would unregister from may be gone by then.
  static auto* library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&call>());
    return made;
  }();
  (void)library;
}

c10::IValue* argument(const c10::OperatorHandle& op, torch::jit::Stack& stack, const char* name) {
  const auto index = op.schema().argumentIndexWithName(name);
  if (!index) return nullptr;
  return &stack[stack.size() - op.schema().arguments().size() + static_cast<size_t>(*index)];
}

void set_if_none(c10::IValue* argument, const c10::IValue& value) {
  if (argument != nullptr && argument->isNone()) *argument = value;
}

/// Where an operation works: where its first tensor is, else where it is told to.
torch::Device device_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<torch::Device> told;
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device();
    if (value.isDevice()) told = value.toDevice();
  }
  return told.value_or(torch::kCPU);
}

}  // namespace

Interception::Interception() : outer_((register_once(), innermost)), asked_(kKey) {
  innermost = this;
}

Interception::~Interception() {
  innermost = outer_;
}

bool DrawsApart::answers(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) {
  c10::IValue* generator = argument(op, stack, "generator");  // every operation that draws takes one
  if (generator == nullptr || !generator->isNone()) return false;
  const torch::Device device = device_of(op, stack);
  if (!device.is_meta()) *generator = copy_of_default(device);
  return false;
}

at::Generator DrawsApart::copy_of_default(torch::Device device) {
  const auto known = std::ranges::find(copies_, device, &at::Generator::device);
  if (known != copies_.end()) return *known;
  at::Generator shared = at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(shared.mutex());
  return copies_.emplace_back(shared.clone());
}

bool Uninitialized::answers(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) {
  const std::string& name = op.schema().name();
  if (name == "aten::uniform_" || name == "aten::normal_") {
    stack.resize(stack.size() - op.schema().arguments().size() + 1);  // the tensor itself is the result
    return true;
  }
  if (name == "aten::empty") {
    set_if_none(argument(op, stack, "dtype"), type_);
    set_if_none(argument(op, stack, "device"), device_);
  }
  return false;
}

}  // namespace prenorm::detail
