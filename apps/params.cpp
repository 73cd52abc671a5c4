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
#include "prenorm/tensor_file/text.h"

namespace {

using prenorm::ModelConfig;
namespace params = prenorm::params;

struct Options {
  std::vector<std::string> inputs;
  params::ConfigOptions model;
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

void print(const std::string& text) {
  std::cout << text << std::flush;
  prenorm::require(std::cout.good(), "cannot write to standard output");
}

void print(const params::Report& report, const Options& options) {
  print(options.json ? params::json(report) : params::table(report, options.depth));
}

/// A line for each model; what is none is named on stderr, and what is wrong in the Error that ends it.
void print_all(const Options& options) {
  const params::PathCounts counts = params::count_paths(options.inputs, options.model);
  const auto joined = [](const std::vector<std::string>& texts, const char* between) {
    std::string line;
    for (const std::string& text : texts) line += (line.empty() ? "" : between) + text;
    return line;
  };
  if (!counts.reports.empty()) print(options.json ? params::json(counts.reports) : params::comparison(counts.reports));
  std::vector<std::string> skipped;
  for (const std::string& path : counts.skipped) skipped.push_back(prenorm::InQuotes(path));
  if (!skipped.empty()) std::cerr << "params: no models, skipped: " << joined(skipped, ", ") << "\n";
  prenorm::require(counts.errors.empty(), joined(counts.errors, "; "));
  prenorm::require(!counts.reports.empty(), "none of the inputs is a model");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Counts the parameters of a model from its dimensions, its config.json, or the header of its file.",
               "params");
  app.add_option("input", options.inputs,
                 "config.json, *.safetensors, *.safetensors.index.json, *.pt, or a folder of them");
  const std::vector<CLI::Option*> of_inputs{
      app.add_option("--model-type", options.model.model_type, "the family, for a config.json that does not name it"),
      app.add_option("--entry", options.model.entry,
                     "of a .pt file with several state dicts, the name of the one to count")};
  app.add_option("--depth", options.depth, "levels of parts to show")->capture_default_str()->check(CLI::Range(0, 100));
  app.add_flag("--json", options.json, "one JSON object, or an array for several inputs (schema: params/report.h)");
  const std::vector<CLI::Option*> dimensions = add_dimensions(app, options);
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  app.callback([&] {
    const auto is_given = [](const CLI::Option* option) { return option->count() > 0; };
    const bool any = std::ranges::any_of(dimensions, is_given);
    if (!options.inputs.empty() && any) throw CLI::ValidationError("give either inputs or dimensions, not both");
    const auto lost = std::ranges::find_if(of_inputs, is_given);
    if (options.inputs.empty() && lost != of_inputs.end()) {
      throw CLI::ValidationError((*lost)->get_name() + " is for an input; it says nothing of dimensions");
    }
    const int known = given("--d-model") + given("--layers") + given("--total");
    if (options.inputs.empty() && known != 2) {
      throw CLI::ValidationError("give an input, or two of --d-model, --layers and --total: the third follows");
    }
  });

  return run_app(app, argc, argv, [&] {
    if (options.inputs.empty()) {
      print(report_dimensions(options, given("--d-model"), given("--layers"), given("--heads")), options);
    } else if (options.inputs.size() == 1) {
      print(params::count_path(options.inputs.front(), options.model), options);
    } else {
      print_all(options);
    }
  });
}
