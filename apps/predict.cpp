#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "device.h"
#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/params/report.h"
#include "prenorm/training/evaluation.h"
#include "prenorm/training/run_folder.h"
#include "prenorm/training/text_dataset.h"
#include "prenorm/weights/pretrained.h"

namespace {

namespace fs = std::filesystem;
using namespace prenorm;

/// Answers lines of text, some at a time.
class Predictor {
 public:
  Predictor(const fs::path& folder, torch::Device device)
      : model_(from_pretrained(folder)), vocabulary_(Vocabulary::load(folder / "vocabulary.json")) {
    const auto& config = model_->config;
    require(config.vocab_size == vocabulary_.size() && config.num_classes == vocabulary_.num_classes() &&
                (config.head == Head::token) != vocabulary_.per_sequence(),
            folder.string(), ": vocabulary.json is not that of the model");
    model_->to(device);
  }

  /// Takes `input` or `input<TAB>target`; a line without tokens has no answers.
  void add(const std::string& line) {
    const auto [input, target] = cut_line(line);
    examples_.push_back({vocabulary_.ids(input), {}});
    const auto length = std::ssize(examples_.back().input);
    const auto& config = model_->config;
    if (config.position == Position::learned && length > config.max_positions) {
      examples_.pop_back();
      fail(length, " tokens; the model has positions for ", config.max_positions);
    }
    targets_.emplace_back(target.value_or(""));
  }

  bool full() const { return examples_.size() == 256; }

  /// Prints a line of answers for each line that was added.
  void print() {
    std::vector<Example> asked;
    for (const auto& example : examples_) {
      if (!example.input.empty()) asked.push_back(example);
    }
    const auto answers = predict(model_, asked);
    auto next = answers.begin();
    for (size_t i = 0; i < examples_.size(); ++i) {
      const auto answer = examples_[i].input.empty() ? std::vector<std::int64_t>() : *next++;
      const std::string text = vocabulary_.answer_text(answer);
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fputc('\n', stdout);
      if (split_text(targets_[i], vocabulary_.split()).empty()) continue;
      ++judged_;
      right_ += vocabulary_.is_target(targets_[i], answer) ? 1 : 0;
    }
    std::fflush(stdout);
    examples_.clear();
    targets_.clear();
  }

  void print_accuracy() const {
    if (judged_ == 0) return;
    std::fprintf(stderr, "%.2f %% of %s lines with a target exact\n",
                 100 * static_cast<double>(right_) / static_cast<double>(judged_), params::grouped(judged_).c_str());
  }

 private:
  EncoderModel model_;
  Vocabulary vocabulary_;
  std::vector<Example> examples_;
  std::vector<std::string> targets_;
  std::int64_t judged_ = 0, right_ = 0;
};

/// Loads the model of a folder, of a run that is not over its newest checkpoint.
Predictor open_model(const fs::path& folder, torch::Device device) {
  std::error_code error;
  if (fs::exists(folder / "config.json", error)) return {folder, device};
  std::optional<Predictor> predictor;
  const auto read = [&](const fs::path& checkpoint) { predictor.emplace(checkpoint, device); };
  const fs::path checkpoint = read_checkpoint(folder, read);
  std::cerr << "note: the run in " << folder.string() << " is not over; this is " << checkpoint.string() << "\n";
  return *std::move(predictor);
}

void predict_lines(Predictor& predictor, std::istream& stream, const std::string& name, bool skip_header) {
  LineReader reader(stream);
  while (true) {
    // Whoever types lines, or waits for each answer, gets it at once.
    if (predictor.full() || !reader.ready()) predictor.print();
    try {
      if (!reader.next()) break;
      if (skip_header && reader.number() == 1) continue;
      predictor.add(reader.line());
    } catch (const Error& error) {
      predictor.print();
      fail(name, ":", reader.number(), ": ", error.what());
    }
  }
  predictor.print();
  predictor.print_accuracy();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Answers lines of text with a model that `train --out` kept: a line of answers on stdout for each line. Lines "
      "may hold the right answers after a TAB; how many were exact then stands on stderr.",
      "predict");
  app.option_defaults()->always_capture_default();
  fs::path folder, file;
  bool skip_header = false;
  Machine machine;
  app.add_option("model", folder, "Folder of a run or of one of its checkpoints")->required()->default_str("");
  app.add_option("file", file, "Lines to answer; default: those of stdin")->default_str("");
  app.add_flag("--skip-header", skip_header, "Line 1 has no answers: it is no example");
  machine.add_options(app);
  return run_app(app, argc, argv, [&] {
    std::ios::sync_with_stdio(false);
    const torch::Device device = machine.pick();
    require(fs::is_directory(folder), "no such folder: ", folder.string());
    std::ifstream lines;
    if (!file.empty()) lines = open_file(file);
    Predictor predictor = open_model(folder, device);
    predict_lines(predictor, file.empty() ? std::cin : lines, file.empty() ? "stdin" : file.string(), skip_header);
  });
}
