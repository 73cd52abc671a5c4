#include "prenorm/params/file_count.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <sstream>
#include <unordered_map>

#include "prenorm/error.h"
#include "prenorm/tensor_file/file_source.h"

namespace prenorm::params {
namespace {

constexpr std::size_t kMaxLevels = 24;  // of dots in a name; hostile ones have thousands

std::string shape_text(const TensorInfo& tensor) {
  std::ostringstream text;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) text << (i > 0 ? "*" : "") << tensor.shape[i];
  if (tensor.shape.empty()) text << "scalar";
  return text.str();
}

/// Modules while they are being filled; children keep the order in which they came.
struct Module {
  Component leaf = {};
  std::vector<Module> children = {};
  std::unordered_map<std::string, std::size_t> places = {};

  Module& child(const std::string& name) {
    const auto [place, added] = places.emplace(name, children.size());
    if (added) children.push_back({.leaf = {.name = name}});
    return children[place->second];
  }
};

void insert(Module& root, const std::string& name, Count elements, std::string formula) {
  Module* module = &root;
  std::size_t begin = 0;
  for (std::size_t level = 1; level < kMaxLevels; ++level) {
    const std::size_t dot = name.find('.', begin);
    if (dot == std::string::npos) break;
    module = &module->child(name.substr(begin, dot - begin));
    begin = dot + 1;
  }
  Component& leaf = module->child(name.substr(begin)).leaf;
  leaf.own += elements;
  leaf.formula = std::move(formula);
}

std::optional<std::int64_t> number(const std::string& name) {
  std::int64_t value = 0;
  const char* end = name.data() + name.size();
  const bool digits = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0]));
  if (digits && std::from_chars(name.data(), end, value).ptr == end) return value;
  return std::nullopt;
}

/// A component, and a text that is equal for those of equal parts, in whatever order these came.
struct Signed {
  Component component;
  std::string signature;
};

/// Numbered modules that follow each other and are alike become one, with copies: "0-31".
Signed merged(const Module& module) {
  std::vector<Signed> parts;
  for (const Module& child : module.children) parts.push_back(merged(child));
  std::stable_sort(parts.begin(), parts.end(), [](const Signed& a, const Signed& b) {
    const auto x = number(a.component.name);
    const auto y = number(b.component.name);
    return x && y ? *x < *y : x.has_value() && !y.has_value();
  });
  Signed result{module.leaf, ""};
  std::vector<std::string> signatures;
  std::int64_t last = -2;
  for (Signed& part : parts) {
    const auto index = number(part.component.name);
    Component* before = signatures.empty() ? nullptr : &result.component.children.back();
    if (index && before != nullptr && *index == last + 1 && signatures.back() == part.signature) {
      before->name = before->name.substr(0, before->name.find('-')) + "-" + part.component.name;
      before->copies += 1;
      before->active_copies += 1;
    } else {
      signatures.push_back(std::move(part.signature));
      result.component.children.push_back(std::move(part.component));
    }
    last = index.value_or(-2);
  }
  for (std::size_t i = 0; i < signatures.size(); ++i) {
    signatures[i] = result.component.children[i].name + "=" + signatures[i];
  }
  std::sort(signatures.begin(), signatures.end());
  result.signature = std::to_string(module.leaf.own.value()) + module.leaf.formula + "{";
  for (const std::string& signature : signatures) result.signature += signature + ";";
  result.signature += "}";
  return result;
}

