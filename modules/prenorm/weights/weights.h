#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "prenorm/module.h"
#include "prenorm/weights/layout.h"

namespace prenorm {

struct LoadOptions {
  Layout layout = {};       ///< how the file names and shapes the tensors; empty: as this library does
  bool strict = true;       ///< off: missing and unexpected keys are reported, not refused
  std::string prefix = {};  ///< "bert": the module's tensors stand under that name, the file's others do not count
  std::string entry = {};   ///< of a .pt file with several state dicts: which one (see TensorFile::open)
  std::function<std::string(const std::string&)> rename = {};  ///< a key of the file (below `prefix`) to the layout's
  bool convert_dtype = true;  ///< between floating types, as Python's load_state_dict; off: any other type is refused
};

/// Keys, as they stand in the file or would, that found no partner.
struct LoadReport {
  std::vector<std::string> missing;     ///< of the module, not in the file
  std::vector<std::string> unexpected;  ///< in the file, without a place in the module
};

/// Copies the tensors of a weights file, or a folder of one (see TensorFile::open), into the parameters and buffers of
/// `module`, whatever their device; requires_grad, ties and the mode stay. Tensors go one at a time from the file to
/// their place, so hardly any memory is needed beside the module's own.
///
/// Of the file's keys, the wrappers' names (`module`, `_orig_mod`, `_fsdp_wrapped_module`,
/// `_checkpoint_wrapped_module`, `_forward_module`, `_module`) go wherever they stand, and LayerNorm.gamma and .beta
/// are .weight and .bias. Tied parameters are loaded once, from any of their names.
///
/// All or nothing: missing and unexpected keys, shapes and types that do not fit are found before the first copy, and
/// named in one c10::Error (one line), ten of each kind, behind the likely cause: another layout or prefix, a part of
/// the module, an optimizer's file. Without `strict`, a file with nothing for the module is still an error. Only a disk
/// that fails half-way leaves a module half-loaded. What is wrong with the file itself throws prenorm::Error.
LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

/// Writes the parameters and buffers of `module`, atomically: as safetensors where `path` ends in .safetensors, as a
/// state dict for Python's torch.load where it ends in .pt, .pth or .bin. Ties are stored once. Throws c10::Error on
/// another ending; prenorm::Error when the file cannot be written, and the old one stays.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& path, const Layout& layout = {});

}  // namespace prenorm
