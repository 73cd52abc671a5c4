#include "prenorm/config.h"

#include <fstream>

#include "catch.h"
#include "folder.h"
#include "prenorm/error.h"
#include "throws.h"

namespace config_test {

using prenorm::Error;
using prenorm::ModelConfig;

namespace {

const std::string kMinimal = R"({"model_type": "prenorm", "version": 1, "vocab_size": 10,
  "d_model": 64, "num_heads": 4, "num_layers": 2})";

std::string with(const std::string& from, const std::string& to) {
  std::string json = kMinimal;
  return json.replace(json.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("a configuration survives JSON") {
  const ModelConfig config{.vocab_size = 100,
                           .d_model = 48,
                           .num_heads = 6,
                           .num_layers = 3,
                           .d_ff = 96,
                           .dropout = 0.25,
                           .attention_dropout = 0.125,
                           .embedding_dropout = 0.5,
                           .activation = prenorm::Activation::silu,
                           .norm_placement = prenorm::NormPlacement::post,
                           .norm_eps = 1e-12,
                           .norm_bias = false,
                           .final_norm = true,
                           .attention_bias = true,
                           .feed_forward_bias = false,
                           .position = prenorm::Position::learned,
                           .max_positions = 33,
                           .position_offset = 2,
                           .num_segments = 2,
                           .embedding_norm = true,
                           .causal = true,
                           .head = prenorm::Head::sequence_first,
                           .num_classes = 7};
  CHECK(ModelConfig::from_json(config.to_json()) == config);
  // With biases, as nearly every model has them, a file is what it was before there was a choice.
  CHECK(ModelConfig{.vocab_size = 3}.to_json().find("norm_bias") == std::string::npos);
  CHECK(config.to_json().find("tie_head") == std::string::npos);  // files that older programs read
  ModelConfig tied = config;
  tied.vocab_size = 7;
  tied.tie_head = true;
  CHECK(ModelConfig::from_json(tied.to_json()) == tied);
}

TEST_CASE("missing optional keys take the course's defaults") {
  const ModelConfig expected{.vocab_size = 10, .d_model = 64, .num_heads = 4, .num_layers = 2};
  CHECK(ModelConfig::from_json(kMinimal) == expected);
  CHECK(expected.dropout == 0.1);
  CHECK_FALSE(expected.attention_bias);
  CHECK_FALSE(expected.final_norm.has_value());
}

TEST_CASE("a bad configuration is refused by the name of its field") {
  const auto error = [](const std::string& json) { return message_of<Error>([&] { ModelConfig::from_json(json); }); };
  CHECK(error(with("\"num_heads\": 4", "\"num_heads\": 10")) == "d_model 64 is not divisible by num_heads 10");
  CHECK(error(with("\"vocab_size\": 10,", "")) == "vocab_size is missing");
  CHECK(error(with("\"vocab_size\": 10", "\"vocab_size\": -1")) == "vocab_size is -1, not a positive number");
  CHECK(error(with("\"vocab_size\": 10", "\"vocab_size\": 1.5")) == "vocab_size is 1.5, not a 64-bit integer");
  CHECK(error(with("\"vocab_size\": 10", "\"vocab_size\": 18446744073709551615")) ==
        "vocab_size is 18446744073709551615, not a 64-bit integer");
  CHECK(error(with("\"version\": 1", "\"version\": 2")) == "version is 2; this program reads version 1");
  CHECK(error(with("\"version\": 1", "\"colour\": 3, \"version\": 1")) == "unknown key \"colour\"");
  CHECK(error(with("\"prenorm\"", "\"bert\"")) == "model_type is \"bert\", not \"prenorm\"");
  CHECK(error(with("\"version\": 1", "\"activation\": \"tanh\", \"version\": 1")) ==
        "activation is \"tanh\", not one of gelu, gelu_tanh, relu, silu");
  CHECK(error(with("\"version\": 1", "\"dropout\": 1, \"version\": 1")) == "dropout is 1, not in [0, 1)");
  CHECK(error(with("\"version\": 1", "\"head\": \"token\", \"version\": 1")) ==
        "num_classes is 0, not a positive number");
  CHECK(error(with("\"version\": 1", "\"position_offset\": 2, \"version\": 1")) ==
        "position_offset is 2, which only learned positions have");
  CHECK(error(with("\"version\": 1",
                   "\"position\": \"learned\", \"max_positions\": 2, \"position_offset\": 2, "
                   "\"version\": 1")) == "position_offset is 2, not in [0, max_positions 2)");
  CHECK(error(with("\"version\": 1", "\"causal\": 1, \"version\": 1")) == "causal is 1, not true or false");
  CHECK(error(with("\"version\": 1", "\"tie_head\": true, \"version\": 1")) ==
        "tie_head needs a head with as many classes as there are token ids: num_classes is 0, vocab_size 10");
  CHECK(error("{").find("not valid JSON at byte") == 0);
  CHECK(error(with("\"version\": 1", "\"version\": 1, \"version\": 1")) == "the key \"version\" stands twice");
  CHECK(error("{\"a[\\\"[\": " + std::string(101, '[')) == "JSON nested more than 100 deep at byte 110");
  CHECK(error(with("\"version\": 1", "\"dropout\": 1e999, \"version\": 1")).find("not valid JSON: ") == 0);
  CHECK(error("[]") == "the configuration is not a JSON object");
  CHECK(error("{}") == "model_type is missing");
}

TEST_CASE("a configuration file is written whole or not at all") {
  const Folder folder;
  const auto path = folder.path / "config.json";
  const ModelConfig config{.vocab_size = 3};
  config.save(path);
  CHECK(ModelConfig::load(path) == config);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);

  CHECK_THROWS_AS(config.save(folder.path / "missing" / "config.json"), Error);
  std::ofstream(path) << "{}";
  const std::string error = message_of<Error>([&] { ModelConfig::load(path); });
  CHECK(error.find(path.string()) == 0);
  CHECK(error.find("model_type is missing") != std::string::npos);
  CHECK_THROWS_AS(ModelConfig::load(folder.path), Error);
}

}  // namespace config_test
