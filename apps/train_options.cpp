#include "train_options.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <sstream>
#include <utility>

#include "option_file.h"
#include "prenorm/error.h"
#include "prenorm/tensor_file/text.h"
#include "train_paths.h"

namespace {

using namespace prenorm;

struct TaskHelp {
  TaskKind kind;
  std::int64_t steps;  // in which it is learned with the other defaults; parity stays hard
  const char* what;
};

constexpr const char* kDataGroup = "Data of your own, in place of a task";

constexpr TaskHelp kTasks[]{
    {TaskKind::copy, 500, "the sequence itself"},
    {TaskKind::reverse, 2000, "the symbols from last to first"},
    {TaskKind::sort, 1200, "the symbols in ascending order"},
    {TaskKind::histogram, 1500, "for each position, how often its symbol occurs in the sequence"},
    {TaskKind::majority, 1000, "one answer: do symbols of the upper half prevail? odd lengths only"},
    {TaskKind::parity, 3000, "one answer: is the sum of the symbols odd? stays hard"},
    {TaskKind::brackets, 3000, "one answer: do the brackets match? half do, half nearly do; hard"}};
constexpr std::int64_t kTextSteps = 2000;

CLI::Validator validator(std::function<std::string(std::string&)> check) {
  return CLI::Validator(std::move(check), "");
}

const CLI::Validator kPath = validator([](std::string& path) { return path.empty() ? "an empty path" : ""; });

/// A run that is resumed elsewhere finds its files. What ".." means is left to the system.
std::string make_absolute(std::string& path) {
  if (path.empty()) return "an empty path";
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (error) return path + " is in no folder: " + error.message();
  path = absolute.string();
  return is_utf8(path) ? "" : "the path is not UTF-8";
}
const CLI::Validator kAbsolute = validator(make_absolute);
const CLI::Validator kScript = validator(
    [](std::string& path) { return path.starts_with(kRunFolder + std::string("/")) ? "" : make_absolute(path); });

/// Of what is a number; `std::stod` would throw where it is one of the least.
double number(const std::string& text) {
  return std::strtod(text.c_str(), nullptr);
}
const CLI::Validator kPositive =
    validator([](std::string& text) { return number(text) > 0 ? "" : text + " is not a positive number"; });
const CLI::Validator kNotNegative =
    validator([](std::string& text) { return number(text) >= 0 ? "" : text + " is negative"; });

std::int64_t default_steps(TaskKind kind) {
  return std::ranges::find(kTasks, kind, &TaskHelp::kind)->steps;
}

std::string help_on_tasks() {
  std::ostringstream help;
  help << "Tasks (default steps in brackets; every task's defaults train without dropout):\n";
  for (const auto& [kind, steps, what] : kTasks) {
    help << "  " << std::left << std::setw(11) << enum_name(kind) << what << " [" << steps << "]\n";
  }
  help << "\nData of your own: lines `input<TAB>target`, tokens separated by spaces (or --chars); as many answers as "
          "tokens, or one label ["
       << kTextSteps << "]\n";
  help << "\nExamples:\n"
          "  train                                     learns to sort\n"
          "  train --task reverse --out runs/reverse   keeps the model, its checkpoints and what was measured\n"
          "  train --resume runs/reverse               goes on after Ctrl-C, a crash or with more --steps\n"
          "  train --train a.txt --valid b.txt --out runs/mine     then: predict runs/mine c.txt\n";
  return help.str();
}

void add_task_options(CLI::App& app, TrainOptions& options) {
  const auto grouped = [](CLI::Option* option) { return option->group("Task"); };
  TaskOptions& task = options.task;
  grouped(add_choice(app, "--task", task.kind, "What to learn (see below)"));
  grouped(app.add_option("--symbols", task.symbols, "Number of different symbols"));
  grouped(app.add_option("--min-length", task.min_length, "Shortest sequence, in symbols"));
  grouped(app.add_option("--max-length", task.max_length, "Longest sequence, in symbols; lengths are uniform"));
  grouped(app.add_option("--max-depth", task.max_depth, "Deepest nesting of brackets"));
}

void add_data_options(CLI::App& app, TrainOptions& options) {
  const auto grouped = [](CLI::Option* option) { return option->group(kDataGroup); };
  grouped(app.add_option("--train", options.text.train, "File of lines `input<TAB>target` to train on"))
      ->transform(kAbsolute);
  grouped(app.add_option("--valid", options.text.valid, "File of such lines to judge by"))->transform(kAbsolute);
  grouped(app.add_flag_callback(
      "--chars", [&options] { options.text.split = Vocabulary::Split::chars; },
      "Each character of the input is a token"));
  grouped(add_choice(app, "--answers", options.text.answers, "One for each token or one for the sequence"));
  grouped(app.add_flag("--skip-header", options.text.skip_header, "Line 1 of both files is no example"));
}

void add_model_options(CLI::App& app, TrainOptions& options) {
  ModelConfig& model = options.model;
  const auto grouped = [](CLI::Option* option) { return option->group("Model"); };
  grouped(app.add_option("--d-model", model.d_model, "Width of the residual stream"));
  grouped(app.add_option("--heads", model.num_heads, "Attention heads; divides --d-model"));
  grouped(app.add_option("--layers", model.num_layers, "Encoder layers"));
  grouped(app.add_option("--d-ff", model.d_ff, "Width inside the feed-forward block; 0: 4 times --d-model"));
  grouped(app.add_option("--dropout", model.dropout,
                         "Probability of dropping after each sub-layer and inside the "
                         "feed-forward block"));
  grouped(
      app.add_option("--attention-dropout", model.attention_dropout, "Probability of dropping an attention weight"));
  grouped(
      app.add_option("--embedding-dropout", model.embedding_dropout, "Probability of dropping after the embeddings"));
  grouped(add_choice(app, "--activation", model.activation, "Non-linearity of the feed-forward block"));
  grouped(add_choice(app, "--norm", model.norm_placement, "Norms before the sub-layers or after the sums"));
  grouped(app.add_option("--norm-eps", model.norm_eps, "Added to the variance inside the norms' roots"));
  grouped(app.add_option("--final-norm", model.final_norm, "Norm after the last layer; default: with pre-norm only"))
      ->type_name("BOOL");
  grouped(app.add_flag("--attention-bias", model.attention_bias, "Biases in the attention"));
  grouped(app.add_flag_callback(
      "--no-feed-forward-bias", [&model] { model.feed_forward_bias = false; }, "No biases in the feed-forward block"));
  grouped(add_choice(app, "--position", model.position, "How a token learns its place"));
  grouped(app.add_option("--max-positions", model.max_positions, "Rows of learned positions; default: --max-length"))
      ->default_str("");
  grouped(app.add_flag("--embedding-norm", model.embedding_norm, "Normalise the embeddings"));
  grouped(app.add_flag("--tie-head", model.tie_head,
                       "The head's weight is the token embedding's; for data whose answers are its tokens"));
  const std::vector<std::pair<std::string, Head>> heads{{"mean", Head::sequence_mean}, {"first", Head::sequence_first}};
  grouped(add_choice(app, "--sequence-head", options.sequence_head,
                     "Whether one answer for a sequence is read from the mean of its tokens or the first", heads));
}

void add_training_options(CLI::App& app, TrainOptions& options) {
  const auto grouped = [](CLI::Option* option) { return option->group("Training"); };
  LoopOptions& loop = options.loop;
  ScheduleOptions& schedule = options.training.schedule;
  grouped(app.add_option("--steps", loop.steps,
                         "Training steps in all, one batch each, and the schedule's horizon; "
                         "default: by task"))
      ->check(kPositive)
      ->default_str("");
  grouped(app.add_option("--batch-size", loop.batch_size, "Sequences in a batch"))->check(kPositive);
  grouped(app.add_option("--accumulate", options.training.accumulate,
                         "Parts in which a batch is computed: less memory, same gradient"))
      ->check(kPositive);
  grouped(app.add_option("--lr", schedule.peak, "Highest learning rate"))->check(kPositive);
  grouped(app.add_option("--warmup-steps", schedule.warmup_steps,
                         "Steps over which the rate rises from 0; default: a tenth of the steps, at most 100"))
      ->check(kNotNegative)
      ->default_str("");
  grouped(add_choice(app, "--schedule", schedule.kind, "The rate after the warm-up"));
  grouped(app.add_option("--weight-decay", options.training.adamw.weight_decay, "AdamW's decay, on matrices only"))
      ->check(kNotNegative);
  grouped(app.add_option("--clip-norm", options.training.clip_norm, "Highest norm of the gradient; 0: no clipping"))
      ->check(kNotNegative);
  grouped(app.add_option("--seed", loop.seed, "Of the initial weights, dropout and the training sequences"));
  grouped(add_choice(app, "--precision", options.training.precision, "Type in which a step computes"));
  grouped(app.add_option("--eval-every", loop.evaluate_every,
                         "Steps between evaluations, each with a checkpoint; default: a tenth of the steps"))
      ->check(kPositive)
      ->default_str("");
  grouped(app.add_option("--target", options.target_percent, "Stops when an evaluation has as many % exact"))
      ->check(CLI::Range(0.0, 100.0))
      ->check(kPositive)
      ->default_str("");
}

void add_output_options(CLI::App& app, TrainOptions& options) {
  const auto grouped = [](CLI::Option* option) { return option->group("Output"); };
  grouped(app.add_option("--export", options.script, "File for the trained model as TorchScript, which Python loads"))
      ->transform(kScript);
  grouped(app.add_option("--keep", options.keep, "Newest checkpoints to keep, beside the best"))->check(kPositive);
  grouped(app.add_option("--log-every", options.log_every, "Steps between lines of metrics.jsonl"))->check(kPositive);
}

void add_call_options(CLI::App& app, TrainOptions& options) {
  const auto grouped = [](CLI::Option* option) { return option->group(kCallGroup); };
  grouped(app.add_option("--out", options.out, "New folder for the run: model, checkpoints, metrics; default: none"))
      ->check(kPath);
  CLI::Option* resume =
      grouped(app.add_option("--resume", options.resume, "Folder of a run, or one of its checkpoints, to go on with"))
          ->check(kPath);
  grouped(app.add_option("--config", options.config, "JSON file of options; the command line comes first"))
      ->check(kPath)
      ->excludes(resume);
  grouped(app.add_option("--stop-after", options.loop.stop_after, "Pauses after that step, as Ctrl-C does"))
      ->check(kPositive)
      ->default_str("");
  CLI::Option* quiet = grouped(app.add_flag("--quiet", options.quiet, "Nothing on stderr but notes and errors"));
  grouped(app.add_flag("--verbose", options.verbose, "Also checkpoints and memory on stderr"))->excludes(quiet);
}

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& options) {
  app.footer(help_on_tasks());
  app.option_defaults()->always_capture_default();
  add_task_options(app, options);
  add_data_options(app, options);
  add_model_options(app, options);
  add_training_options(app, options);
  add_output_options(app, options);
  options.machine.add_options(app);
  app.add_flag("--deterministic", options.deterministic, "Only operations that give the same bits each time")
      ->group("Machine");
  add_call_options(app, options);
}

