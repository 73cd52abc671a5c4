#pragma once

#include <torch/torch.h>

// After LibTorch, which redefines CHECK.
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "throws.h"

/// Whether two tensors have the same shape, type and values, to the tolerance of the design: the absolute tolerance
/// of their type (float 1e-5, double 1e-12, bfloat16 and half 2e-2) times max(1, largest expected value). Says where
/// they differ most when they do.
bool close(const torch::Tensor& actual, const torch::Tensor& expected);

/// Whether two tensors are equal bit for bit.
bool same(const torch::Tensor& actual, const torch::Tensor& expected);

/// The first line of the c10::Error that `action` throws, without the backtrace; empty when it throws none.
std::string error_of(const std::function<void()>& action);

/// "key shape" of each parameter and buffer, in the order of the state dict.
std::vector<std::string> state_keys(const torch::nn::Module& module);

/// A module in evaluation mode.
template <typename Holder>
Holder in_eval(Holder module) {
  module->eval();
  return module;
}

/// The gradient with respect to every parameter of `module`, of the sum of squares of `output`, is finite.
bool gradients_finite(torch::nn::Module& module, const torch::Tensor& output);
