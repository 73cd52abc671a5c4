#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <random>
#include <sstream>

#include "app.h"
#include "prenorm/error.h"
#include "prenorm/parameter_count.h"
#include "prenorm/params/report.h"
#include "prenorm/script/export.h"
#include "prenorm/training/trainer.h"
#include "prenorm/weights/pretrained.h"
#include "prenorm/weights/weights.h"
#include "progress.h"

namespace {

namespace fs = std::filesystem;
using namespace prenorm;

struct Options {
  TaskOptions task;
  ModelConfig model{.d_model = 64, .num_heads = 8, .num_layers = 2, .dropout = 0.0, .position = Position::learned};
  TrainingOptions training{.schedule = {.peak = 2e-3, .kind = Schedule::cosine, .warmup_steps = 100}, .adamw = {}};
  Head sequence_head = Head::sequence_mean;
  std::int64_t batch_size = 64;
  std::uint64_t seed = 1;
  int threads = 0;
  std::string device = "auto";
  fs::path out;
  fs::path script;
};

struct TaskHelp {
  TaskKind kind;
  std::int64_t steps;  ///< in which it is learned with the other defaults; parity stays hard
  const char* what;
};

constexpr TaskHelp kTasks[]{
    {TaskKind::copy, 500, "the sequence itself"},
    {TaskKind::reverse, 2000, "the symbols from last to first"},
    {TaskKind::sort, 1200, "the symbols in ascending order"},
    {TaskKind::histogram, 1500, "for each position, how often its symbol occurs in the sequence"},
    {TaskKind::majority, 1000, "one answer: do symbols of the upper half prevail? odd lengths only"},
    {TaskKind::parity, 3000, "one answer: is the sum of the symbols odd? stays hard"}};

std::int64_t default_steps(TaskKind kind) {
  return std::ranges::find(kTasks, kind, &TaskHelp::kind)->steps;
}

std::string help_on_tasks() {
  std::ostringstream help;
  help << "Tasks (default steps in brackets; every task's defaults train without dropout):\n";
  for (const auto& [kind, steps, what] : kTasks) {
    help << "  " << std::left << std::setw(11) << enum_name(kind) << what << " [" << steps << "]\n";
  }
  help << "\nExamples:\n"
          "  train                                     learns to sort\n"
          "  train --task reverse --out runs/reverse   keeps config.json and model.safetensors\n"
          "  train --norm post                         the paper's original placement of the norms\n";
  return help.str();
}

void add_task_options(CLI::App& app, TaskOptions& task) {
  add_choice(app, "--task", task.kind, "What to learn (see below)")->group("Task");
  app.add_option("--symbols", task.symbols, "Number of different symbols")->group("Task");
  app.add_option("--min-length", task.min_length, "Shortest sequence, in symbols")->group("Task");
  app.add_option("--max-length", task.max_length, "Longest sequence, in symbols; lengths are uniform")->group("Task");
}

void add_model_options(CLI::App& app, Options& options) {
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
  const std::vector<std::pair<std::string, Head>> heads{{"mean", Head::sequence_mean}, {"first", Head::sequence_first}};
  grouped(add_choice(app, "--sequence-head", options.sequence_head,
                     "Whether majority and parity read the mean of the tokens or the first", heads));
}

void add_training_options(CLI::App& app, Options& options) {
  const auto grouped = [](CLI::Option* option) { return option->group("Training"); };
  ScheduleOptions& schedule = options.training.schedule;
  grouped(app.add_option("--steps", schedule.steps, "Training steps, one batch each; default: by task"))
      ->check(CLI::PositiveNumber)
      ->default_str("");
  grouped(app.add_option("--batch-size", options.batch_size, "Sequences in a batch"))->check(CLI::PositiveNumber);
  grouped(app.add_option("--lr", schedule.peak, "Highest learning rate"))->check(CLI::PositiveNumber);
  grouped(app.add_option("--warmup-steps", schedule.warmup_steps, "Steps over which the rate rises from 0"))
      ->check(CLI::NonNegativeNumber);
  grouped(add_choice(app, "--schedule", schedule.kind, "The rate after the warm-up"));
  grouped(app.add_option("--weight-decay", options.training.adamw.weight_decay, "AdamW's decay, on matrices only"))
      ->check(CLI::NonNegativeNumber);
  grouped(app.add_option("--clip-norm", options.training.clip_norm, "Highest norm of the gradient; 0: no clipping"))
      ->check(CLI::NonNegativeNumber);
  grouped(app.add_option("--seed", options.seed, "Of the initial weights, dropout and the training sequences"));
}

void add_machine_options(CLI::App& app, Options& options) {
  const auto grouped = [](CLI::Option* option) { return option->group("Machine"); };
  grouped(app.add_option("--device", options.device, "auto, cpu, cuda or cuda:N; auto takes a GPU where there is one"))
      ->check(CLI::Validator(
          [](const std::string& name) {
            const bool index = name.starts_with("cuda:") && name.size() > 5 && name.size() < 8 &&
                               name.find_first_not_of("0123456789", 5) == std::string::npos;
            return index || name == "auto" || name == "cpu" || name == "cuda"
                       ? ""
                       : name + " is not auto, cpu, cuda or cuda:N";
          },
          ""));
  grouped(app.add_option("--threads", options.threads, "CPU threads; 0: one per core"))->check(CLI::Range(0, 1024));
  grouped(app.add_option("--out", options.out, "Folder for the trained model; default: it is not kept"));
  grouped(app.add_option("--export", options.script, "File for the trained model as TorchScript, which Python loads"));
}

torch::Device pick_device(const std::string& name) {
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (name == "auto") return gpus > 0 ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
  if (name == "cpu") return torch::kCPU;
  const torch::Device device(name == "cuda" ? "cuda:0" : name);
  require(device.index() < gpus, "--device ", name, ": this machine has ",
          gpus == 0 ? "no CUDA device that this LibTorch can use; use --device cpu"
                    : "CUDA devices 0 to " + std::to_string(gpus - 1));
  return device;
}

/// The model that the task asks for: its symbols, answers and longest sequence.
ModelConfig model_config(const Options& options, const Task& task, bool max_positions_given) {
  ModelConfig config = options.model;
  config.vocab_size = task.options().symbols;
  config.head = task.per_sequence() ? options.sequence_head : Head::token;
  config.num_classes = task.num_classes();
  if (!max_positions_given) config.max_positions = task.options().max_length;
  config.validate();
  require(config.position != Position::learned || config.max_positions >= task.options().max_length, "--max-positions ",
          config.max_positions, " is less than --max-length ", task.options().max_length);
  return config;
}

void require_writable(const char* option, const fs::path& path, const fs::path& folder) {
  require(::access(folder.c_str(), W_OK | X_OK) == 0, option, " ", path.string(), ": no permission to write there");
}

/// Creates the folder and finds out, before the work, whether the model can be kept there.
void prepare_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "--out ", folder.string(), " cannot be made a folder: ", error.message());
  require_writable("--out", folder, folder);
}

