#include "train_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "prenorm/parameter_count.h"
#include "prenorm/params/report.h"
#include "prenorm/training/evaluation.h"

using namespace prenorm;

namespace {

/// A text for a table: one line, not too long.
std::string shortened(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7F; }, '?');
  constexpr size_t kLongest = 48;
  if (text.size() <= kLongest) return text;
  size_t end = kLongest - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

}  // namespace

std::string data_name(const TrainOptions& options) {
  return options.text.train.empty() ? enum_name(options.task.kind) : options.text.valid.string();
}

void print_summary(const TrainOptions& options, const Dataset& dataset, const EncoderModel& model, torch::Device device,
                   std::int64_t resumed_after) {
  const Vocabulary& vocabulary = dataset.vocabulary();
  if (options.text.train.empty()) {
    std::cerr << data_name(options) << ": " << options.task.symbols << " symbols, lengths " << options.task.min_length
              << " to " << options.task.max_length << "\n";
  } else {
    std::cerr << options.text.train.string() << ": " << params::grouped(dataset.epoch_size()) << " examples of up to "
              << dataset.max_length() << " tokens, " << vocabulary.size() << " different ones, "
              << vocabulary.num_classes() << " answers, one for each "
              << (vocabulary.per_sequence() ? "sequence" : "token") << "\n";
  }
  const auto& config = model->config;
  std::cerr << "model: " << enum_name(config.norm_placement) << "-norm, " << config.num_layers << " layers, d_model "
            << config.d_model << ", " << config.num_heads << " heads, d_ff "
            << (config.d_ff > 0 ? config.d_ff : 4 * config.d_model) << ", " << enum_name(config.position)
            << " positions, dropout " << config.dropout << "\n";
  for (const auto& [name, count] : count_parameters(*model)) {
    if (name.find('.') != std::string::npos) continue;
    std::fprintf(stderr, "  %-12s %12s parameters\n", name.empty() ? "total" : name.c_str(),
                 params::grouped(count.total()).c_str());
  }
  const auto& schedule = options.training.schedule;
  std::cerr << "training: " << options.loop.steps << " steps of " << options.loop.batch_size
            << " sequences, AdamW, learning rate " << schedule.peak << " (" << enum_name(schedule.kind) << ", "
            << schedule.warmup_steps << " warm-up steps), seed " << options.loop.seed << "\n"
            << "device: " << device << (options.machine.device == "auto" ? " (picked by auto)" : "") << ", "
            << torch::get_num_threads() << " CPU threads\n";
  if (resumed_after > 0) std::cerr << "resumed after step " << resumed_after << "\n";
}

void print_evaluation(const TrainOptions& options, const Dataset& dataset, const EncoderModel& model,
                      const Score& score) {
  constexpr std::int64_t kSamples = 5;
  const Vocabulary& vocabulary = dataset.vocabulary();
  const auto size = dataset.evaluation_size();
  std::printf("%s: %.2f %% of %s %s sequences exact (chance: %.2f %%)\n", data_name(options).c_str(),
              100 * score.accuracy, params::grouped(size).c_str(), dataset.evaluates_unseen() ? "unseen" : "training",
              100 * chance(dataset));
  if (!vocabulary.per_sequence()) std::printf("%.2f %% of their answers right\n", 100 * score.answers);
  const auto examples = dataset.evaluation_examples(0, std::min(kSamples, size));
  const auto predictions = predict(model, examples);
  std::vector<std::array<std::string, 3>> rows{{"input", "prediction", "right answer"}};
  std::array<size_t, 2> width{};
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto& target = examples[i].target;
    const bool known = std::ranges::find(target, kUnknownAnswer) == target.end();
    rows.push_back({shortened(vocabulary.input_text(examples[i].input)),
                    shortened(vocabulary.answer_text(predictions[i])),
                    known ? shortened(vocabulary.answer_text(target)) : "(not in the training file)"});
  }
  for (const auto& row : rows) {
    for (size_t column : {0, 1}) width[column] = std::max(width[column], row[column].size());
  }
  std::printf("\n");
  for (const auto& row : rows) {
    std::printf("  %-*s  %-*s  %s\n", static_cast<int>(width[0]), row[0].c_str(), static_cast<int>(width[1]),
                row[1].c_str(), row[2].c_str());
  }
  std::printf("\n");
}
