#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "prenorm/model.h"

namespace prenorm {

struct PretrainedOptions {
  /// Fields of config.json that from_pretrained does not know and shall pass over: the caller knows that they leave the
  /// numbers alone.
  std::vector<std::string> ignored_fields = {};
};

/// The model of a folder that `save_pretrained` wrote, or that holds the config.json and the weights (see
/// TensorFile::open) of a BERT, RoBERTa (XLM-RoBERTa, CamemBERT), DistilBERT or GPT-2 of `transformers`; in evaluation
/// mode, on the CPU, in the widest floating type of the file. No initial weights are drawn.
///
/// Of those families it is the base model, whose hidden states `inspect` gives, and with it the classifier of
/// ...ForTokenClassification as the token head. What else the file holds, poolers and other heads, goes by name into
/// `left_out`; load_weights with such a name as `prefix` brings it into a module of the caller's. RoBERTa counts
/// positions from the first token, so pad on the right.
///
/// Throws prenorm::Error naming the field of config.json that is not supported, c10::Error when the weights do not fit.
EncoderModel from_pretrained(const std::filesystem::path& folder, std::vector<std::string>* left_out = nullptr,
                             const PretrainedOptions& options = {});

/// Writes model.safetensors and config.json into `folder`, which is made if missing, each atomically. The weights hold
/// the configuration too, and from_pretrained goes by that: a save that is cut between the files leaves one whole
/// model. Throws c10::Error as `saved_config` does, before anything is written, where the model is not what its
/// configuration says.
void save_pretrained(const EncoderModel& model, const std::filesystem::path& folder);

}  // namespace prenorm
