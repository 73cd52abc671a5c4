#pragma once

#include <string_view>
#include <vector>

#include "prenorm/params/fields.h"

namespace prenorm::params {

/// A family is a function from the fields of its config.json to the tree of its parts, named by the `model_type` that
/// chooses it. Each follows the class of that name in transformers 5.24. A new one is a function in families_*.cpp, a
/// line in families.cpp, and a row in tests/data/parameters.tsv.
using Family = Component (*)(const Fields&);

struct FamilyRow {
  std::string_view model_type;
  std::string_view classes;  ///< what the names of its classes begin with
  Family count;
};

/// In alphabetical order.
const std::vector<FamilyRow>& families();

Component albert(const Fields& fields);
Component bert(const Fields& fields);
Component bloom(const Fields& fields);
Component deberta_v2(const Fields& fields);
Component distilbert(const Fields& fields);
Component falcon(const Fields& fields);
Component gemma(const Fields& fields);
Component gemma2(const Fields& fields);
Component gemma3(const Fields& fields);
Component gemma3_text(const Fields& fields);
Component gemma3_text_base(const Fields& fields);  ///< without a head: also the text model inside gemma3
Component gpt2(const Fields& fields);
Component gpt_bigcode(const Fields& fields);
Component gpt_neox(const Fields& fields);
Component gptj(const Fields& fields);
Component llama(const Fields& fields);
Component mistral(const Fields& fields);
Component mixtral(const Fields& fields);
Component modernbert(const Fields& fields);
Component opt(const Fields& fields);
Component phi(const Fields& fields);
Component phi3(const Fields& fields);
Component qwen2(const Fields& fields);
Component qwen3(const Fields& fields);
Component qwen3_moe(const Fields& fields);
Component roberta(const Fields& fields);
Component t5(const Fields& fields);
Component vit(const Fields& fields);
Component whisper(const Fields& fields);

}  // namespace prenorm::params
