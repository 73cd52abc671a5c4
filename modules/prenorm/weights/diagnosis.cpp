#include "prenorm/weights/diagnosis.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "prenorm/tensor_file/text.h"
#include "prenorm/weights/state.h"

namespace prenorm::detail {
namespace {

struct KnownLayout {
  const char* whose;
  const char* call;
  Layout layout;
};

const std::vector<KnownLayout>& known_layouts() {
  static const std::vector<KnownLayout> layouts{
      {"this library", "{}", {}},
      {"the course with w_q, w_k, w_v, w_o apart", "course_layout()", course_layout()},
      {"torch.nn.TransformerEncoder", "torch_layout()", torch_layout()},
      {"BERT and RoBERTa", "bert_layout()", bert_layout()},
      {"DistilBERT", "distilbert_layout()", distilbert_layout()},
      {"GPT-2", "gpt2_layout()", gpt2_layout()}};
  return layouts;
}

/// Names in the keys of files that hold no model, or not a whole one, and what such files hold.
const std::map<std::string, std::string> kOtherFiles{{"exp_avg", "an optimizer's state"},
                                                     {"exp_avg_sq", "an optimizer's state"},
                                                     {"momentum_buffer", "an optimizer's state"},
                                                     {"square_avg", "an optimizer's state"},
                                                     {"lora_A", "a LoRA adapter"},
                                                     {"lora_B", "a LoRA adapter"}};

/// What a file with such a key holds; empty: a model.
std::string other_file(const std::string& key) {
  std::istringstream stream(key);
  for (std::string name; std::getline(stream, name, '.');) {
    const auto known = kOtherFiles.find(name);
    if (known != kOtherFiles.end()) return known->second;
  }
  return "";
}

using Keys = std::set<std::string>;

/// How many of `keys` are one of `wanted` behind a prefix, by prefix ("" or "a.b.").
std::map<std::string, size_t> prefixes(const Keys& keys, const Keys& wanted) {
  size_t longest = 0;
  for (const auto& key : wanted) longest = std::max(longest, key.size());
  std::map<std::string, size_t> counts;
  for (const auto& key : keys) {
    for (size_t at = 0;; ++at) {
      if (key.size() - at <= longest && wanted.contains(key.substr(at))) ++counts[key.substr(0, at)];
      at = key.find('.', at);
      if (at == std::string::npos) break;
    }
  }
  return counts;
}

/// A way to see the file in which many of the module's keys find theirs.
struct Match {
  size_t found = 0;
  const KnownLayout* layout = nullptr;  ///< null: as the caller gave it
  bool part = false;                    ///< the prefixes are the module's, of which the file holds only a part
  std::vector<std::string> prefixes = {};
};

/// The best of `best` and what the prefixes say; of equally good ones the first.
void improve(Match& best, const std::map<std::string, size_t>& counts, const KnownLayout* layout, bool part) {
  size_t most = 0;
  for (const auto& [prefix, count] : counts) most = std::max(most, count);
  if (most <= best.found) return;
  best = {.found = most, .layout = layout, .part = part};
  for (const auto& [prefix, count] : counts) {
    if (count == most) best.prefixes.push_back(prefix.substr(0, prefix.rfind('.')));
  }
}

Keys wanted_keys(const std::vector<std::string>& ours, const Layout& layout) {
  Keys wanted;
  for (const auto& name : ours) {
    for (const auto& key : file_keys(layout, name).names) wanted.insert(canonical(key));
  }
  return wanted;
}

std::string text_of(const Match& match, const Keys& keys, const std::string& given_prefix) {
  std::string text;
  if (match.layout != nullptr) {
    text = std::string("this is the layout of ") + match.layout->whose + " (.layout = " + match.layout->call + ")";
  }
  if (!match.part && match.prefixes == std::vector{given_prefix}) return text;
  if (!text.empty()) text += ", and ";
  const std::string names = listed(match.prefixes);
  const std::string one_of = match.prefixes.size() > 1 ? "one of " : "";
  if (match.part) return text + "the file holds a part of the module: " + one_of + names;
  const std::string& prefix = match.prefixes.front();
  if (prefix.empty()) return text + "the keys do not have the prefix \"" + given_prefix + "\"";
  const bool all = std::ranges::all_of(keys, [&](const auto& key) { return key.starts_with(prefix + "."); });
  return text + (all ? "all keys have" : "the module's keys have") + " the prefix " + one_of + names +
         " (.prefix = " + one_of + names + ")";
}

/// The best explanation by the options that the caller could have given, better than those that he gave.
Match best_match(const std::vector<std::string>& ours, const Keys& keys, const Layout& given,
                 const std::string& given_prefix) {
  const Keys wanted = wanted_keys(ours, given);
  const auto counts = prefixes(keys, wanted);
  const auto as_given = counts.find(given_prefix.empty() ? "" : given_prefix + ".");
  Match best{.found = as_given == counts.end() ? 0 : as_given->second};
  improve(best, counts, nullptr, false);
  improve(best, prefixes(wanted, keys), nullptr, true);
  for (const auto& known : known_layouts()) {
    const Keys renamed = wanted_keys(ours, known.layout);
    improve(best, prefixes(keys, renamed), &known, false);
    improve(best, prefixes(renamed, keys), &known, true);
  }
  if (2 * best.found < std::min(wanted.size(), keys.size())) best.prefixes.clear();  // chance
  return best;
}

}  // namespace

std::string likely_cause(const std::vector<std::string>& ours, const std::vector<std::string>& theirs,
                         const LoadOptions& options) {
  Keys keys;
  std::map<std::string, size_t> others;
  for (const auto& name : theirs) {
    const std::string other = other_file(name);
    if (other.empty()) {
      keys.insert(canonical(name));
    } else {
      ++others[other];
    }
  }
  if (!options.rename) {
    const std::string prefix = canonical(options.prefix);
    const Match best = best_match(ours, keys, options.layout, prefix);
    if (!best.prefixes.empty()) return text_of(best, keys, prefix);
  }
  for (const auto& [what, count] : others) {
    if (2 * count >= theirs.size()) return "the file holds " + what;
  }
  return "";
}

std::string listed(const std::vector<std::string>& names, bool quoted) {
  constexpr size_t kMost = 10;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i > 0 ? ", " : "") + (quoted ? std::string(InQuotes(names[i])) : names[i]);
  }
  if (names.size() > kMost) text += ", and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

}  // namespace prenorm::detail
