#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "prenorm/config.h"

namespace prenorm {

/// Whose config.json it is. XLM-RoBERTa and CamemBERT are RoBERTa under other names.
enum class Family { prenorm, bert, roberta, distilbert, gpt2 };

template <>
const std::vector<std::pair<std::string, Family>>& enum_names();

/// What the config.json beside a checkpoint says, ours or of BERT, RoBERTa (XLM-RoBERTa, CamemBERT), DistilBERT or
/// GPT-2 in `transformers`, in the terms of this library. Read without LibTorch.
struct PretrainedConfig {
  Family family = Family::prenorm;
  ModelConfig model;              ///< of the base model, without a head (ours: as it is)
  bool token_classifier = false;  ///< `architectures` names a ...ForTokenClassification

  /// A missing size, a field whose value would change the numbers in a way the model cannot follow, and a field that is
  /// neither known nor among `ignored_fields` throw Error naming it. The activation, eps and the dropouts default as in
  /// `transformers`. Dropout stands after each sub-layer and, unlike there, inside the feed-forward block too.
  static PretrainedConfig from_json(std::string_view json, const std::vector<std::string>& ignored_fields = {});

  /// Reads a JSON file; errors name the file.
  static PretrainedConfig load(const std::filesystem::path& path, const std::vector<std::string>& ignored_fields = {});
};

}  // namespace prenorm
