#include "prenorm/tensor_file/pt.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "prenorm/error.h"
#include "prenorm/tensor_file/pickle.h"
#include "prenorm/tensor_file/pt_names.h"
#include "prenorm/tensor_file/script_code.h"
#include "prenorm/tensor_file/strided.h"
#include "prenorm/tensor_file/text.h"
#include "prenorm/tensor_file/zip.h"

namespace prenorm {
namespace {

using Kind = PickleValue::Kind;

constexpr std::uint64_t kMaxPickle = 100'000'000;
constexpr std::uint64_t kMaxExpanded = std::uint64_t{1} << 28;
constexpr int kMaxModuleDepth = 100;
constexpr std::size_t kMaxDimensions = 64;

/// `value[i]` of a tuple or list, of that kind.
const PickleValue& item(const PickleValue& value, std::size_t i, Kind kind, const char* what) {
  require(value.is(Kind::list) && i < value.items.size() && value.items[i]->is(kind), "the pickle gives no ", what);
  return *value.items[i];
}

std::vector<std::int64_t> sizes(const PickleValue& value, const char* what) {
  require(value.items.size() <= kMaxDimensions, "it has more than ", kMaxDimensions, " dimensions");
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    result.push_back(item(value, i, Kind::integer, what).integer);
    require(result.back() >= 0, what, " ", result.back(), " is negative");
  }
  return result;
}

/// The call that builds a tensor, inside those that make a parameter or a subclass of it; null when there is none.
struct TensorCall {
  std::string_view function;
  const PickleValue* arguments;
};

std::optional<TensorCall> tensor_call(const PickleValue& value) {
  const PickleValue* call = &value;
  for (int depth = 0; depth < 8 && call->is(Kind::call) && call->items[0]->is(Kind::global); ++depth) {
    std::string_view function = call->items[0]->text;
    const PickleValue* arguments = call->items[1];
    if (function == "torch._tensor._rebuild_from_type_v2") {
      function = item(*arguments, 0, Kind::global, "function of a tensor").text;
      arguments = &item(*arguments, 2, Kind::list, "arguments of a tensor");
    }
    if (function.starts_with("torch._utils._rebuild_tensor")) return TensorCall{function, arguments};
    if (!function.starts_with("torch._utils._rebuild_parameter")) return std::nullopt;
    call = &item(*arguments, 0, Kind::call, "tensor of a parameter");
  }
  return std::nullopt;
}

class PtReader {
 public:
  PtReader(const FileSource& source, const ZipReader& zip, std::string folder, TensorFile::Contents& contents)
      : source_(source), zip_(zip), folder_(std::move(folder)), contents_(contents), code_(zip, folder_) {
    if (zip_.sizes().contains(folder_ + "byteorder")) {
      const std::string order = zip_.read(folder_ + "byteorder", 16);
      require(order == "little" || order == "big", "byteorder is ", InQuotes(order), ", not little or big");
      big_endian_ = order == "big";
    }
  }

  /// The tensors of a dict, or of the dict that a training script put the state dict under.
  void state_dict(const PickleValue& dict, const std::string& path, int depth) {
    require(dict.is(Kind::dict), "holds no state dict but ",
            tensor_call(dict) ? "a single tensor" : "another Python value", "; save a dict of names and tensors");
    // A tensor beside a state dict is the state of a random generator, or a score.
    const PickleValue* nested = nested_state_dict(dict, depth);
    const bool direct = nested == nullptr;
    if (direct && !has_tensors(dict)) fail("holds no state dict: there are no tensors under its keys ", keys(dict));
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const PickleValue& value = *dict.items[i + 1];
      const std::string name = spend(key_name(*dict.items[i]));
      if (direct && dict.items[i]->is(Kind::text) && tensor_call(value)) {
        add(name, value);
      } else if (&value != nested) {
        contents_.skipped.push_back(path + name);
      } else {
        state_dict(value, path + name + ".", depth - 1);
      }
    }
  }

  /// The tensors of a module and of its children, named by their paths.
  void module(const PickleValue& object, const std::string& path, int depth) {
    require(depth < kMaxModuleDepth, "modules are nested more than ", kMaxModuleDepth, " deep");
    require(object.items.size() > 2 && object.items[2]->is(Kind::dict), "module ", InQuotes(path),
            " keeps its state in a way of its own");
    const auto& attributes = object.items[2]->items;
    for (std::size_t i = 0; i < attributes.size(); i += 2) {
      const std::string name = spend(path + key_name(*attributes[i]));
      const PickleValue& value = *attributes[i + 1];
      if (tensor_call(value) && in_state_dict(object, key_name(*attributes[i]))) {
        add(name, value);
      } else if (value.is(Kind::object)) {
        module(value, name + ".", depth + 1);
      } else if (value.is(Kind::dict) || value.is(Kind::call) || (value.is(Kind::list) && !value.items.empty())) {
        contents_.skipped.push_back(name);
      }
    }
  }

