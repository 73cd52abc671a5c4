#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace prenorm {

class FileSource;

// clang-format off
/// The element types of the safetensors reference (0.8), in its order, which is also the order of tensors in a file.
enum class Dtype {
  BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32,
  U32, F32, C64, F64, I64, U64
};
// clang-format on

/// "F32" and so on: the safetensors spelling.
std::string_view dtype_name(Dtype dtype);

/// Size of one element in bits: 4, 6 or a multiple of 8.
int dtype_bits(Dtype dtype);

/// The type with this safetensors spelling, if there is one.
std::optional<Dtype> find_dtype(std::string_view name);

/// Number of elements; 1 for the shape of a scalar, []. Throws Error when a size is negative or 64 bits overflow.
std::int64_t numel(const std::vector<std::int64_t>& shape);

/// Bytes of a contiguous tensor. Throws Error on overflow and when elements smaller than a byte do not fill the last.
std::uint64_t nbytes(Dtype dtype, const std::vector<std::int64_t>& shape);

/// One tensor in a file: what it is and where its elements lie.
struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides = {};  ///< in elements; empty: contiguous in row-major order
  std::size_t file = 0;                    ///< index into `TensorFile::files()`
  std::uint64_t begin = 0;                 ///< first byte of the first element, counted from the start of that file
  std::uint64_t end = 0;                   ///< one past the last byte of the last element
  bool big_endian = false;                 ///< `TensorFile::read` swaps the bytes

  /// Whether both names stand for the same elements, stored once (tied weights in a .pt file).
  bool same_elements(const TensorInfo& other) const;
};

/// What a weights file holds, read without LibTorch and without executing anything in it. Only the header is read at
/// first; elements come from disk when they are asked for. Every rule of the safetensors reference reader holds, and
/// no size is trusted before it is compared with the size of the file.
class TensorFile {
 public:
  enum class Kind {
    safetensors,
    state_dict,   ///< `torch.save` of a state dict (.pt, .pth, .bin), or `torch::pickle_save` of one
    cpp_archive,  ///< `torch::save` of a module, an optimizer or tensors
    torchscript,
    frozen_torchscript  ///< after `torch.jit.freeze`: weights are constants of the code, without their names
  };

  /// Opens a file recognised by its content, a sharded `*.index.json`, or a folder that holds (the first of)
  /// model.safetensors, model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json. Throws Error of
  /// one line that starts with the path and says what the file is instead, what is missing or which tensor is wrong.
  ///
  /// Where a .pt file holds a state dict beside other things, the state dict is read: under "model", "state_dict" or
  /// "model_state_dict", or the only entry with weights. `entry` names another, in deeper dicts as "state.model".
  /// Objects of any class may stand beside it; they are left out. Inside it they are refused.
  static TensorFile open(const std::filesystem::path& path, std::string_view entry = {});

  /// Of the file, or of the shards (the first one's).
  Kind kind() const { return contents_.kind; }

  /// The file, or the shards sorted by name.
  const std::vector<std::filesystem::path>& files() const { return files_; }

  /// In file order; names are unique. Of a module, the names are paths like "layers.0.weight".
  const std::vector<TensorInfo>& tensors() const { return contents_.tensors; }

  /// The tensor of that name; null when there is none.
  const TensorInfo* find(const std::string& name) const;

  /// `__metadata__` of a safetensors file (names of tied tensors that were stored once are keys here, their values the
  /// name kept); "metadata" of an index, numbers as text.
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }

  /// What the file holds beside the tensors and was left out: "optimizer", "epoch", a shard's tensor not in the index.
  const std::vector<std::string>& skipped() const { return contents_.skipped; }

  /// Reads the elements of one of `tensors()` in row-major order into `size` bytes at `destination`, streamed from
  /// disk. Throws Error unless `size` is `nbytes(info.dtype, info.shape)`.
  void read(const TensorInfo& info, void* destination, std::size_t size) const;

  /// What one file holds.
  struct Contents {
    Kind kind = Kind::safetensors;
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
    std::vector<std::string> skipped;
  };

 private:
  void open_index(const std::filesystem::path& path, const FileSource& source, std::string_view entry);

  Contents contents_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::shared_ptr<const FileSource>> sources_;
  std::unordered_map<std::string, std::size_t> index_;  // name -> place in contents_.tensors
};

/// A tensor to be written: contiguous elements in row-major order, little-endian.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  ///< tensors of equal data, dtype and shape are tied: their elements are stored once
};

/// Returns where the elements of a tensor can be read until its next call, for data that the host cannot read itself.
using FetchElements = std::function<const void*(const TensorView&)>;

/// Writes a safetensors file, atomically and durably, byte for byte what the reference writes for the same tensors:
/// sorted by dtype (the last first) and name, elements aligned to 8 bytes. Of tied tensors the first name by the
/// alphabet is stored, and each other one becomes a metadata entry "other": "kept", as in `safetensors.torch`.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       std::map<std::string, std::string> metadata = {}, const FetchElements& fetch = {});

/// Writes a file that Python's `torch.load(path)` opens with its defaults as a dict of tensors, in the given order,
/// atomically and durably. Tied tensors share a storage.
void write_pt(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
              const FetchElements& fetch = {});

}  // namespace prenorm
