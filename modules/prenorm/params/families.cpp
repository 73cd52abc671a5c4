#include "prenorm/params/families.h"

namespace prenorm::params {

const std::vector<FamilyRow>& families() {
  static const std::vector<FamilyRow> all{{"albert", "Albert", albert},
                                          {"bert", "Bert", bert},
                                          {"bloom", "Bloom", bloom},
                                          {"camembert", "Camembert", roberta},
                                          {"deberta-v2", "DebertaV2", deberta_v2},
                                          {"distilbert", "DistilBert", distilbert},
                                          {"falcon", "Falcon", falcon},
                                          {"gemma", "Gemma", gemma},
                                          {"gemma2", "Gemma2", gemma2},
                                          {"gemma3", "Gemma3", gemma3},
                                          {"gemma3_text", "Gemma3", gemma3_text},
                                          {"gpt2", "GPT2", gpt2},
                                          {"gpt_bigcode", "GPTBigCode", gpt_bigcode},
                                          {"gpt_neox", "GPTNeoX", gpt_neox},
                                          {"gptj", "GPTJ", gptj},
                                          {"llama", "Llama", llama},
                                          {"mistral", "Mistral", mistral},
                                          {"mixtral", "Mixtral", mixtral},
                                          {"modernbert", "ModernBert", modernbert},
                                          {"opt", "OPT", opt},
                                          {"phi", "Phi", phi},
                                          {"phi3", "Phi3", phi3},
                                          {"qwen2", "Qwen2", qwen2},
                                          {"qwen3", "Qwen3", qwen3},
                                          {"qwen3_moe", "Qwen3Moe", qwen3_moe},
                                          {"roberta", "Roberta", roberta},
                                          {"t5", "T5", t5},
                                          {"vit", "ViT", vit},
                                          {"whisper", "Whisper", whisper},
                                          {"xlm-roberta", "XLMRoberta", roberta}};
  return all;
}

}  // namespace prenorm::params
