#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prenorm/module.h"

namespace prenorm::script {

/// What one of our modules, or of LibTorch's that ours are made of, is in TorchScript, beside its parameters and its
/// children, which keep their names.
struct Definition {
  std::string name;  ///< of the class
  std::string code;  ///< the methods, in Python's syntax
  std::vector<std::pair<std::string, c10::IValue>> attributes = {};
};

/// Throws c10::Error naming a module that has no TorchScript form.
Definition definition(const torch::nn::Module& module);

/// The options of a module as JSON: `config.json` of an export. Throws as `definition` does.
std::string config_json(const torch::nn::Module& module);

}  // namespace prenorm::script
