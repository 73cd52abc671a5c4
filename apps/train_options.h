#pragma once

#include <cstdint>
#include <filesystem>

#include "app.h"
#include "device.h"
#include "prenorm/config.h"
#include "prenorm/training/loop.h"
#include "prenorm/training/task.h"
#include "prenorm/training/text_dataset.h"

struct TrainOptions {
  prenorm::TaskOptions task;
  prenorm::TextDatasetOptions text;  ///< the data, where `text.train` is given
  prenorm::ModelConfig model{
      .d_model = 64, .num_heads = 8, .num_layers = 2, .dropout = 0.0, .position = prenorm::Position::learned};
  prenorm::Head sequence_head = prenorm::Head::sequence_mean;
  prenorm::TrainingOptions training{.schedule = {.peak = 2e-3, .kind = prenorm::Schedule::cosine, .warmup_steps = 0},
                                    .adamw = {}};
  prenorm::LoopOptions loop;
  double target_percent = 0;
  std::int64_t log_every = 1;
  std::int64_t keep = 3;
  bool deterministic = false;
  std::filesystem::path script;
  Machine machine;

  std::filesystem::path out, resume, config;
  bool quiet = false, verbose = false;
};

/// Declares the options of `train`, each in its group of the help.
void add_train_options(CLI::App& app, TrainOptions& options);

/// Gives the options that depend on others their defaults, and shows them to options_to_json: the steps of the task, a
/// tenth of them between evaluations and, up to 100, of warm-up, positions for the longest sequence.
void settle_steps(CLI::App& app, TrainOptions& options);
void settle_positions(CLI::App& app, TrainOptions& options, const prenorm::Dataset& dataset);
