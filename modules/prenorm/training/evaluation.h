#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "prenorm/model.h"
#include "prenorm/training/dataset.h"

namespace prenorm {

/// How well a model answers the evaluation examples.
struct Score {
  double loss = 0;      ///< mean cross-entropy of the answers that training has, in nats
  double accuracy = 0;  ///< share of the sequences that had every answer right
  double answers = 0;   ///< share of the single answers that were right
};

/// An evaluation batch has at most so many sequences, and so many tokens unless one sequence alone has more.
constexpr std::int64_t kEvaluationSequences = 256, kEvaluationTokens = 16384;

/// Judges the model in evaluation mode, on its device, by every evaluation example; draws no random number, and the
/// mode is put back. `interrupted` is asked now and then; where it says yes there is no score. Throws c10::Error when
/// training has none of the answers.
std::optional<Score> evaluate(EncoderModel model, const Dataset& dataset,
                              const std::function<bool()>& interrupted = {});

/// The classes that the model answers in evaluation mode, for each input one or as many as tokens. The mode is put
/// back.
std::vector<std::vector<std::int64_t>> predict(EncoderModel model, const std::vector<Example>& examples);

/// The share of evaluation examples that the best constant answer gets right; an answer that training never has is none.
double chance(const Dataset& dataset);

/// How many sequences have every answer right, a scalar: logits [B,T,C] and targets [B,T], or [B,C] and [B].
Tensor exact_sequences(const Tensor& logits, const Tensor& targets);

}  // namespace prenorm
