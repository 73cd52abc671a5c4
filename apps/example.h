#pragma once

#include <filesystem>

#include "prenorm/model.h"

/// Writes example.safetensors: random tokens and what the model makes of them, with and without padding, in float and
/// double. apps/compare.py holds it against the lesson with the weights beside it.
void save_example(const prenorm::EncoderModel& model, const std::filesystem::path& folder);
