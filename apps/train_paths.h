#pragma once

#include <filesystem>
#include <ostream>
#include <string>

#include "train_options.h"

/// How files of options name the folder of the run, which may be moved, at the start of what lies in it.
constexpr const char* kRunFolder = "{out}";

/// Settles where the run writes, before it does, and shows it to options_to_json. `checkpoint` is the one that it goes on
/// after, or empty; without --out it goes on in its folder. An --export that is not `asked` for on the command line and
/// is another run's, or was there before a new one, goes to the folder of this run instead. Throws Error when a path is
/// another one's or cannot be written.
void settle_paths(CLI::App& app, TrainOptions& options, const std::filesystem::path& checkpoint, bool asked,
                  std::ostream& notes);

/// A path as one word of a shell's command line.
std::string shell_word(const std::filesystem::path& path);
