#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/initial_weights.h"

namespace prenorm {

// Letters of the shape comments: B batch, T sequence length, D d_model, H heads, F d_ff, L layers, V vocabulary,
// C classes. Everything is batch first.

using torch::Tensor;

namespace detail {

/// The parameters of one module, without its children's, as its forward uses them: the member where LibTorch's class
/// has one (assigning a member is how ties are made in C++), else the registered tensor. Throws c10::Error when it calls
/// other modules than are registered, whose parameters are not those that it uses.
std::vector<std::pair<std::string, Tensor*>> own_parameters(const torch::nn::Module& module);

/// Gives `copy`, a fresh clone of `original`, the frozen parameters and the ties (one tensor under several names, as
/// its modules use them) of the original.
void restore_frozen_and_tied(const torch::nn::Module& original, torch::nn::Module& copy);

/// Registers the parameters that `module` and those inside it use in the place of others of their names.
void register_used(const torch::nn::Module& module);

/// Throws c10::Error when parameters that are one tensor in `module` differ in the archive.
void check_ties(const torch::nn::Module& module, torch::serialize::InputArchive& archive);

}  // namespace detail

// What the modules check of their options and inputs; each throws c10::Error naming the value and what is allowed.
void check_positive(const char* name, std::int64_t value);
void check_dropout(const char* name, double probability);
void check_eps(double eps);
/// x is [B,T,D] with this D.
void check_input(const Tensor& x, std::int64_t d_model);

/// Base of every module here. LibTorch's own Cloneable draws new random weights while it clones, unfreezes parameters
/// and separates tied ones; a clone made here is the original over again, and no random generator moves. torch::save and
/// torch::load go by the tensors that the modules use, where LibTorch's own miss those that were assigned to members.
template <typename Derived>
class Cloneable : public torch::nn::Cloneable<Derived> {
 public:
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override {
    const detail::DrawsApart apart;
    auto copy = torch::nn::Cloneable<Derived>::clone(device);
    detail::restore_frozen_and_tied(*this, *copy);
    return copy;
  }

  void save(torch::serialize::OutputArchive& archive) const override {
    detail::register_used(*this);
    torch::nn::Cloneable<Derived>::save(archive);
  }

  void load(torch::serialize::InputArchive& archive) override {
    detail::register_used(*this);
    detail::check_ties(*this, archive);
    torch::nn::Cloneable<Derived>::load(archive);
  }
};

}  // namespace prenorm
