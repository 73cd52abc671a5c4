// The parameter counter: what is this model really? From dimensions, a config.json, or the header of a file.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "app.h"
#include "prenorm/error.h"
#include "prenorm/params/count_path.h"
#include "prenorm/params/dimensions.h"
#include "prenorm/params/report.h"

namespace {

using prenorm::ModelConfig;
namespace params = prenorm::params;

struct Options {
  std::vector<std::string> inputs;
  std::string model_type;
  std::string total;
  ModelConfig config = params::bare_layers();
  bool final_norm = false;
  bool no_feed_forward_bias = false;
  std::int64_t positions = 0;
  std::int64_t classes = 0;
  int depth = 2;
  bool json = false;
};

/// The options that describe a model by its dimensions.
std::vector<CLI::Option*> add_dimensions(CLI::App& app, Options& options) {
  ModelConfig& config = options.config;
  const auto group = [](CLI::Option* option) { return option->group("Dimensions"); };
  return {
      group(app.add_option("--d-model", config.d_model, "width d")),
      group(app.add_option("--layers", config.num_layers, "layers L")),
      group(
          app.add_option("--total", options.total, "find L from this total (7B, 350M, ...) and d, or d from it and L")),
      group(
          app.add_option("--heads", config.num_heads, "attention heads; they change no count")->capture_default_str()),
      group(app.add_option("--d-ff", config.d_ff, "inner width F; 0 is 4 d")->capture_default_str()),
      group(app.add_flag("--attention-bias", config.attention_bias, "biases in attention")),
      group(app.add_flag("--no-feed-forward-bias", options.no_feed_forward_bias, "no biases in the feed-forward")),
      group(app.add_flag("--final-norm", options.final_norm, "a norm after the last layer")),
      group(app.add_option("--vocab-size", config.vocab_size, "a token table of that many rows")),
      group(app.add_option("--positions", options.positions, "a learned position table of that many rows")),
      group(app.add_option("--segments", config.num_segments, "a segment table of that many rows")),
      group(app.add_option("--classes", options.classes, "a head with that many classes"))};
}

params::Report report_dimensions(Options& options, bool has_width, bool has_layers, bool has_heads) {
  ModelConfig& config = options.config;
  if (!has_heads && config.d_model % config.num_heads != 0) config.num_heads = 1;  // the count is the same
  config.final_norm = options.final_norm;
  config.feed_forward_bias = !options.no_feed_forward_bias;
  prenorm::require(config.vocab_size >= 0, "--vocab-size is ", config.vocab_size, ", a negative number");
  prenorm::require(options.positions >= 0, "--positions is ", options.positions, ", a negative number");
  prenorm::require(options.classes >= 0, "--classes is ", options.classes, ", a negative number");
  config.max_positions = options.positions;
  config.num_classes = options.classes;
  if (options.positions > 0) config.position = prenorm::Position::learned;
  if (options.classes > 0) config.head = prenorm::Head::sequence_first;

  const std::string width = has_width ? "d = " + std::to_string(config.d_model) : "";
  const std::string layers = has_layers ? "L = " + std::to_string(config.num_layers) : "";
  const std::string input = width + (has_width && has_layers ? ", " : "") + layers;
  if (options.total.empty()) {
    params::validate_dimensions(config);
    return params::report_dimensions(input, config);
  }
  const params::Count total = params::parse_total(options.total);
  const auto found = has_width ? params::solve_layers(config, total) : params::solve_width(config, total);
  return params::report_solution("total " + options.total + ", " + input, found, total);
}

void print(const std::vector<params::Report>& reports, const Options& options) {
  if (options.json) {
    std::cout << params::json(reports);
  } else {
    std::cout << (reports.size() == 1 ? params::table(reports.front(), options.depth) : params::comparison(reports));
  }
  std::cout.flush();
  prenorm::require(std::cout.good(), "cannot write to standard output");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Counts the parameters of a model from its dimensions, its config.json, or the header of its file.",
               "params");
  app.add_option("input", options.inputs,
                 "config.json, *.safetensors, *.safetensors.index.json, *.pt, or a folder of them");
  app.add_option("--model-type", options.model_type, "the family, for a config.json that does not name it");
  app.add_option("--depth", options.depth, "levels of parts to show")->capture_default_str()->check(CLI::Range(0, 100));
  app.add_flag("--json", options.json, "one JSON object, or an array for several inputs (schema: params/report.h)");
  const std::vector<CLI::Option*> dimensions = add_dimensions(app, options);
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  app.callback([&] {
    const bool any = std::ranges::any_of(dimensions, [](auto* option) { return option->count() > 0; });
    if (!options.inputs.empty() && any) throw CLI::ValidationError("give either inputs or dimensions, not both");
    const int known = given("--d-model") + given("--layers") + given("--total");
    if (options.inputs.empty() && known != 2) {
      throw CLI::ValidationError("give an input, or two of --d-model, --layers and --total: the third follows");
    }
  });

  return run_app(app, argc, argv, [&] {
    std::vector<params::Report> reports;
    if (options.inputs.empty()) {
      reports.push_back(report_dimensions(options, given("--d-model"), given("--layers"), given("--heads")));
    }
    for (const std::string& input : options.inputs) {
      reports.push_back(params::count_path(input, {.model_type = options.model_type}));
    }
    print(reports, options);
  });
}
