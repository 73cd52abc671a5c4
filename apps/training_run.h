#pragma once

#include "train_options.h"

/// Carries out what the command line of `train` asks for: a new run, or a later part of one that was saved. Returns the
/// exit code.
int train(CLI::App& app, TrainOptions& options);
