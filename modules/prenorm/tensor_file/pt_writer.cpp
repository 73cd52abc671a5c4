#include <limits>
#include <unordered_map>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/tensor_file/pt_names.h"
#include "prenorm/tensor_file/strided.h"
#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/tensor_file/text.h"
#include "prenorm/tensor_file/writing.h"
#include "prenorm/tensor_file/zip.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

/// Writes the pickle (protocol 2) of a dict of tensors.
class PickleWriter {
 public:
  void tensor(const TensorView& tensor, const std::string& storage) {
    const PtDtype& type = *pt_dtype(tensor.dtype);
    const bool typed = !type.storage.empty();
    text(tensor.name);
    global(typed ? "torch._utils._rebuild_tensor_v2" : "torch._utils._rebuild_tensor_v3");
    bytes_ += "((";
    text("storage");
    global(typed ? type.storage : "torch.storage.UntypedStorage");
    text(storage);
    text("cpu");
    integer(typed ? numel(tensor.shape) : static_cast<std::int64_t>(nbytes(tensor.dtype, tensor.shape)));
    bytes_ += "tQ";  // the persistent identifier of the storage
    integer(0);
    integers(tensor.shape);
    integers(contiguous_strides(tensor.shape));
    bytes_ += '\x89';  // requires no gradient
    global("collections.OrderedDict");
    bytes_ += ")R";
    if (!typed) global(type.name);
    bytes_ += "tR";
  }

  std::string finish() { return bytes_ + "u."; }

 private:
  void global(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    bytes_.append("c").append(name.substr(0, dot)).append("\n").append(name.substr(dot + 1)).append("\n");
  }

  void text(const std::string& text) {
    bytes_ += 'X';
    number(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }

  void integer(std::int64_t value) {
    if (value <= std::numeric_limits<std::int32_t>::max()) {
      bytes_ += 'J';
      number(static_cast<std::int32_t>(value));
    } else {
      bytes_ += "\x8a\x08";
      number(value);
    }
  }

  void integers(const std::vector<std::int64_t>& values) {
    bytes_ += '(';
    for (const std::int64_t value : values) integer(value);
    bytes_ += 't';
  }

  template <typename Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string bytes_ = "\x80\x02}(";
};

}  // namespace

void write_pt(const fs::path& path, const std::vector<TensorView>& tensors, const FetchElements& fetch) {
  std::vector<const TensorView*> stored;
  PickleWriter pickle;
  try {
    check_views(tensors);
    TiedTensors tied;
    std::unordered_map<const TensorView*, std::string> storages;
    for (const TensorView& tensor : tensors) {
      require(pt_dtype(tensor.dtype) != nullptr, "tensor ", InQuotes(tensor.name), ": PyTorch has no ",
              dtype_name(tensor.dtype));
      const TensorView& first = tied.first(tensor);
      const auto [storage, is_new] = storages.emplace(&first, std::to_string(stored.size()));
      if (is_new) stored.push_back(&first);
      pickle.tensor(tensor, storage->second);
    }
  } catch (const Error& error) {
    fail("cannot write ", path.string(), ": ", error.what());
  }
  write_file_atomically(path, [&](std::ostream& stream) {
    try {
      ZipWriter zip(stream);
      const auto add_text = [&](const std::string& name, const std::string& text) {
        zip.add("archive/" + name, text.data(), text.size());
      };
      add_text("data.pkl", pickle.finish());
      add_text("byteorder", "little");
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const std::uint64_t size = nbytes(stored[i]->dtype, stored[i]->shape);
        const void* bytes = size > 0 && fetch ? fetch(*stored[i]) : stored[i]->data;
        zip.add("archive/data/" + std::to_string(i), bytes, size);
      }
      add_text("version", "3\n");
      zip.finish();
    } catch (const Error& error) {
      fail("cannot write ", path.string(), ": ", error.what());
    }
  });
}

}  // namespace prenorm
