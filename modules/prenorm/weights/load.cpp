#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/tensor_file/text.h"
#include "prenorm/weights/diagnosis.h"
#include "prenorm/weights/state.h"
#include "prenorm/weights/stream.h"
#include "prenorm/weights/weights.h"

namespace prenorm {
namespace {

using detail::canonical;
using detail::StateEntry;
using detail::StatePart;

/// A tensor of the file and where in the module it goes, a view of the file's shape.
struct Copy {
  const TensorInfo* info;
  Tensor destination;
};

/// Finds for each tensor of a module its place in a file, and what does not fit.
class Plan {
 public:
  Plan(const TensorFile& file, const LoadOptions& options) : file_(file), options_(options) { index_keys(); }

  void add(const std::vector<StateEntry>& entries) {
    std::map<std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>>, size_t> group_of;
    std::vector<std::vector<std::vector<StatePart>>> groups;  // names of one tensor, each its parts
    for (const StateEntry& entry : entries) {
      const Tensor& tensor = entry.tensor;
      const void* identity = tensor.data_ptr();
      if (identity == nullptr) identity = tensor.unsafeGetTensorImpl();  // on the meta device, or empty
      const auto known =
          group_of.emplace(std::tuple(identity, tensor.sizes().vec(), tensor.strides().vec()), groups.size());
      if (known.second) {
        groups.push_back({detail::parts_of(entry, options_.layout)});
      } else {
        groups[known.first->second].push_back(detail::parts_of(entry, options_.layout));
      }
    }
    for (const auto& group : groups) add_group(group);
    std::set<std::string> unexpected;
    for (const auto& [key, sources] : sources_) {
      for (const Source& source : sources) {
        if (!used_.contains(source.info)) unexpected.insert(source.info->name);
      }
    }
    report_.unexpected.assign(unexpected.begin(), unexpected.end());
  }

  /// Throws c10::Error, one line with the likely cause and what does not fit, unless the plan can be carried out.
  void check(const std::vector<StateEntry>& entries, const std::filesystem::path& path) const {
    std::string problems;
    const auto list = [&problems](const char* what, const std::vector<std::string>& items, bool quoted) {
      if (items.empty()) return;
      problems += (problems.empty() ? "" : "; ") + std::string(what) + ": " + detail::listed(items, quoted);
    };
    if (options_.strict || copies_.empty()) {
      list("missing keys", report_.missing, true);
      list("unexpected keys", report_.unexpected, true);
    }
    const std::string cause = problems.empty() ? "" : this->cause(entries);
    list("shape mismatches", shapes_, false);
    list("other mismatches", others_, false);
    TORCH_CHECK(problems.empty(), path.string(), " does not fit the module: ", cause, cause.empty() ? "" : "; ",
                problems);
  }

  /// Throws c10::Error unless every place can be written to: a copy that fails would leave a module half-loaded.
  void check_places() const {
    for (const auto& [info, destination] : copies_) {
      TORCH_CHECK(!destination.is_meta(), "the module is on the meta device, which has no memory to load into");
      TORCH_CHECK(at::has_internal_overlap(destination) != at::MemOverlap::Yes, "the module's tensor for ",
                  std::string(InQuotes(info->name)), " is an expanded one, whose elements share memory");
    }
  }

  const std::vector<Copy>& copies() const { return copies_; }
  LoadReport report() && { return std::move(report_); }

 private:
  std::string cause(const std::vector<StateEntry>& entries) const {
    std::vector<std::string> ours, theirs;
    for (const auto& entry : entries) ours.push_back(entry.name);
    for (const auto& info : file_.tensors()) theirs.push_back(info.name);
    return detail::likely_cause(ours, theirs, options_);
  }

  /// A tensor of the file and its key without the prefix, renamed by the caller's rule.
  struct Source {
    std::string key;
    const TensorInfo* info;
  };

  void index_keys() {
    prefix_ = canonical(options_.prefix);
    if (!prefix_.empty()) prefix_ += '.';
    for (const TensorInfo& info : file_.tensors()) index(info.name, info);
    for (const auto& [name, kept] : file_.metadata()) {  // names of tied tensors that are stored under another
      const TensorInfo* info = file_.find(kept);
      if (info != nullptr && file_.find(name) == nullptr) index(name, *info);
    }
  }

  void index(const std::string& name, const TensorInfo& info) {
    std::string key = canonical(name);
    if (!key.starts_with(prefix_)) return;
    key = key.substr(prefix_.size());
    if (options_.rename) {
      key = options_.rename(key);
    } else if (name.starts_with(prefix_)) {
      key = name.substr(prefix_.size());
    }
    sources_[canonical(key)].push_back({key, &info});
  }

