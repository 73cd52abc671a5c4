#include "prenorm/tensor_file/tensor_file.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "prenorm/error.h"
#include "prenorm/tensor_file/pt.h"
#include "prenorm/tensor_file/safetensors.h"
#include "prenorm/tensor_file/sharded_index.h"
#include "prenorm/tensor_file/strided.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

using namespace std::string_view_literals;

/// The first bytes of a file; fewer when it is shorter.
std::string first_bytes(const FileSource& source) {
  std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), 512)), '\0');
  source.read(0, bytes.data(), bytes.size());
  return bytes;
}

/// The beginning without a byte order mark and white space.
std::string_view text_start(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  return bytes.substr(std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size()));
}

bool is_html(std::string_view bytes) {
  std::string start(text_start(bytes).substr(0, 9));
  std::transform(start.begin(), start.end(), start.begin(), [](unsigned char c) { return std::tolower(c); });
  return start.starts_with("<html") || start.starts_with("<!doctype");
}

/// Safetensors begins with the length of its header as 64 bits, little-endian, which may look like anything.
bool is_safetensors(std::string_view bytes) {
  return bytes.size() > 8 && bytes[7] == 0 && bytes[8] == '{';
}

bool is_zip(std::string_view bytes) {
  return bytes.starts_with("PK\3\4"sv) || bytes.starts_with("PK\5\6"sv);
}

bool is_json(std::string_view bytes) {
  return text_start(bytes).starts_with("{");
}

/// Throws Error saying what the file is, when it is something known that holds no weights we read.
void refuse_known(std::string_view bytes) {
  require(!bytes.starts_with("version https://git-lfs.github.com/spec"),
          "is a Git LFS pointer, not the weights themselves (git lfs pull fetches them)");
  require(!is_html(bytes), "is an HTML page, not weights (a download that went wrong?)");
  require(!bytes.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv),
          "is a legacy (non-zip) PyTorch pickle; load it in Python and torch.save it again");
  const bool pickle = bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
  require(!pickle, "is a Python pickle, not a file of torch.save; load it in Python and torch.save its state dict");
  using Magic = std::pair<std::string_view, const char*>;
  for (const auto& [start, name] : {Magic{"GGUF", "GGUF"}, Magic{"\x89HDF", "HDF5 (Keras)"}, Magic{"\x1f\x8b", "gzip"},
                                    Magic{"\x93NUMPY", "NumPy"}}) {
    require(!bytes.starts_with(start), "is a ", name, " file; safetensors and PyTorch files are read");
  }
}

fs::path file_in_folder(const fs::path& folder) {
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  fail("the folder holds no model.safetensors or pytorch_model.bin, nor an .index.json of one");
}

TensorFile::Contents read_contents(const FileSource& source, std::string_view entry) {
  require(source.size() > 0, "is empty (0 bytes)");
  const std::string start = first_bytes(source);
  if (is_zip(start)) return read_pt(source, entry);
  require(entry.empty(), "is no file of torch.save, so it has no entry ", InQuotes(entry));
  if (is_safetensors(start)) return read_safetensors(source);
  refuse_known(start);
  return read_safetensors(source);
}

}  // namespace

TensorFile TensorFile::open(const fs::path& path, std::string_view entry) {
  TensorFile file;
  fs::path chosen = path;
  try {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) chosen = file_in_folder(path);
    auto source = std::make_shared<const FileSource>(chosen);
    if (is_json(first_bytes(*source))) {
      file.open_index(chosen, *source, entry);
    } else {
      file.contents_ = read_contents(*source, entry);
      file.files_.push_back(chosen);
      file.sources_.push_back(std::move(source));
    }
  } catch (const Error& error) {
    fail(chosen.string(), ": ", error.what());
  }
  const auto& tensors = file.contents_.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool first = file.index_.emplace(tensors[i].name, i).second;
    require(first, chosen.string(), ": holds two tensors ", InQuotes(tensors[i].name));
  }
  return file;
}

void TensorFile::open_index(const fs::path& path, const FileSource& index_source, std::string_view entry) {
  const ShardedIndex index = read_sharded_index(index_source);
  std::set<std::string> shards;
  for (const auto& [name, shard] : index.weight_map) shards.insert(shard);
  std::set<std::string_view> found;
  for (const std::string& shard : shards) {
    const fs::path shard_path = path.parent_path() / shard;
    std::error_code ignored;  // a name too long for a file, as one that no file has
    require(fs::exists(shard_path, ignored), "names the shard ", InQuotes(shard), ", which is missing");
    Contents contents;
    try {
      sources_.push_back(std::make_shared<const FileSource>(shard_path));
      contents = read_contents(*sources_.back(), entry);
    } catch (const Error& error) {
      fail("shard ", InQuotes(shard), ": ", error.what());
    }
    if (files_.empty()) contents_.kind = contents.kind;
    for (TensorInfo& tensor : contents.tensors) {
      const auto place = index.weight_map.find(tensor.name);
      if (place == index.weight_map.end() || place->second != shard) {
        contents_.skipped.push_back(tensor.name + " in " + shard);
        continue;
      }
      found.insert(place->first);
      tensor.file = files_.size();
      contents_.tensors.push_back(std::move(tensor));
    }
    files_.push_back(shard_path);
    contents_.metadata.merge(contents.metadata);
    for (std::string& name : contents.skipped) contents_.skipped.push_back(std::move(name));
  }
  for (const auto& [name, value] : index.metadata) contents_.metadata[name] = value;
  for (const auto& [name, shard] : index.weight_map) {
    require(found.contains(name), "the shard ", InQuotes(shard), " does not hold the tensor ", InQuotes(name));
  }
}

const TensorInfo* TensorFile::find(const std::string& name) const {
  const auto entry = index_.find(name);
  return entry == index_.end() ? nullptr : &contents_.tensors[entry->second];
}

void TensorFile::read(const TensorInfo& info, void* destination, std::size_t size) const {
  const fs::path& path = files_.at(info.file);
  try {
    const std::uint64_t expected = nbytes(info.dtype, info.shape);
    require(size == expected, "tensor ", InQuotes(info.name), " has ", expected, " bytes, room is given for ", size);
    read_elements(*sources_[info.file], info, static_cast<char*>(destination));
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what());
  }
}

}  // namespace prenorm
