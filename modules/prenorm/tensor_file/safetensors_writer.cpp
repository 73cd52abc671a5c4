#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/json.h"
#include "prenorm/tensor_file/safetensors.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/tensor_file/text.h"
#include "prenorm/tensor_file/writing.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

/// The tensors to store, sorted as the reference sorts them; names of tied ones go into the metadata.
std::vector<const TensorView*> sorted_untied(const std::vector<TensorView>& tensors,
                                             std::map<std::string, std::string>& metadata) {
  std::vector<const TensorView*> sorted;
  for (const TensorView& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const TensorView* a, const TensorView* b) {
    return std::tie(b->dtype, a->name) < std::tie(a->dtype, b->name);
  });
  TiedTensors tied;
  std::erase_if(sorted, [&](const TensorView* tensor) {
    const TensorView& kept = tied.first(*tensor);
    if (&kept == tensor) return false;
    metadata.emplace(tensor->name, kept.name);
    return true;
  });
  return sorted;
}

std::string header_of(const std::vector<const TensorView*>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) header += "\"__metadata__\":" + Json(metadata).dump() + ",";
  std::uint64_t begin = 0;
  for (const TensorView* tensor : tensors) {
    const std::uint64_t end = begin + nbytes(tensor->dtype, tensor->shape);
    const Json info{{"dtype", dtype_name(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {begin, end}}};
    header += Json(tensor->name).dump() + ":" + info.dump() + ",";
    begin = end;
  }
  if (header.back() == ',') header.pop_back();
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  require(header.size() <= kMaxSafetensorsHeader, "the header has ", header.size(), " bytes, safetensors allows ",
          kMaxSafetensorsHeader);
  return header;
}

}  // namespace

void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       std::map<std::string, std::string> metadata, const FetchElements& fetch) {
  std::string header;
  std::vector<const TensorView*> stored;
  try {
    check_views(tensors);
    for (const auto& [key, value] : metadata) {
      require(is_utf8(key) && is_utf8(value), "metadata ", InQuotes(key), " is not UTF-8");
    }
    stored = sorted_untied(tensors, metadata);
    header = header_of(stored, metadata);
  } catch (const Error& error) {
    fail("cannot write ", path.string(), ": ", error.what());
  }
  write_file_atomically(path, [&](std::ostream& stream) {
    const std::uint64_t length = header.size();
    stream.write(reinterpret_cast<const char*>(&length), sizeof length);
    stream.write(header.data(), static_cast<std::streamsize>(header.size()));
    for (const TensorView* tensor : stored) {
      const std::uint64_t size = nbytes(tensor->dtype, tensor->shape);
      if (size == 0) continue;
      const void* bytes = fetch ? fetch(*tensor) : tensor->data;
      stream.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
      require(stream.good(), "cannot write ", path, ": ", std::strerror(errno));
    }
  });
}

}  // namespace prenorm
