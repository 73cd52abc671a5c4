#include "prenorm/weights/uninitialized.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>
#include <utility>

namespace prenorm::detail {
namespace {

// LibTorch's modules take neither a type nor "no initial weights", and its default type is one for all threads. So for
// the life of an Uninitialized the dispatcher asks us first, under the key it has for deferred initialisation.
constexpr auto kKey = c10::DispatchKey::DeferredInit;

thread_local std::optional<std::pair<torch::ScalarType, torch::Device>> wanted;

void set_if_none(const c10::OperatorHandle& op, torch::jit::Stack& stack, const char* name, const c10::IValue& value) {
  const auto index = op.schema().argumentIndexWithName(name);
  if (!index) return;
  auto& argument = stack[stack.size() - op.schema().arguments().size() + static_cast<size_t>(*index)];
  if (argument.isNone()) argument = value;
}

void call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  const auto arguments = op.schema().arguments().size();
  if (name == "aten::uniform_" || name == "aten::normal_") {
    stack->resize(stack->size() - arguments + 1);  // the tensor itself is the result
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  if (name == "aten::randn") {
    const auto sizes = (*stack)[stack->size() - arguments].toIntVector();
    stack->resize(stack->size() - arguments);
    stack->emplace_back(torch::empty(sizes, torch::dtype(wanted->first).device(wanted->second)));
    return;
  }
  if (name == "aten::empty") {
    set_if_none(op, *stack, "dtype", wanted->first);
    set_if_none(op, *stack, "device", wanted->second);
  }
  op.callBoxed(stack);
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

}  // namespace

Uninitialized::Uninitialized(torch::ScalarType type, torch::Device device) {
  register_once();
  wanted.emplace(type, device);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

Uninitialized::~Uninitialized() {
  c10::impl::tls_set_dispatch_key_included(kKey, false);
  wanted.reset();
}

}  // namespace prenorm::detail
