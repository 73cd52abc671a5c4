#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace prenorm {

// Letters of the shape comments: B batch, T sequence length, D d_model, H heads, F d_ff, L layers, V vocabulary,
// C classes. Everything is batch first.

using torch::Tensor;

namespace detail {

/// Puts the CPU's random generator, from which initial weights are drawn, back on destruction to where it stood.
class GeneratorKept {
 public:
  GeneratorKept();
  ~GeneratorKept();
  GeneratorKept(const GeneratorKept&) = delete;
  GeneratorKept& operator=(const GeneratorKept&) = delete;

 private:
  Tensor state_;
};

/// The parameters of one module, without its children's, as its forward uses them: the member where LibTorch's class
/// has one (assigning a member is how ties are made in C++), else the registered tensor.
std::vector<std::pair<std::string, Tensor*>> own_parameters(const torch::nn::Module& module);

/// Gives `copy`, a fresh clone of `original`, the frozen parameters and the ties (one tensor under several names, as
/// its modules use them) of the original.
void restore_frozen_and_tied(const torch::nn::Module& original, torch::nn::Module& copy);

}  // namespace detail

// What the modules check of their options and inputs; each throws c10::Error naming the value and what is allowed.
void check_positive(const char* name, std::int64_t value);
void check_dropout(const char* name, double probability);
void check_eps(double eps);
/// x is [B,T,D] with this D.
void check_input(const Tensor& x, std::int64_t d_model);

/// Base of every module here. LibTorch's own Cloneable draws new random weights while it clones, unfreezes parameters
/// and separates tied ones; a clone made here is the original over again, and no random generator moves.
template <typename Derived>
class Cloneable : public torch::nn::Cloneable<Derived> {
 public:
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override {
    const detail::GeneratorKept kept;
    auto copy = torch::nn::Cloneable<Derived>::clone(device);
    detail::restore_frozen_and_tied(*this, *copy);
    return copy;
  }
};

}  // namespace prenorm
