#pragma once

#include <filesystem>

#include "prenorm/module.h"

namespace prenorm {

/// Writes a MultiHeadAttention, FeedForward, EncoderLayer, Encoder or EncoderModel as TorchScript, a program with its
/// weights that Python (`torch.jit.load`) and C++ (`torch::jit::load`) run without prenorm.
///
///   MultiHeadAttention      forward(x, mask=None, need_weights=False) -> (output, weights or None)
///   FeedForward             forward(x)
///   EncoderLayer, Encoder   forward(x, mask=None)
///   EncoderModel            forward(ids, padding=None), with segments forward(ids, padding=None, segment_ids=None)
///
/// `mask` is any dense tensor that AttentionMask takes, but [T,T] where T is B (give [1,T,T]), `padding` [B,T] what
/// AttentionMask::padding takes. The state dict has our keys in our order, ties kept. The file starts in evaluation
/// mode; `train()`, `eval()`, `freeze`, `.double()`, `.half()` and `.to(device)` work on what is loaded. Its tensors are
/// on the CPU, wherever the module is, and no device is named in its code. Inside, `config.json` (an extra file) holds
/// the ModelConfig of an EncoderModel (see saved_config), of the others the name of the module and its options.
///
/// The module, its mode and the random generators stay as they are. The file is replaced atomically and durably: throws
/// Error naming the path when it cannot be written, c10::Error naming a module that has no TorchScript form or is not
/// what the configuration of its model says, all with the old file intact.
void export_torchscript(const torch::nn::Module& module, const std::filesystem::path& path);

/// The same of a module holder, `export_torchscript(model, "model.ts")`.
template <typename Impl>
void export_torchscript(const torch::nn::ModuleHolder<Impl>& module, const std::filesystem::path& path) {
  export_torchscript(static_cast<const torch::nn::Module&>(*module), path);
}

}  // namespace prenorm
