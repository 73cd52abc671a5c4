#include "train_paths.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <utility>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/training/run_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace prenorm;

/// The way from `folder` to a path that is or lies in it; empty for others.
fs::path way_inside(const fs::path& path, const fs::path& folder) {
  if (folder.empty()) return {};
  const fs::path way = real_path(path).lexically_relative(real_path(folder));
  return way.empty() || *way.begin() == ".." ? fs::path() : way;
}

bool names_run_folder(const fs::path& path) {
  return *path.begin() == kRunFolder;
}

/// Whether a script that a file names, not the command line, is another run's.
bool is_of_another_run(const TrainOptions& options, const fs::path& checkpoint) {
  if (!checkpoint.empty()) return !same_file(options.out, run_of(checkpoint));
  const fs::path& config = options.config;
  return names_run_folder(options.script) || fs::exists(options.script) ||
         (config.filename() == "run.json" && is_run(config.parent_path()));
}

void settle_script(TrainOptions& options, bool of_another_run, std::ostream& notes) {
  fs::path& script = options.script;
  const fs::path named = script;
  const bool in_folder = names_run_folder(named);
  if (!in_folder && !of_another_run) return;
  require(!options.out.empty(), "--export ", named.string(),
          in_folder ? " goes with --out" : " is there already: give it on the command line to replace it, or --out");
  script = options.out / (of_another_run ? named.filename() : named.lexically_relative(kRunFolder));
  if (in_folder) return;
  notes << "note: --export " << named.string() << " stays as it is; this run's is " << script.string() << "\n";
}

/// Refuses a script that would take the place of something else, or cannot be written.
void check_script(const TrainOptions& options) {
  const fs::path &path = options.script, &out = options.out, folder = path.parent_path();
  const std::string given = "--export " + path.string();
  for (const auto& [name, file] : {std::pair("--train", options.text.train), std::pair("--valid", options.text.valid),
                                   std::pair("--config", options.config)}) {
    require(file.empty() || !same_file(path, file), given, " is the file of ", name, " and would replace it");
  }
  require(out.empty() || way_inside(out, path).empty(), given, " is a file, --out ", out.string(), " a folder there");
  const fs::path inside = way_inside(path, out), around = checkpoints_around(path);
  require(around.empty() && (inside.empty() || *inside.begin() != "checkpoints"), given,
          " is in a folder of checkpoints");
  const bool named_so = path.extension() == ".ts" || path.extension() == ".pt";
  require(inside.empty() || named_so, given, " is in the folder of the run: call it .ts or .pt");
  require(!inside.empty() || !is_run(folder) || (named_so && !fs::exists(path)), given,
          " is in the folder of another run: give another file");

  const bool to_be_made = same_file(folder, out) && !fs::exists(fs::symlink_status(folder));
  require(to_be_made || fs::is_directory(folder), given, ": there is no folder ", folder.string());
  require(!fs::is_directory(path), given, " is a folder, not a file");
  const fs::file_status status = fs::symlink_status(path);
  require(!fs::exists(status) || fs::is_regular_file(status), given, " is not a regular file");
  require(to_be_made || ::access(folder.c_str(), W_OK | X_OK) == 0, given, ": no permission to write there");
}

}  // namespace

void settle_paths(CLI::App& app, TrainOptions& options, const fs::path& checkpoint, bool asked, std::ostream& notes) {
  fs::path &out = options.out, &script = options.script;
  if (out.empty() && !checkpoint.empty()) {
    out = is_checkpoint(options.resume) ? run_of(checkpoint) : options.resume;
    require(!out.empty(), checkpoint.string(), " is in no run's folder: give --out, where the run goes on");
  }
  if (script.empty()) return;
  settle_script(options, !asked && is_of_another_run(options, checkpoint), notes);
  check_script(options);
  const fs::path inside = way_inside(script, out);
  if (inside.empty()) return;
  CLI::Option* option = app.get_option("--export");
  option->clear();
  option->default_str((kRunFolder / inside).string());
}

std::string shell_word(const fs::path& path) {
  const std::string text = (path.string().starts_with('-') ? "." / path : path).string();
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const unsigned char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else if (c < ' ' || c == 0x7F) {
      std::array<char, 16> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "'$'\\%03o''", c);  // as bash has it
      word += escaped.data();
    } else {
      word += static_cast<char>(c);
    }
  }
  return word + "'";
}
