#include "prenorm/tensor_file/pt.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
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
constexpr int kMaxNesting = 3;  // of dicts around a state dict

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
      if (arguments->items.size() > 1 && arguments->items[1]->is(Kind::foreign)) return std::nullopt;
      function = item(*arguments, 0, Kind::global, "function of a tensor").text;
      arguments = &item(*arguments, 2, Kind::list, "arguments of a tensor");
    }
    if (function.starts_with("torch._utils._rebuild_tensor")) return TensorCall{function, arguments};
    if (!function.starts_with("torch._utils._rebuild_parameter")) return std::nullopt;
    call = &item(*arguments, 0, Kind::call, "tensor of a parameter");
  }
  return std::nullopt;
}

/// The value itself, where LibTorch (C++) wrote its type beside it.
const PickleValue& untagged(const PickleValue& value) {
  const bool tagged = value.is(Kind::call) && value.items[0]->is(Kind::global) && !value.items[1]->items.empty() &&
                      value.items[0]->text == "torch.jit._pickle.restore_type_tag";
  return tagged ? *value.items[1]->items[0] : value;
}

/// The foreign class or function that a value is made of at its outside; null when there is none.
const PickleValue* foreign(const PickleValue& value) {
  if (value.is(Kind::foreign)) return &value;
  if (value.is(Kind::object) && value.items[0]->is(Kind::foreign)) return value.items[0];
  if (!value.is(Kind::call)) return nullptr;
  const auto& arguments = value.items[1]->items;  // of a tensor of a class of its own, the second
  return arguments.size() > 1 && arguments[1]->is(Kind::foreign) ? arguments[1] : nullptr;
}

/// `under` names the value: ` under "args"`.
[[noreturn]] void refuse(const PickleValue& value, const std::string& under) {
  fail("refuses ", InQuotes(foreign(value)->text), under,
       ": only tensors and plain Python values are read, nothing is executed");
}

/// Of a value that stands where a state dict should.
[[noreturn]] void refuse_for_state_dict(const PickleValue& value, const std::string& under) {
  require(!value.is(Kind::object), "is a whole pickled module or object", under, " (class ",
          InQuotes(foreign(value)->text), "); save model.state_dict() instead of the model");
  refuse(value, under);
}

std::string key_name(const PickleValue& key) {
  if (key.is(Kind::text)) return std::string(key.text);
  return key.is(Kind::integer) ? std::to_string(key.integer) : "?";
}

/// The keys at these places of a dict, which has the path before them, in quotes.
std::string listed(const PickleValue& dict, const std::vector<std::size_t>& places, const std::string& path) {
  constexpr std::size_t kMost = 10;
  std::string text;
  for (std::size_t n = 0; n < std::min(places.size(), kMost); ++n) {
    text += (n > 0 ? ", " : "") + std::string(InQuotes(path + key_name(*dict.items[places[n]])));
  }
  return places.size() > kMost ? text + ", ..." : text;
}

/// Not a score, nor the state of a random generator: what scripts save beside the weights.
bool is_weight(const TensorCall& call) {
  const auto& arguments = call.arguments->items;
  if (arguments.size() < 3 || !arguments[0]->is(Kind::persistent)) return true;
  const std::vector<const PickleValue*>& storage = arguments[0]->items[0]->items;
  const bool bytes = storage.size() > 1 && storage[1]->text == "torch.ByteStorage";
  return arguments[2]->items.size() > (bytes ? 1 : 0);
}

/// Finds the state dict among the dicts that a training script saved.
class StateDictSearch {
 public:
  /// The place in `dict` of the one entry that is a state dict, or has one at most `depth` levels down; nothing when
  /// `dict` itself is one. One of the usual name goes before others. Throws Error naming several.
  std::optional<std::size_t> find(const PickleValue& dict, const std::string& path, int depth) {
    const auto place = find(dict, path, depth, true);
    return place || tensors(dict, false) > 0 ? place : find(dict, path, depth, false);
  }

