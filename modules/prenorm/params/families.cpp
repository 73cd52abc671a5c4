#include "prenorm/params/families.h"

namespace prenorm::params {

const std::vector<std::pair<std::string_view, Family>>& families() {
  static const std::vector<std::pair<std::string_view, Family>> all{{"albert", albert},
                                                                    {"bert", bert},
                                                                    {"bloom", bloom},
                                                                    {"camembert", roberta},
                                                                    {"deberta-v2", deberta_v2},
                                                                    {"distilbert", distilbert},
                                                                    {"falcon", falcon},
                                                                    {"gemma", gemma},
                                                                    {"gemma2", gemma2},
                                                                    {"gemma3", gemma3},
                                                                    {"gemma3_text", gemma3_text},
                                                                    {"gpt2", gpt2},
                                                                    {"gpt_bigcode", gpt_bigcode},
                                                                    {"gpt_neox", gpt_neox},
                                                                    {"gptj", gptj},
                                                                    {"llama", llama},
                                                                    {"mistral", mistral},
                                                                    {"mixtral", mixtral},
                                                                    {"modernbert", modernbert},
                                                                    {"opt", opt},
                                                                    {"phi", phi},
                                                                    {"phi3", phi3},
                                                                    {"qwen2", qwen2},
                                                                    {"qwen3", qwen3},
                                                                    {"qwen3_moe", qwen3_moe},
                                                                    {"roberta", roberta},
                                                                    {"t5", t5},
                                                                    {"vit", vit},
                                                                    {"whisper", whisper},
                                                                    {"xlm-roberta", roberta}};
  return all;
}

}  // namespace prenorm::params