/// Finds out, before the work, whether the file can be written.
void check_script_path(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  require(fs::is_directory(folder), "--export ", path.string(), ": there is no folder ", folder.string());
  require(!fs::is_directory(path), "--export ", path.string(), " is a folder, not a file");
  require_writable("--export", path, folder);
}

/// Writes example.safetensors: random tokens and what the model makes of them, with and without padding, in float and
/// double. apps/compare.py holds it against the lesson with the weights beside it.
void save_example(const EncoderModel& model, const fs::path& folder) {
  const torch::NoGradGuard no_grad;
  const auto& config = model->config;
  const auto length = config.position == Position::learned ? std::min<std::int64_t>(16, config.max_positions) : 16;
  const Tensor ids = torch::randint(config.vocab_size, {8, length}, torch::kLong);
  const Tensor real = torch::arange(length) < torch::randint(1, length + 1, {8, 1});
  torch::nn::Module example("example");
  example.register_buffer("ids", ids);
  example.register_buffer("padding", real);
  EncoderModel copy(std::dynamic_pointer_cast<EncoderModelImpl>(model->clone(torch::kCPU)));
  copy->eval();
  for (const auto& [name, type] : {std::pair("float32", torch::kFloat), std::pair("float64", torch::kDouble)}) {
    copy->to(type);
    example.register_buffer(std::string(name) + "_none", copy(ids));
    example.register_buffer(std::string(name) + "_padding", copy(ids, AttentionMask::padding(real)));
  }
  save_weights(example, folder / "example.safetensors");
}

void print_summary(const Task& task, const EncoderModel& model, const torch::Device& device, const Options& options) {
  const auto& config = model->config;
  std::cerr << enum_name(task.options().kind) << ": " << task.options().symbols << " symbols, lengths "
            << task.options().min_length << " to " << task.options().max_length << "\n"
            << "model: " << enum_name(config.norm_placement) << "-norm, " << config.num_layers << " layers, d_model "
            << config.d_model << ", " << config.num_heads << " heads, d_ff "
            << (config.d_ff > 0 ? config.d_ff : 4 * config.d_model) << ", " << enum_name(config.position)
            << " positions, dropout " << config.dropout << "\n";
  const auto counts = count_parameters(*model);
  for (const auto& [name, count] : counts) {
    if (name.find('.') != std::string::npos) continue;
    std::fprintf(stderr, "  %-12s %12s parameters\n", name.empty() ? "total" : name.c_str(),
                 params::grouped(count.total()).c_str());
  }
  const auto& schedule = options.training.schedule;
  std::cerr << "training: " << schedule.steps << " steps of " << options.batch_size
            << " sequences, AdamW, learning rate " << schedule.peak << " (" << enum_name(schedule.kind) << ", "
            << schedule.warmup_steps << " warm-up steps), seed " << options.seed << "\n"
            << "device: " << device << (options.device == "auto" ? " (picked by auto)" : "") << ", "
            << torch::get_num_threads() << " CPU threads\n";
}

