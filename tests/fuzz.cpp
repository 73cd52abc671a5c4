// What reads other people's files, each reader given any bytes: it takes them, or refuses them with one of our errors.
// Built with PRENORM_FUZZ this is a libFuzzer target, whose reader $PRENORM_FUZZ_READER names; among the tests it reads
// data/fuzz/<reader>/, files that real writers made and what the fuzzers found.

#include <torch/torch.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "folder.h"
#include "prenorm/config.h"
#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/params/config_count.h"
#include "prenorm/params/file_count.h"
#include "prenorm/pretrained_config.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/tensor_file/zip.h"
#include "prenorm/training/checkpoint.h"
#include "prenorm/training/run_folder.h"
#include "prenorm/training/text_dataset.h"

namespace fuzz_test {

namespace fs = std::filesystem;
using namespace prenorm;

namespace {

const Folder& folder() {
  static const Folder own;
  return own;
}

/// What becomes of every file of tensors: all elements are read, and counted.
void read_tensors(const fs::path& path) {
  const TensorFile file = TensorFile::open(path);
  std::vector<char> elements;
  for (const TensorInfo& tensor : file.tensors()) {
    const auto size = nbytes(tensor.dtype, tensor.shape);
    if (size > 1 << 16) continue;  // of a few bytes, through a stride of 0
    elements.resize(size);
    file.read(tensor, elements.data(), elements.size());
  }
  params::count_file(file);
}

void safetensors(const std::string& bytes) {
  read_tensors(folder().write("model.safetensors", bytes));
}

void pt(const std::string& bytes) {
  read_tensors(folder().write("model.pt", bytes));
}

/// The pickle inside of a .pt file that is otherwise whole.
void pickle(const std::string& bytes) {
  std::ostringstream stream;
  ZipWriter zip(stream);
  const std::array<char, 64> elements{};
  zip.add("archive/data.pkl", bytes.data(), bytes.size());
  zip.add("archive/data/0", elements.data(), elements.size());
  zip.add("archive/data/1", elements.data(), 16);
  zip.finish();
  pt(stream.str());
}

void sharded_index(const std::string& bytes) {
  static const auto shards = [] {
    const std::array<float, 4> elements{};
    for (const char* name : {"a", "b"}) {
      write_safetensors(folder().path / (std::string(name) + ".safetensors"),
                        {{.name = name, .dtype = Dtype::F32, .shape = {4}, .data = elements.data()}});
    }
    return 2;
  }();
  static_cast<void>(shards);
  read_tensors(folder().write("model.safetensors.index.json", bytes));
}

void config(const std::string& bytes) {
  ModelConfig::from_json(bytes).validate();
}

void pretrained_config(const std::string& bytes) {
  PretrainedConfig::from_json(bytes);
}

void counted_config(const std::string& bytes) {
  params::count_config(bytes);
}

/// The first byte says which file of a run's folder the rest is.
void run_folder(const std::string& bytes) {
  static const fs::path run = folder().path / "run", checkpoint = run / "checkpoints" / "step-1";
  static Trainer trainer = [] {
    const ModelConfig config{
        .vocab_size = 3, .d_model = 2, .num_heads = 1, .num_layers = 1, .head = Head::token, .num_classes = 2};
    Trainer made(EncoderModel(config), {});
    const Vocabulary vocabulary({"a", "b", "c"}, {"x", "y"}, false);
    RunFolder::create(run).save(made, {.step = 1}, vocabulary, 1);
    return made;
  }();
  static const std::array files{run / "metrics.jsonl",
                                checkpoint / "config.json",
                                checkpoint / "model.safetensors",
                                checkpoint / "training.safetensors",
                                checkpoint / "training.json",
                                checkpoint / "vocabulary.json"};
  require(!bytes.empty(), "no file is named");
  const fs::path& path = files.at(static_cast<unsigned char>(bytes[0]) % files.size());
  struct Restored {
    ~Restored() { std::ofstream(file, std::ios::binary) << before; }
    const fs::path& file;
    std::string before;
  } const restored{path, read_file(path)};
  std::ofstream(path, std::ios::binary) << std::string_view(bytes).substr(1);
  if (path.extension() == ".safetensors") {
    load_checkpoint(checkpoint, trainer);  // ten times as slow as the rest
  } else {
    RunFolder::resume(run, find_checkpoint(run));
    Vocabulary::load(checkpoint / "vocabulary.json");
    ModelConfig::load(checkpoint / "config.json");
  }
}

/// The first byte says how lines are read: bit 0 by characters, bits 1 and 2 what the answers are.
void text(const std::string& bytes) {
  require(!bytes.empty(), "nothing says how to read");
  const auto how = static_cast<unsigned char>(bytes[0]);
  const fs::path path = folder().write("text.txt", bytes.substr(1));
  const std::array kinds{Answers::automatic, Answers::token, Answers::sequence};
  const TextDataset data({.train = path,
                          .valid = path,
                          .split = how % 2 == 0 ? Vocabulary::Split::spaces : Vocabulary::Split::chars,
                          .answers = kinds.at(how / 2 % kinds.size())});
  data.training_examples(1, 0, 8);
  data.evaluation_examples(0, data.evaluation_size());
}

struct Reader {
  std::string_view name;
  void (*read)(const std::string& bytes);
};

constexpr std::array kReaders{Reader{"config", config},
                              Reader{"counted_config", counted_config},
                              Reader{"pickle", pickle},
                              Reader{"pretrained_config", pretrained_config},
                              Reader{"pt", pt},
                              Reader{"run_folder", run_folder},
                              Reader{"safetensors", safetensors},
                              Reader{"sharded_index", sharded_index},
                              Reader{"text", text}};

/// Whether the reader takes the bytes; anything but a refusal of ours is a finding.
bool takes(const Reader& reader, const std::string& bytes) {
  try {
    reader.read(bytes);
    return true;
  } catch (const Error&) {
    return false;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace
}  // namespace fuzz_test

#ifdef PRENORM_FUZZ

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* bytes, std::size_t size) {
  using namespace fuzz_test;
  static const Reader& reader = []() -> const Reader& {
    const char* name = std::getenv("PRENORM_FUZZ_READER");
    for (const Reader& each : kReaders) {
      if (name != nullptr && each.name == name) return each;
    }
    std::fputs("PRENORM_FUZZ_READER names no reader\n", stderr);
    std::exit(2);
  }();
  takes(reader, std::string(reinterpret_cast<const char*>(bytes), size));
  return 0;
}

#else

#include "support.h"

namespace fuzz_test {

TEST_CASE("every reader takes or refuses what others write") {
  for (const Reader& reader : kReaders) {
    CAPTURE(reader.name);
    int taken = 0, refused = 0;
    for (const auto& entry : fs::directory_iterator(fs::path(PRENORM_TEST_DATA) / "fuzz" / reader.name)) {
      CAPTURE(entry.path());
      ++(takes(reader, read_file(entry.path())) ? taken : refused);
    }
    CHECK(taken > 0);
    CHECK(refused > 0);
  }
}

}  // namespace fuzz_test

#endif
