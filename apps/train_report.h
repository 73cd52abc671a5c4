#pragma once

#include <cstdint>
#include <string>

#include "prenorm/training/evaluation.h"
#include "train_options.h"

/// What the examples are called: the task, or the file that judges.
std::string data_name(const TrainOptions& options);

/// On stderr, before the run: data, model, training and device. `resumed_after` is 0 in a new run.
void print_summary(const TrainOptions& options, const prenorm::Dataset& dataset, const prenorm::EncoderModel& model,
                   torch::Device device, std::int64_t resumed_after);

/// On stdout, after the run: the score and what the model answers to a few examples.
void print_evaluation(const TrainOptions& options, const prenorm::Dataset& dataset, const prenorm::EncoderModel& model,
                      const prenorm::Score& score);