void settle_steps(CLI::App& app, TrainOptions& options) {
  const bool text = !options.text.train.empty();
  for (const char* name : {"--valid", "--chars", "--answers", "--skip-header"}) {
    require(text || app.count(name) == 0, name, " goes with --train");
  }
  require(!text || !options.text.valid.empty(), "--train goes with --valid, a file to judge by");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_group() != (text ? "Task" : kDataGroup)) continue;
    require(!text || option->count() == 0, option->get_name(), " does not go with --train");
    option->default_str("");
  }
  LoopOptions& loop = options.loop;
  if (app.count("--steps") == 0) loop.steps = text ? kTextSteps : default_steps(options.task.kind);
  if (app.count("--eval-every") == 0) loop.evaluate_every = std::max<std::int64_t>(1, loop.steps / 10);
  auto& warmup = options.training.schedule.warmup_steps;
  if (app.count("--warmup-steps") == 0) warmup = std::min<std::int64_t>(100, loop.steps / 10);
  app.get_option("--warmup-steps")->default_str(std::to_string(warmup));
  app.get_option("--steps")->default_str(std::to_string(loop.steps));
  app.get_option("--eval-every")->default_str(std::to_string(loop.evaluate_every));
  options.training.schedule.steps = loop.steps;
  loop.target = options.target_percent / 100;
}

void settle_positions(CLI::App& app, TrainOptions& options, const Dataset& dataset) {
  const std::int64_t max_length = dataset.max_length();
  const std::string longest = dataset.longest_examples();
  auto& positions = options.model.max_positions;
  if (app.count("--max-positions") == 0) positions = max_length;
  app.get_option("--max-positions")->default_str(std::to_string(positions));
  require(options.model.position != Position::learned || positions >= max_length, "--max-positions ", positions,
          " is less than the longest sequence, ", max_length, longest.empty() ? "" : " (" + longest + ")");
}
