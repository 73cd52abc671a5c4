#include "prenorm/training/evaluation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "prenorm/training/batch.h"

namespace prenorm {
namespace {

constexpr std::int64_t kSortedTogether = 16 * kEvaluationSequences;

/// While it lives, the model is in evaluation mode and no gradient is kept.
class Evaluating {
 public:
  explicit Evaluating(EncoderModel model) : model_(std::move(model)), was_training_(model_->is_training()) {
    model_->eval();
  }
  ~Evaluating() { model_->train(was_training_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

  Batch collated(const std::vector<Example>& examples) const {
    return collate(examples, model_->config.head != Head::token).to(model_->embeddings->token->weight.device());
  }

  Tensor logits(const Batch& batch) { return model_(batch.ids, AttentionMask::lengths(batch.lengths)); }

 private:
  torch::NoGradGuard no_grad_;
  EncoderModel model_;
  bool was_training_;
};

/// Calls `use` for pieces of `examples` that are small enough for one batch.
template <typename Use>
void for_each_piece(const std::vector<Example>& examples, const Use& use) {
  std::vector<Example> piece;
  std::int64_t longest = 0;
  for (const Example& example : examples) {
    longest = std::max<std::int64_t>(longest, std::ssize(example.input));
    const auto size = std::ssize(piece) + 1;
    if (size > kEvaluationSequences || (size > 1 && size * longest > kEvaluationTokens)) {
      use(std::exchange(piece, {}));
      longest = std::ssize(example.input);
    }
    piece.push_back(example);
  }
  if (!piece.empty()) use(piece);
}

}  // namespace

Tensor exact_sequences(const Tensor& logits, const Tensor& targets) {
  const Tensor wrong = (logits.argmax(-1) != targets) & (targets != kIgnored);  // [B,T] or [B]
  return (targets.dim() == 2 ? ~wrong.any(1) : ~wrong).sum();
}

std::optional<Score> evaluate(EncoderModel model, const Dataset& dataset, const std::function<bool()>& interrupted) {
  Evaluating evaluating(model);
  Tensor sums = torch::zeros({4}, torch::kDouble);  // loss, exact sequences, right answers, answers with a loss
  std::int64_t answers = 0;
  bool stopped = false;
  const auto size = dataset.evaluation_size();
  for (std::int64_t first = 0; first < size; first += kSortedTogether) {
    auto examples = dataset.evaluation_examples(first, std::min(kSortedTogether, size - first));
    // Sequences of like lengths together waste less on padding.
    std::ranges::stable_sort(examples, {}, [](const Example& example) { return example.input.size(); });
    for_each_piece(examples, [&](const std::vector<Example>& piece) {
      stopped = stopped || (interrupted && interrupted());
      if (stopped) return;
      const Batch batch = evaluating.collated(piece);
      const Tensor logits = evaluating.logits(batch);
      const Tensor known = batch.targets.masked_fill(batch.targets == kUnknownAnswer, kIgnored);
      const Tensor loss = torch::nn::functional::cross_entropy(
          logits.flatten(0, -2), known.flatten(),
          torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kIgnored).reduction(torch::kSum));
      const Tensor right = (logits.argmax(-1) == batch.targets).sum();
      const Tensor exact = exact_sequences(logits, batch.targets), judged = (known != kIgnored).sum();
      sums += torch::stack({loss.to(torch::kDouble), exact, right, judged}).cpu();
      for (const auto& example : piece) answers += std::ssize(example.target);
    });
    if (stopped) return std::nullopt;
  }
  TORCH_CHECK(sums[3].item<double>() > 0, "training has none of the answers of the evaluation examples");
  const auto sum = [&](int i) { return sums[i].item<double>(); };
  return Score{sum(0) / sum(3), sum(1) / static_cast<double>(size), sum(2) / static_cast<double>(answers)};
}

std::vector<std::vector<std::int64_t>> predict(EncoderModel model, const std::vector<Example>& examples) {
  Evaluating evaluating(model);
  std::vector<std::vector<std::int64_t>> predictions;
  for_each_piece(examples, [&](const std::vector<Example>& piece) {
    const Batch batch = evaluating.collated(piece);
    Tensor answers = evaluating.logits(batch).argmax(-1).to(torch::kCPU);
    const bool per_sequence = answers.dim() == 1;
    if (per_sequence) answers = answers.unsqueeze(1);
    for (std::int64_t b = 0; b < batch.size(); ++b) {
      const auto* row = answers[b].const_data_ptr<std::int64_t>();
      predictions.emplace_back(row, row + (per_sequence ? 1 : batch.lengths[static_cast<size_t>(b)]));
    }
  });
  return predictions;
}

double chance(const Dataset& dataset) {
  std::map<std::vector<std::int64_t>, std::int64_t> frequency;
  std::int64_t most = 0;
  const auto size = dataset.evaluation_size();
  for (std::int64_t first = 0; first < size; first += kSortedTogether) {
    for (auto& example : dataset.evaluation_examples(first, std::min(kSortedTogether, size - first))) {
      if (std::ranges::find(example.target, kUnknownAnswer) != example.target.end()) continue;
      most = std::max(most, ++frequency[std::move(example.target)]);
    }
  }
  return static_cast<double>(most) / static_cast<double>(size);
}

}  // namespace prenorm
