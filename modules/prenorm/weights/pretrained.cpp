#include "prenorm/weights/pretrained.h"

#include <algorithm>
#include <optional>

#include "prenorm/initial_weights.h"
#include "prenorm/pretrained_config.h"
#include "prenorm/saved_config.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/weights/diagnosis.h"
#include "prenorm/weights/state.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

/// Weights bring the configuration that they were saved with: two files cannot be replaced at one moment.
constexpr const char* kConfigKey = "prenorm.config";

Layout layout_of(Family family) {
  switch (family) {
    case Family::bert:
    case Family::roberta:
      return bert_layout();
    case Family::distilbert:
      return distilbert_layout();
    case Family::gpt2:
      return gpt2_layout();
    case Family::prenorm:
      return {};
  }
  TORCH_CHECK(false, "the family has the unknown value ", static_cast<int>(family));
}

/// The name under which models with a head keep the base model.
std::string base_name(Family family) {
  switch (family) {
    case Family::bert:
      return "bert.";
    case Family::roberta:
      return "roberta.";
    case Family::distilbert:
      return "distilbert.";
    case Family::gpt2:
      return "transformer.";
    case Family::prenorm:
      break;
  }
  return "";
}

/// Tables and masks that old versions saved among the weights.
bool is_computed(const std::string& name) {
  return name.ends_with(".position_ids") || name.ends_with(".token_type_ids") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

/// The widest floating type in which the modules compute; float where the file has none.
torch::ScalarType widest_type(const TensorFile& file) {
  std::optional<torch::ScalarType> widest;
  for (const TensorInfo& info : file.tensors()) {
    if (info.dtype != Dtype::F16 && info.dtype != Dtype::BF16 && info.dtype != Dtype::F32 && info.dtype != Dtype::F64) {
      continue;
    }
    const auto type = *detail::torch_type(info.dtype);
    widest = widest ? c10::promoteTypes(*widest, type) : type;
  }
  return widest.value_or(torch::kFloat);
}

/// A token classifier in the file becomes the model's head.
void add_token_head(ModelConfig& config, const TensorFile& file) {
  for (const TensorInfo& info : file.tensors()) {
    if (detail::canonical(info.name) != "classifier.weight" || info.shape.size() != 2) continue;
    config.head = Head::token;
    config.num_classes = info.shape[0];
  }
}

EncoderModel build(const ModelConfig& config, torch::ScalarType type, torch::Device device) {
  const detail::Uninitialized uninitialized(type, device);
  return EncoderModel(config);
}

}  // namespace

EncoderModel from_pretrained(const fs::path& folder, std::vector<std::string>* left_out,
                             const PretrainedOptions& options) {
  PretrainedConfig config = PretrainedConfig::load(folder / "config.json", options.ignored_fields);
  const TensorFile file = TensorFile::open(folder);
  const auto saved = file.metadata().find(kConfigKey);
  if (config.family == Family::prenorm && saved != file.metadata().end()) {
    config.model = ModelConfig::from_json(saved->second);
  }
  if (config.token_classifier) add_token_head(config.model, file);
  // What is built next, without memory yet, costs time for each layer that the config claims.
  TORCH_CHECK(config.model.num_layers <= std::ssize(file.tensors()), folder.string(), ": config.json says ",
              config.model.num_layers, " layers, the weights have ", file.tensors().size(), " tensors");

  LoadOptions loading{.layout = layout_of(config.family), .strict = config.family == Family::prenorm};
  loading.rename = [base = base_name(config.family)](const std::string& key) {
    return key.starts_with(base) ? key.substr(base.size()) : key;
  };
  const auto type = widest_type(file);
  const auto report =
      detail::check_state(detail::state_entries(*build(config.model, type, torch::kMeta)), folder, loading);
  TORCH_CHECK(report.missing.empty(), folder.string(),
              " does not hold the model of config.json: missing keys: ", detail::listed(report.missing));
  EncoderModel model = build(config.model, type, torch::kCPU);
  load_weights(*model, folder, loading);
  if (left_out != nullptr) {
    *left_out = report.unexpected;
    std::erase_if(*left_out, is_computed);
  }
  model->eval();
  return model;
}

void save_pretrained(const EncoderModel& model, const fs::path& folder) {
  const ModelConfig config = saved_config(*model);
  std::error_code error;
  fs::create_directories(folder, error);
  TORCH_CHECK(!error, folder.string(), " cannot be made a folder: ", error.message());
  detail::save_state(detail::state_entries(*model), folder / "model.safetensors", {}, {{kConfigKey, config.to_json()}});
  config.save(folder / "config.json");
}

}  // namespace prenorm