bool is_token_table(std::string_view name) {
  for (const char* end : {"embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight",
                          "tok_embeddings.weight", "shared.weight", "token_embedding.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

bool is_output_matrix(std::string_view name) {
  for (const char* end :
       {"lm_head.weight", "embed_out.weight", "proj_out.weight", "decoder.weight", "vocab_projector.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return name == "output.weight";
}

/// Whether two tensors have the same bytes: all of them if they are few, else in pieces spread over them.
bool equal_bytes(const TensorFile& file, const TensorInfo& a, const TensorInfo& b) {
  constexpr std::uint64_t kPiece = 4096;
  constexpr std::uint64_t kPieces = 16;
  const std::uint64_t size = a.end - a.begin;
  if (b.end - b.begin != size) return false;
  const FileSource source_a(file.files()[a.file]);
  const FileSource source_b(file.files()[b.file]);
  std::array<char, kPiece> bytes_a{};
  std::array<char, kPiece> bytes_b{};
  const bool all = size <= kPiece * kPieces;
  const std::uint64_t step = all ? kPiece : (size - kPiece) / (kPieces - 1);
  for (std::uint64_t at = 0; at < size; at += step) {
    const auto count = static_cast<std::size_t>(std::min(kPiece, size - at));
    source_a.read(a.begin + at, bytes_a.data(), count);
    source_b.read(b.begin + at, bytes_b.data(), count);
    if (std::memcmp(bytes_a.data(), bytes_b.data(), count) != 0) return false;
  }
  return true;
}

/// Weights that many models tie and that this file holds apart: output matrices, the tables of T5's stacks, and the
/// second name of BERT's output bias.
void find_copies(const TensorFile& file, FileCount& count) {
  const TensorInfo* table = nullptr;
  for (const TensorInfo& tensor : file.tensors()) {
    const bool better = tensor.name.ends_with("shared.weight") && is_token_table(tensor.name);
    if (is_token_table(tensor.name) && (table == nullptr || better)) table = &tensor;
  }
  const auto add = [&](const TensorInfo& tensor, const TensorInfo& original) {
    if (&tensor == &original || tensor.shape != original.shape || tensor.dtype != original.dtype) return;
    if (tensor.same_elements(original) || tensor.begin == tensor.end) return;  // stored once, or nothing
    if (!tensor.strides.empty() || !original.strides.empty()) return;          // bytes in another order: not compared
    count.copies.push_back({tensor.name, original.name, numel(tensor.shape), equal_bytes(file, tensor, original)});
  };
  for (const TensorInfo& tensor : file.tensors()) {
    if (table != nullptr && (is_token_table(tensor.name) || is_output_matrix(tensor.name))) add(tensor, *table);
    constexpr std::string_view kBias = ".decoder.bias";
    if (tensor.name.ends_with(kBias)) {
      const std::string stem = tensor.name.substr(0, tensor.name.size() - kBias.size());
      if (const TensorInfo* bias = file.find(stem + ".bias")) add(tensor, *bias);
    }
  }
}

/// A metadata entry that claims a total, against what is there.
void compare_metadata(const TensorFile& file, FileCount& count) {
  const auto compare = [&](const char* key, Count found, const char* of) {
    const auto entry = file.metadata().find(key);
    if (entry == file.metadata().end()) return;
    double claimed = 0;
    const std::string& text = entry->second;
    const bool read = std::from_chars(text.data(), text.data() + text.size(), claimed).ec == std::errc();
    if (read && claimed == static_cast<double>(found.value())) return;
    count.notes.push_back(std::string("metadata says ") + key + " " + text.substr(0, 40) + ", the tensors have " +
                          std::to_string(found.value()) + " " + of + ": the tensors count");
  };
  compare("total_size", count.bytes, "bytes");
  compare("total_parameters", count.parameters, "parameters");
  for (const auto& [name, kept] : file.metadata()) {
    if (file.find(name) == nullptr && file.find(kept) != nullptr) {
      count.notes.push_back(name + " is tied to " + kept + " and stored once");
    }
  }
}

struct Layers {
  Count count = 0;
  std::map<std::int64_t, int> sizes;  // of the matrices in one layer of each kind
};

void matrix_sizes(const Component& part, std::map<std::int64_t, int>& sizes) {
  const std::size_t star = part.formula.find('*');
  if (part.own > 0 && star != std::string::npos && part.formula.find('*', star + 1) == std::string::npos) {
    ++sizes[std::stoll(part.formula)];
    ++sizes[std::stoll(part.formula.substr(star + 1))];
  }
  for (const Component& child : part.children) matrix_sizes(child, sizes);
}

/// The outermost numbered modules that hold at least a tenth of the model.
void find_layers(const Component& part, Count total, Layers& layers) {
  Count numbered = 0;
  for (const Component& child : part.children) {
    if (number(child.name.substr(0, child.name.find('-')))) numbered += child.total();
  }
  const bool list = total > 0 && numbered >= total.value() / 10 && numbered > 0;
  for (const Component& child : part.children) {
    if (list && number(child.name.substr(0, child.name.find('-')))) {
      layers.count += child.copies;
      matrix_sizes(child, layers.sizes);
    } else {
      find_layers(child, total, layers);
    }
  }
}

struct Tally {
  Count elements = 0;
  std::int64_t tensors = 0;
};

void add_notes(const std::map<std::string, Tally>& tallies, const char* what, FileCount& count) {
  for (const auto& [name, tally] : tallies) {
    count.notes.push_back(std::string(what) + name + ": " + std::to_string(tally.elements.value()) + " elements in " +
                          std::to_string(tally.tensors) + " tensors");
  }
}

void add_left_out(const TensorFile& file, FileCount& count) {
  constexpr std::size_t kMost = 10;
  const std::vector<std::string>& names = file.skipped();
  std::string line = "left out, as they are no weights or not in the index: ";
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) line += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMost) line += " and " + std::to_string(names.size() - kMost) + " more";
  count.notes.push_back(line);
}

}  // namespace

FileCount count_file(const TensorFile& file, const Groupings& groupings) {
  FileCount count;
  Module root{.leaf = {.name = "model"}};
  std::map<std::string, Tally> buffers, packed, assumed;
  std::map<std::pair<std::size_t, std::uint64_t>, const TensorInfo*> seen;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.begin != tensor.end) {
      const auto [first, added] = seen.emplace(std::pair(tensor.file, tensor.begin), &tensor);
      if (!added && tensor.same_elements(*first->second)) {
        count.notes.push_back(tensor.name + " is " + first->second->name + " under a second name, counted once (tied)");
        continue;
      }
    }
    count.bytes += static_cast<std::int64_t>(tensor.end - tensor.begin);
    count.by_dtype[std::string(dtype_name(tensor.dtype))] += numel(tensor.shape);
    const TensorRole role = tensor_role(file, tensor, groupings);
    if (role.kind == TensorRole::Kind::parameter) {
      count.parameters += role.elements;
      count.has_experts = count.has_experts || tensor.name.find(".experts.") != std::string::npos;
      insert(root, tensor.name, role.elements,
             shape_text(tensor) + (role.format.empty() ? "" : " packed") + " " + std::string(dtype_name(tensor.dtype)));
    } else {
      count.buffers += role.elements;
    }
    const bool constant = role.kind == TensorRole::Kind::constant;
    if (role.kind == TensorRole::Kind::parameter && role.format.empty()) continue;
    const auto add = [&](Tally& tally) {
      tally.elements += role.elements;
      ++tally.tensors;
    };
    add(role.format.empty()
            ? buffers[constant ? "constants of quantization" : tensor.name.substr(tensor.name.rfind('.') + 1)]
            : packed[role.format]);
    if (!role.assumption.empty()) add(assumed[role.assumption]);
  }
  count.tree = merged(root).component;
  add_notes(packed, "counted unpacked, ", count);
  add_notes(buffers, "no parameters, ", count);
  add_notes(assumed, "assumed, as nothing says how they are packed, ", count);
  count.exact = assumed.empty();
  find_copies(file, count);
  compare_metadata(file, count);
  if (!file.skipped().empty()) add_left_out(file, count);
  if (file.kind() == TensorFile::Kind::frozen_torchscript) {
    count.exact = false;
    count.notes.push_back(
        "frozen TorchScript: its weights are constants of the code, equal ones stored once, perhaps with others among "
        "them");
  }
  Layers layers;
  find_layers(count.tree, count.parameters, layers);
  const auto commonest = std::max_element(layers.sizes.begin(), layers.sizes.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
  if (packed.empty() && layers.count > 0 && commonest != layers.sizes.end()) {
    count.layers = layers.count;
    count.d_model = commonest->first;
  }
  return count;
}

}  // namespace prenorm::params