void train(EncoderModel& model, const Task& task, const Options& options) {
  Trainer trainer(model, options.training);
  std::mt19937_64 random(options.seed);
  Progress progress(options.training.schedule.steps);
  const auto device = model->embeddings->token->weight.device();
  Tensor loss = torch::zeros({}, device), exact = torch::zeros({}, device);
  std::int64_t tokens = 0, since = 0;
  while (trainer.steps_done() < options.training.schedule.steps) {
    const Batch batch = collate(task.training_examples(options.batch_size, random), task.per_sequence());
    const StepResult result = trainer.step(batch);
    tokens += batch.tokens();
    loss += result.loss;
    exact += result.exact;
    ++since;
    if (!progress.due(trainer.steps_done())) continue;
    const double mean_loss = loss.item<double>() / static_cast<double>(since);
    progress.report(trainer.steps_done(), mean_loss,
                    exact.item<double>() / static_cast<double>(since * options.batch_size), result.learning_rate,
                    tokens);
    require(std::isfinite(mean_loss), "the loss is ", mean_loss, " after ", trainer.steps_done(),
            " steps: lower --lr (", options.training.schedule.peak, ") or raise --warmup-steps");
    loss.zero_();
    exact.zero_();
    since = 0;
  }
}

std::string joined(const std::vector<std::int64_t>& symbols) {
  std::string text;
  for (const auto symbol : symbols) {
    if (!text.empty()) text += ' ';
    text += std::to_string(symbol);
  }
  return text;
}

void print_evaluation(EncoderModel& model, const Task& task) {
  constexpr size_t kSamples = 5;
  const auto examples = task.evaluation_examples();
  const auto predictions = predict(model, examples);
  std::int64_t exact = 0;
  for (size_t i = 0; i < examples.size(); ++i) exact += predictions[i] == examples[i].target ? 1 : 0;
  std::printf("%s: %.2f %% of %s unseen sequences exact (chance: %.2f %%)\n\n", enum_name(task.options().kind).c_str(),
              100.0 * static_cast<double>(exact) / static_cast<double>(examples.size()),
              params::grouped(static_cast<std::int64_t>(examples.size())).c_str(), 100.0 * chance(examples));
  std::vector<std::array<std::string, 3>> rows{{"input", "prediction", "right answer"}};
  std::array<size_t, 2> width{};
  for (size_t i = 0; i < kSamples; ++i) {
    rows.push_back({joined(examples[i].input), joined(predictions[i]), joined(examples[i].target)});
  }
  for (const auto& row : rows) {
    for (size_t column : {0, 1}) width[column] = std::max(width[column], row[column].size());
  }
  for (const auto& row : rows) {
    std::printf("  %-*s  %-*s  %s\n", static_cast<int>(width[0]), row[0].c_str(), static_cast<int>(width[1]),
                row[1].c_str(), row[2].c_str());
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a Transformer encoder on a task over random sequences of symbols and says how well it learned.",
               "train");
  app.footer(help_on_tasks());
  app.option_defaults()->always_capture_default();
  Options options;
  add_task_options(app, options.task);
  add_model_options(app, options);
  add_training_options(app, options);
  add_machine_options(app, options);

  return run_app(app, argc, argv, [&] {
    if (app.count("--steps") == 0) options.training.schedule.steps = default_steps(options.task.kind);
    const Task task(options.task);
    const ModelConfig config = model_config(options, task, app.count("--max-positions") > 0);
    const torch::Device device = pick_device(options.device);
    if (!options.out.empty()) prepare_folder(options.out);
    if (!options.script.empty()) check_script_path(options.script);
    if (options.threads > 0) torch::set_num_threads(options.threads);
    torch::manual_seed(options.seed);

    EncoderModel model(config);
    model->to(device);
    print_summary(task, model, device, options);
    train(model, task, options);
    print_evaluation(model, task);
    if (!options.script.empty()) {
      export_torchscript(model, options.script);
      std::printf("TorchScript: %s\n", options.script.c_str());
    }
    if (!options.out.empty()) {
      save_pretrained(model, options.out);
      save_example(model, options.out);
      std::printf("model: %s (config.json, model.safetensors)\n", options.out.c_str());
    } else if (options.script.empty()) {
      std::printf("the model was not kept; --out FOLDER keeps it\n");
    }
  });
}
