#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "prenorm/config.h"
#include "prenorm/error.h"
#include "prenorm/params/count.h"

namespace prenorm::params {

/// The Error of a path that is something else than a model.
class NoModel : public Error {
  using Error::Error;
};

/// What a config.json says about a model, counted.
struct ConfigCount {
  std::string model_type = {};
  std::string architecture = {};  ///< the class that `architectures` names first; empty when there is none
  Component tree = {};
  bool exact = true;  ///< false where the class or a field may make another net of it, as the notes say
  std::vector<std::string> notes = {};  ///< what was not in the file and how it was decided
};

struct ConfigOptions {
  std::string model_type = {};    ///< counts instead of the file's
  std::string architecture = {};  ///< counts instead of the file's
  std::string entry = {};         ///< of a .pt file with several state dicts: which one (see TensorFile::open)
};

/// Counts the model that a config.json describes: our own ("model_type": "prenorm") or one of the families of
/// families.h. Throws Error when it is not JSON (with line and column), the type is missing or unknown (with 12 d^2 L
/// if d and L are there), or a size is missing or impossible (with its key).
ConfigCount count_config(std::string_view json, const ConfigOptions& options = {});

/// The same for a file, or the config.json of a folder; errors name it.
ConfigCount load_config(const std::filesystem::path& path, const ConfigOptions& options = {});

/// The text of a config.json. Throws Error naming the file when it cannot be one.
std::string read_config(const std::filesystem::path& file);

/// The endings of the class names of the other heads that the model of `json` could have ("ForMaskedLM").
std::vector<std::string> known_heads(std::string_view json, const ConfigOptions& options = {});

/// The parts of our own model. Embeddings are left out where vocab_size is 0.
Component count_model(const ModelConfig& config);

}  // namespace prenorm::params