  static std::size_t tensors(const PickleValue& dict, bool weights_only) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const auto call = dict.items[i]->is(Kind::text) ? tensor_call(*dict.items[i + 1]) : std::nullopt;
      if (call && (!weights_only || is_weight(*call))) ++count;
    }
    return count;
  }

 private:
  std::optional<std::size_t> find(const PickleValue& dict, const std::string& path, int depth, bool weights_only) {
    std::vector<std::size_t> usual, others;
    std::size_t most = 0;
    for (std::size_t i = 0; depth > 0 && i < dict.items.size(); i += 2) {
      const PickleValue& value = untagged(*dict.items[i + 1]);
      if (!dict.items[i]->is(Kind::text) || !value.is(Kind::dict)) continue;
      const std::string_view key = dict.items[i]->text;
      const std::size_t found = largest(value, depth - 1, weights_only);
      const bool is_usual = key == "model" || key == "state_dict" || key == "model_state_dict";
      if (found == 0 && !(is_usual && largest(value, 0, false) > 0)) continue;
      (is_usual ? usual : others).push_back(i);
      most = std::max(most, found);
    }
    const auto& places = usual.empty() ? others : usual;
    if (places.empty() || (usual.empty() && tensors(dict, true) > most)) return std::nullopt;
    if (places.size() == 1) return places[0];
    fail("holds several state dicts, ", listed(dict, places, path),
         ": name the one to read (LoadOptions::entry, params --entry)");
  }

  /// Tensors in the largest dict of them at most `depth` levels down; none in the state of an optimizer.
  std::size_t largest(const PickleValue& dict, int depth, bool weights_only) {
    const auto [known, added] = known_.try_emplace({&dict, depth, weights_only}, 0);
    if (!added) return known->second;
    std::size_t most = tensors(dict, weights_only);
    bool state = false, groups = false;
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      if (!dict.items[i]->is(Kind::text)) continue;
      const std::string_view key = dict.items[i]->text;
      state = state || key == "state";
      groups = groups || key == "param_groups";
      const PickleValue& value = untagged(*dict.items[i + 1]);
      if (depth > 0 && value.is(Kind::dict)) most = std::max(most, largest(value, depth - 1, weights_only));
    }
    return known->second = state && groups ? 0 : most;
  }

  std::map<std::tuple<const PickleValue*, int, bool>, std::size_t> known_ = {};
};

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

  /// The tensors of a dict, or of the dict that a training script put the state dict under: the one called `entry`
  /// (keys with dots between them), or else the only one.
  void state_dict(const PickleValue& root, std::string_view entry) {
    const PickleValue* dict = &untagged(root);
    std::string path;
    StateDictSearch search;
    for (int depth = kMaxNesting;; --depth) {
      if (foreign(*dict)) refuse_for_state_dict(*dict, under(path));
      require(dict->is(Kind::dict), "holds no state dict but ",
              tensor_call(*dict) ? "a single tensor" : "another Python value", under(path),
              "; save a dict of names and tensors");
      const auto nested = entry.empty() ? search.find(*dict, path, depth) : wanted(*dict, entry);
      if (!nested) break;
      for (std::size_t i = 0; i < dict->items.size(); i += 2) {
        if (i != *nested) contents_.skipped.push_back(spend(path + key_name(*dict->items[i])));
      }
      path += key_name(*dict->items[*nested]) + ".";
      dict = &untagged(*dict->items[*nested + 1]);
    }
    if (StateDictSearch::tensors(*dict, false) == 0) fail_without_tensors(*dict, path);
    for (std::size_t i = 0; i < dict->items.size(); i += 2) {
      const PickleValue& value = *dict->items[i + 1];
      const std::string name = spend(key_name(*dict->items[i]));
      if (foreign(value)) refuse(value, under(path + name + "."));
      if (dict->items[i]->is(Kind::text) && tensor_call(value)) {
        add(name, value, "data/");
      } else {
        contents_.skipped.push_back(path + name);
      }
    }
  }

  /// The tensors among the constants of a script's code, under the names that they have there.
  void constants(const PickleValue& list) {
    for (std::size_t i = 0; list.is(Kind::list) && i < list.items.size(); ++i) {
      if (tensor_call(*list.items[i])) add("CONSTANTS.c" + std::to_string(i), *list.items[i], "constants/");
    }
  }

  /// The tensors of a module and of its children, named by their paths.
  void module(const PickleValue& object, const std::string& path, int depth) {
    require(depth < kMaxModuleDepth, "modules are nested more than ", kMaxModuleDepth, " deep");
    if (foreign(object)) refuse(object, under(path));
    require(object.items.size() > 2 && object.items[2]->is(Kind::dict), "module ", InQuotes(path),
            " keeps its state in a way of its own");
    const auto& attributes = object.items[2]->items;
    for (std::size_t i = 0; i < attributes.size(); i += 2) {
      const std::string name = spend(path + key_name(*attributes[i]));
      const PickleValue& value = *attributes[i + 1];
      if (foreign(value)) refuse(value, under(name + "."));
      if (tensor_call(value) && in_state_dict(object, key_name(*attributes[i]))) {
        add(name, value, "data/");
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

  /// ` under "a.b"` of the path "a.b.".
  static std::string under(const std::string& path) {
    return path.empty() ? "" : " under " + std::string(InQuotes(std::string_view(path).substr(0, path.size() - 1)));
  }

  /// The place of the entry with that key, else of the one on the way to it, and takes its key off `entry`.
  static std::size_t wanted(const PickleValue& dict, std::string_view& entry) {
    for (const bool whole : {true, false}) {
      for (std::size_t i = 0; i < dict.items.size(); i += 2) {
        const PickleValue& key = *dict.items[i];
        const std::string number = key.is(Kind::integer) ? std::to_string(key.integer) : "";
        const std::string_view name = key.is(Kind::integer) ? std::string_view(number) : key.text;
        if (!entry.starts_with(name) || (entry.size() > name.size() && (whole || entry[name.size()] != '.'))) continue;
        entry.remove_prefix(std::min(name.size() + 1, entry.size()));
        return i;
      }
    }
    fail("holds no entry ", InQuotes(entry), "; its keys are ", keys(dict));
  }

  [[noreturn]] static void fail_without_tensors(const PickleValue& dict, const std::string& path) {
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const PickleValue& value = *dict.items[i + 1];
      if (foreign(value)) refuse_for_state_dict(value, under(path + key_name(*dict.items[i]) + "."));
    }
    fail("holds no state dict", under(path), ": there are no tensors under its keys ", keys(dict));
  }

  /// A tensor that a script keeps without having registered it is none of its weights.
  bool in_state_dict(const PickleValue& module, const std::string& attribute) {
    return contents_.kind != TensorFile::Kind::torchscript || code_.in_state_dict(module.items[0]->text, attribute);
  }

  static std::string keys(const PickleValue& dict) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < dict.items.size(); i += 2) places.push_back(i);
    return places.empty() ? "(it has none)" : listed(dict, places, "");
  }

  /// `folder` holds the storages.
  void add(const std::string& name, const PickleValue& value, const char* folder) {
    try {
      contents_.tensors.push_back(tensor(name, *tensor_call(value), folder));
    } catch (const Error& error) {
      fail("tensor ", InQuotes(name), ": ", error.what());
    }
  }

  TensorInfo tensor(const std::string& name, const TensorCall& call, const char* folder) {
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
    const std::string record = folder_ + folder + std::string(item(storage, 2, Kind::text, "name of a storage").text);
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
  const Pickle pickle(std::move(bytes), pt_global_known);
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

TensorFile::Contents read_pt(const FileSource& source, std::string_view entry) {
  const auto zip_reader = open_zip(source);
  const ZipReader& zip = *zip_reader;
  const std::string folder = pickle_folder(zip);
  const Pickle pickle(zip.read(folder + "data.pkl", kMaxPickle), pt_global_known);
  const PickleValue& root = pickle.root();

  TensorFile::Contents contents;
  PtReader reader(source, zip, folder, contents);
  if (!root.is(Kind::object) || !root.items[0]->text.starts_with("__torch__.")) {
    contents.kind = TensorFile::Kind::state_dict;
    reader.state_dict(root, entry);
    return contents;
  }
  require(entry.empty(), "is a module, so it has no entry ", InQuotes(entry));
  // LibTorch's archives are TorchScript without code: each class is called Module, and none trains.
  const bool trains = has_attribute(root, "training");
  const bool archive = root.items[0]->text.ends_with(".Module") && !trains;
  contents.kind = archive ? TensorFile::Kind::cpp_archive : TensorFile::Kind::torchscript;
  reader.module(root, "", 0);
  // A frozen module does not train either, unless that was asked for, but its code has constants.
  const std::size_t named = contents.tensors.size();
  if ((!trains || named == 0) && zip.sizes().contains(folder + "constants.pkl")) {
    const Pickle constants(zip.read(folder + "constants.pkl", kMaxPickle), pt_global_known);
    reader.constants(constants.root());
    if (contents.tensors.size() > named) contents.kind = TensorFile::Kind::frozen_torchscript;
  }
  return contents;
}

}  // namespace prenorm