 private:
  /// A short pickle can use one long name, or one module, again and again: names may not outgrow the pickle's limit.
  std::string spend(std::string name) {
    names_ += name.size() + 1;
    require(names_ <= kMaxPickle, "its names have more than ", kMaxPickle, " bytes");
    return name;
  }

  static bool has_tensors(const PickleValue& dict) {
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      if (dict.items[i]->is(Kind::text) && tensor_call(*dict.items[i + 1])) return true;
    }
    return false;
  }

  /// The value under one of the usual names that has tensors, at most `depth` levels down.
  static const PickleValue* nested_state_dict(const PickleValue& dict, int depth) {
    for (const std::string_view wanted : {"model", "state_dict", "model_state_dict"}) {
      for (std::size_t i = 0; depth > 0 && i < dict.items.size(); i += 2) {
        const PickleValue& value = *dict.items[i + 1];
        const bool named = dict.items[i]->is(Kind::text) && dict.items[i]->text == wanted && value.is(Kind::dict);
        if (named && (has_tensors(value) || nested_state_dict(value, depth - 1))) return &value;
      }
    }
    return nullptr;
  }

  /// A tensor that a script keeps without having registered it is none of its weights.
  bool in_state_dict(const PickleValue& module, const std::string& attribute) {
    return contents_.kind != TensorFile::Kind::torchscript || code_.in_state_dict(module.items[0]->text, attribute);
  }

  static std::string key_name(const PickleValue& key) {
    if (key.is(Kind::text)) return std::string(key.text);
    return key.is(Kind::integer) ? std::to_string(key.integer) : "?";
  }

  static std::string keys(const PickleValue& dict) {
    std::string text;
    for (std::size_t i = 0; i < dict.items.size() && i < 20; i += 2) {
      text += (i ? ", " : "") + std::string(InQuotes(key_name(*dict.items[i])));
    }
    return text.empty() ? "(it has none)" : dict.items.size() > 20 ? text + ", ..." : text;
  }

  void add(const std::string& name, const PickleValue& value) {
    try {
      contents_.tensors.push_back(tensor(name, *tensor_call(value)));
    } catch (const Error& error) {
      fail("tensor ", InQuotes(name), ": ", error.what());
    }
  }

  TensorInfo tensor(const std::string& name, const TensorCall& call) {
    const PickleValue& arguments = *call.arguments;
    const PickleValue& storage = *item(arguments, 0, Kind::persistent, "storage of a tensor").items[0];
    const PickleValue* type = &item(storage, 1, Kind::global, "type of a storage");
    // Types without a storage class of their own stand beside an untyped storage.
    const bool untyped = call.function.ends_with("_v3");
    if (untyped) type = &item(arguments, 6, Kind::global, "dtype of a tensor");
    const auto dtype = find_pt_dtype(type->text);
    require(dtype.has_value(), "its type ", type->text, " is not read");
    if (!untyped && arguments.items.size() > 6) {
      require(arguments.items[6]->items.empty(), "it is marked as conjugated or negated; save it resolved");
    }

    TensorInfo info{.name = name, .dtype = *dtype, .shape = sizes(item(arguments, 2, Kind::list, "shape"), "size")};
    info.strides = sizes(item(arguments, 3, Kind::list, "strides"), "stride");
    info.big_endian = big_endian_;
    const std::string record = folder_ + "data/" + std::string(item(storage, 2, Kind::text, "name of a storage").text);
    place(info, record, item(arguments, 1, Kind::integer, "offset into a storage").integer);
    return info;
  }

  /// Finds the bytes of the elements, and that they lie within the storage.
  void place(TensorInfo& info, const std::string& record, std::int64_t first) {
    const auto size = zip_.sizes().find(record);
    require(size != zip_.sizes().end(), "the zip has no record ", InQuotes(record));
    const std::int64_t width = dtype_bits(info.dtype) / 8;
    const std::uint64_t elements = size->second / static_cast<std::uint64_t>(width);
    const std::uint64_t bytes = nbytes(info.dtype, info.shape);
    require(info.strides.size() == info.shape.size(), "it has ", info.shape.size(), " sizes and ", info.strides.size(),
            " strides");
    bool contiguous = true;
    std::int64_t expected_stride = 1;
    std::int64_t last = first;
    bool overflow = first < 0;
    for (std::size_t i = info.shape.size(); i-- > 0 && bytes > 0;) {
      std::int64_t reach = 0;
      overflow |= __builtin_mul_overflow(info.shape[i] - 1, info.strides[i], &reach);
      overflow |= __builtin_add_overflow(last, reach, &last);
      contiguous &= info.shape[i] == 1 || info.strides[i] == expected_stride;
      expected_stride *= info.shape[i];
    }
    const bool inside = bytes == 0 || (!overflow && static_cast<std::uint64_t>(last) < elements);
    require(inside, "its elements of shape ", ShapeText(info.shape), ", offset ", first, " and strides ",
            ShapeText(info.strides), " go beyond its storage of ", size->second, " bytes");
    require(bytes <= std::max(source_.size(), kMaxExpanded), "its shape ", ShapeText(info.shape),
            " repeats a storage of ", size->second, " bytes ", bytes / std::max<std::uint64_t>(size->second, 1),
            " times");
    if (contiguous) info.strides.clear();
    info.begin = offset(record) + (bytes == 0 ? 0 : static_cast<std::uint64_t>(first * width));
    info.end = info.begin + (bytes == 0 ? 0 : static_cast<std::uint64_t>((last - first + 1) * width));
  }

  std::uint64_t offset(const std::string& record) {
    const auto known = offsets_.find(record);
    return known != offsets_.end() ? known->second : offsets_.emplace(record, zip_.offset(record)).first->second;
  }

  const FileSource& source_;
  const ZipReader& zip_;
  const std::string folder_;
  TensorFile::Contents& contents_;
  ScriptCode code_;
  bool big_endian_ = false;
  std::size_t names_ = 0;
  std::unordered_map<std::string, std::uint64_t> offsets_ = {};
};