  /// The tensor of exactly that key, else the one that differs by wrappers only.
  const TensorInfo* find(const std::string& key) {
    const auto found = sources_.find(canonical(key));
    if (found == sources_.end()) return nullptr;
    const auto& sources = found->second;
    const auto exact = std::ranges::find(sources, key, &Source::key);
    if (exact != sources.end()) return exact->info;
    for (const Source& source : sources) {
      if (source.info == sources[0].info || source.info->same_elements(*sources[0].info)) continue;
      others_.push_back(std::string(InQuotes(sources[0].info->name)) + " and " +
                        std::string(InQuotes(source.info->name)) + " both stand for " + std::string(InQuotes(key)));
    }
    return sources[0].info;
  }

  std::vector<const TensorInfo*> find(const std::vector<StatePart>& parts) {
    std::vector<const TensorInfo*> found;
    for (const StatePart& part : parts) {
      found.push_back(find(part.key));
      if (found.back() != nullptr) used_.insert(found.back());
    }
    return found;
  }

  /// One tensor of the module under all its names.
  void add_group(const std::vector<std::vector<StatePart>>& names) {
    std::vector<const TensorInfo*> loaded;
    std::vector<std::string> missing;
    bool met = false;
    for (const auto& parts : names) {
      const auto found = find(parts);
      const auto absent = std::ranges::count(found, nullptr);
      auto& list = absent == std::ssize(found) ? missing : report_.missing;
      bool fits = absent == 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (found[i] == nullptr) {
          list.push_back(prefix_ + parts[i].key);
        } else if (!check_part(*found[i], parts[i])) {
          fits = false;
        }
      }
      met = met || absent < std::ssize(found);
      if (!fits) continue;
      if (loaded.empty()) {
        loaded = found;
        for (size_t i = 0; i < parts.size(); ++i) copies_.push_back({found[i], parts[i].view});
      } else {
        check_tied(loaded, found);
      }
    }
    if (!met) report_.missing.insert(report_.missing.end(), missing.begin(), missing.end());
  }

  bool check_part(const TensorInfo& info, const StatePart& part) {
    const std::string name = InQuotes(info.name);
    if (info.shape != part.view.sizes().vec()) {
      std::ostringstream line;
      line << name << " is " << ShapeText(info.shape) << ", expected " << part.view.sizes();
      shapes_.push_back(line.str());
      return false;
    }
    const auto type = detail::torch_type(info.dtype);
    const auto wanted = part.view.scalar_type();
    const bool floating = type && c10::isFloatingType(*type) && c10::isFloatingType(wanted);
    if (type == wanted || (options_.convert_dtype && floating)) return true;
    others_.push_back(name + " is " + std::string(dtype_name(info.dtype)) +
                      (type ? ", expected " + std::string(dtype_name(detail::file_type(wanted).value_or(Dtype::F32)))
                            : ", a type that LibTorch does not have"));
    return false;
  }

  /// The names of one tensor have to hold the same.
  void check_tied(const std::vector<const TensorInfo*>& loaded, const std::vector<const TensorInfo*>& again) {
    for (size_t i = 0; i < std::min(loaded.size(), again.size()); ++i) {
      if (detail::equal_in_file(file_, *loaded[i], *again[i])) continue;
      others_.push_back(std::string(InQuotes(loaded[i]->name)) + " and " + std::string(InQuotes(again[i]->name)) +
                        " are one tensor in the module but differ in the file");
    }
  }

  const TensorFile& file_;
  const LoadOptions& options_;
  std::string prefix_;
  std::map<std::string, std::vector<Source>> sources_;  // by canonical key
  std::set<const TensorInfo*> used_;
  std::vector<Copy> copies_;
  std::vector<std::string> shapes_, others_;
  LoadReport report_;
};

TensorFile open(const std::filesystem::path& path, const LoadOptions& options) {
  TensorFile file = TensorFile::open(path, options.entry);
  TORCH_CHECK(file.kind() != TensorFile::Kind::frozen_torchscript, path.string(),
              ": is frozen TorchScript, whose weights are constants without names; save it before torch.jit.freeze");
  return file;
}

}  // namespace

LoadReport detail::check_state(const std::vector<StateEntry>& entries, const std::filesystem::path& path,
                               const LoadOptions& options) {
  const TensorFile file = open(path, options);
  Plan plan(file, options);
  plan.add(entries);
  plan.check(entries, path);
  return std::move(plan).report();
}

LoadReport detail::load_state(const std::vector<StateEntry>& entries, const std::filesystem::path& path,
                              const LoadOptions& options) {
  const torch::NoGradGuard no_grad;
  const TensorFile file = open(path, options);
  Plan plan(file, options);
  plan.add(entries);
  plan.check(entries, path);
  plan.check_places();
  for (const auto& [info, destination] : plan.copies()) copy_from_file(file, *info, destination);
  return std::move(plan).report();
}

LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path, const LoadOptions& options) {
  return detail::load_state(detail::state_entries(module), path, options);
}

}  // namespace prenorm
