#include "prenorm/training/run_folder.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "folder.h"
#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/training/task.h"
#include "support.h"

namespace run_folder_test {

namespace fs = std::filesystem;
using prenorm::Error;
using prenorm::find_checkpoint;
using prenorm::RunFolder;
using prenorm::RunState;
using prenorm::Trainer;

namespace {

const prenorm::Task kCopy({.kind = prenorm::TaskKind::copy, .max_length = 8});

Trainer trainer() {
  return {prenorm::EncoderModel(prenorm::ModelConfig{.vocab_size = 10,
                                                     .d_model = 8,
                                                     .num_heads = 2,
                                                     .num_layers = 1,
                                                     .head = prenorm::Head::token,
                                                     .num_classes = 10}),
          {}};
}

void save(RunFolder& folder, int64_t step, int64_t best, int64_t keep = 2) {
  folder.save(trainer(), {.step = step, .best = {{best, {}}}}, kCopy.vocabulary(), keep);
}

std::set<std::string> checkpoints(const fs::path& run) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) names.insert(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("the newest checkpoints and the best are kept") {
  const Folder folder;
  auto run = RunFolder::create(folder.path / "new" / "run");
  for (const int64_t step : {2, 4, 6, 8, 10}) save(run, step, 4);
  CHECK(checkpoints(run.path()) == std::set<std::string>{"step-4", "step-8", "step-10"});
  CHECK(find_checkpoint(run.path()) == run.checkpoint(10));  // by number, not by name
  CHECK(find_checkpoint(run.checkpoint(4)) == run.checkpoint(4));
  save(run, 10, 10);
  CHECK(checkpoints(run.path()) == std::set<std::string>{"step-8", "step-10"});
}

TEST_CASE("a folder has one owner, and a run is not started over another") {
  const Folder folder;
  {
    auto run = RunFolder::create(folder.path);
    CHECK(message_of<Error>([&] { RunFolder::create(folder.path); }) ==
          folder.path.string() + " is in use by another run");
    save(run, 3, 3);
  }
  CHECK(message_of<Error>([&] { RunFolder::create(folder.path); }) ==
        folder.path.string() + " holds a run that came to step 3: resume it or take another folder");
  const auto other = folder.path / "other";
  fs::create_directory(other);
  std::ofstream(other / "model.safetensors") << "precious";
  CHECK(message_of<Error>([&] { RunFolder::create(other); }) ==
        other.string() + " holds a model.safetensors already: take another folder");
  CHECK(prenorm::read_file(other / "model.safetensors") == "precious");
  CHECK_FALSE(fs::exists(other / "checkpoints"));
  const auto checkpoints = folder.path / "checkpoints";
  for (const auto& path : {checkpoints, checkpoints / "new", checkpoints / "step-3", other / ".." / "checkpoints"}) {
    const bool there = fs::exists(path);
    CHECK(message_of<Error>([&] { RunFolder::create(path); }).find(" is a place of checkpoints, those in ") !=
          std::string::npos);
    CHECK(fs::exists(path) == there);
    CHECK_FALSE(fs::exists(path / "checkpoints"));
  }
  const auto file = folder.path / "file";
  std::ofstream(file) << "x";
  CHECK(message_of<Error>([&] { RunFolder::create(file); }).find("cannot be made a folder") != std::string::npos);
}

TEST_CASE("a run goes on after its newest checkpoint, without what was logged of later steps") {
  const Folder folder;
  {
    auto run = RunFolder::create(folder.path);
    for (int64_t step = 1; step <= 4; ++step) {
      run.log({.step = step}, {.loss = 0.5}, NAN, 10.4);
      if (step == 2 || step == 3) save(run, step, 2, 3);
    }
    run.flush();
    std::ofstream(folder.path / "metrics.jsonl", std::ios::app) << R"({"step": 3, "lo)";  // cut by a kill
    fs::create_directory(folder.path / "checkpoints" / "step-12.tmp123");
    fs::create_directory(folder.path / "notes.tmp1");  // not ours
  }
  const std::string metrics = prenorm::read_file(folder.path / "metrics.jsonl");
  CHECK(message_of<Error>([&] { RunFolder::resume(folder.path, folder.path / "checkpoints" / "step-2"); }) ==
        folder.path.string() + " has come to step 3; to go on after step 2 instead, take another folder");
  CHECK(prenorm::read_file(folder.path / "metrics.jsonl") == metrics);

  auto run = RunFolder::resume(folder.path, folder.path / "checkpoints" / "step-3");
  CHECK(checkpoints(folder.path) == std::set<std::string>{"step-2", "step-3"});
  CHECK(fs::exists(folder.path / "notes.tmp1"));
  const std::string line =
      R"({"step":1,"epoch":null,"loss":0.5,"accuracy":0.0,"learning_rate":0.0,"gradient_norm":0.0,)"
      R"("tokens_per_second":10.0})";
  std::string expected;
  for (const char step : {'1', '2', '3'}) {
    expected += line + "\n";
    expected[expected.size() - line.size() + 7] = step;
  }
  CHECK(prenorm::read_file(folder.path / "metrics.jsonl") == expected);
}

TEST_CASE("a run goes on in another folder") {
  const Folder folder;
  {
    auto run = RunFolder::create(folder.path / "a");
    run.log({.step = 1}, {}, 0.5, 1);
    save(run, 1, 1);
  }
  const auto checkpoint = folder.path / "a" / "checkpoints" / "step-1";
  {
    auto run = RunFolder::resume(folder.path / "b", checkpoint);
    CHECK(prenorm::read_file(folder.path / "b" / "metrics.jsonl") ==
          prenorm::read_file(folder.path / "a" / "metrics.jsonl"));
    save(run, 2, 2);
  }
  CHECK(checkpoints(folder.path / "a") == std::set<std::string>{"step-1"});
  CHECK(message_of<Error>([&] { RunFolder::resume(folder.path / "b", checkpoint); }) ==
        (folder.path / "b").string() + " holds a run that came to step 2: resume it or take another folder");
  CHECK(prenorm::run_of(checkpoint) == fs::canonical(folder.path / "a"));
  CHECK(prenorm::run_of(folder.path / "a").empty());
  fs::rename(folder.path / "a" / "checkpoints", folder.path / "large");
  fs::create_directory_symlink("../large", folder.path / "a" / "checkpoints");
  CHECK(prenorm::run_of(checkpoint) == folder.path / "a");
  CHECK(prenorm::run_of(checkpoint / "") == folder.path / "a");
}

TEST_CASE("a reader takes the next checkpoint when a living run removes the one it reads") {
  const Folder folder;
  auto run = RunFolder::create(folder.path);
  for (const int64_t step : {1, 2, 3}) save(run, step, 1, 3);
  int calls = 0;
  const auto read = [&](const fs::path& checkpoint) {
    if (++calls == 1) fs::remove_all(checkpoint);
    prenorm::read_run_state(checkpoint);
  };
  CHECK(prenorm::read_checkpoint(folder.path, read) == run.checkpoint(2));
  CHECK(calls == 2);
  std::ofstream(run.checkpoint(2) / "training.json") << "{}";  // a broken one is no reason to take another
  CHECK(message_of<Error>([&] { prenorm::read_checkpoint(folder.path, read); }).find("step-2") != std::string::npos);
  CHECK(calls == 3);
  calls = 0;
  CHECK(message_of<Error>([&] { prenorm::read_checkpoint(run.checkpoint(1), read); }) ==
        "no such folder: " + run.checkpoint(1).string());
}

TEST_CASE("where there is no checkpoint, that is said") {
  const Folder folder;
  fs::create_directories(folder.path);
  CHECK(message_of<Error>([&] { find_checkpoint(folder.path); }) == folder.path.string() + " holds no checkpoint");
  CHECK(message_of<Error>([&] { find_checkpoint(folder.path / "none"); }) ==
        "no such folder: " + (folder.path / "none").string());
  const auto checkpoints = folder.path / "checkpoints";
  fs::create_symlink("checkpoints", checkpoints);
  CHECK(message_of<Error>([&] { find_checkpoint(folder.path); }) ==
        "cannot read " + checkpoints.string() + ": Too many levels of symbolic links");
  fs::remove(checkpoints);
  fs::create_directories(checkpoints / "step-7");
  fs::permissions(checkpoints, fs::perms::none);
  bound_by_permissions(folder, [&] {
    CHECK(message_of<Error>([&] { find_checkpoint(folder.path); }) ==
          "cannot read " + checkpoints.string() + ": Permission denied");
  });
  fs::permissions(checkpoints, fs::perms::all);
}

}  // namespace run_folder_test