/// The folder inside the zip that holds data.pkl, with its slash.
std::string pickle_folder(const ZipReader& zip) {
  for (const auto& [name, size] : zip.sizes()) {
    const std::size_t slash = name.find('/');
    if (name == "data.pkl" || (slash != std::string::npos && name.substr(slash) == "/data.pkl")) {
      return name.substr(0, name.size() - std::string_view("data.pkl").size());
    }
  }
  const std::string first =
      zip.sizes().empty() ? "it is empty" : "it holds " + std::string(InQuotes(zip.sizes().begin()->first));
  fail("is a zip without data.pkl, not written by PyTorch (", first, ")");
}

/// How long a truncated file must have been at least. Python writes data.pkl first, and it gives the sizes of storages.
std::uint64_t least_size(const FileSource& source) {
  constexpr std::uint64_t kHeader = 30;
  std::string header(kHeader, '\0');
  if (source.size() <= kHeader) return kHeader;
  source.read(0, header.data(), kHeader);
  const auto length = [&](std::size_t at) {
    return static_cast<std::uint64_t>(static_cast<unsigned char>(header[at]) +
                                      256 * static_cast<unsigned char>(header[at + 1]));
  };
  const std::uint64_t begin = kHeader + length(26) + length(28);
  if (source.size() <= begin) return begin;
  std::string bytes(static_cast<std::size_t>(std::min(source.size() - begin, kMaxPickle)), '\0');
  source.read(begin, bytes.data(), bytes.size());
  std::map<std::string_view, std::uint64_t> storages;
  const Pickle pickle(std::move(bytes), pt_global_allowed);
  for (const PickleValue& value : pickle.values()) {
    if (!value.is(Kind::persistent)) continue;
    const PickleValue& storage = *value.items[0];
    const auto dtype = find_pt_dtype(item(storage, 1, Kind::global, "type of a storage").text);
    const std::uint64_t count = item(storage, 4, Kind::integer, "size of a storage").integer;
    storages[item(storage, 2, Kind::text, "name of a storage").text] = count * (dtype ? dtype_bits(*dtype) / 8 : 1);
  }
  std::uint64_t size = begin;
  for (const auto& [name, bytes_of_storage] : storages) size += bytes_of_storage;
  return size;
}

/// The directory of a zip; it stands at the end.
std::unique_ptr<ZipReader> open_zip(const FileSource& source) {
  try {
    return std::make_unique<ZipReader>(source);
  } catch (const Error& error) {
    std::uint64_t least = 0;
    try {
      least = least_size(source);
    } catch (const Error&) {
    }
    require(least <= source.size(), "truncated: at least ", least, " bytes are expected, the file has ", source.size());
    throw;
  }
}

bool has_attribute(const PickleValue& object, std::string_view name) {
  if (object.items.size() < 3) return false;
  const auto& items = object.items[2]->items;
  return std::any_of(items.begin(), items.end(),
                     [&](const PickleValue* i) { return i->is(Kind::text) && i->text == name; });
}

}  // namespace

TensorFile::Contents read_pt(const FileSource& source) {
  const auto zip_reader = open_zip(source);
  const ZipReader& zip = *zip_reader;
  const std::string folder = pickle_folder(zip);
  const Pickle pickle(zip.read(folder + "data.pkl", kMaxPickle), pt_global_allowed);
  const PickleValue& root = pickle.root();

  TensorFile::Contents contents;
  PtReader reader(source, zip, folder, contents);
  if (root.is(Kind::object) && root.items[0]->text.starts_with("__torch__.")) {
    // LibTorch's archives are TorchScript without code: each class is called Module, and none trains.
    const bool archive = root.items[0]->text.ends_with(".Module") && !has_attribute(root, "training");
    contents.kind = archive ? TensorFile::Kind::cpp_archive : TensorFile::Kind::torchscript;
    reader.module(root, "", 0);
  } else {
    contents.kind = TensorFile::Kind::state_dict;
    reader.state_dict(root, "", 2);
  }
  return contents;
}

}  // namespace prenorm
