#include "prenorm/training/trainer.h"

#include <algorithm>
#include <utility>

namespace prenorm {
namespace {

bool per_sequence(const EncoderModel& model) {
  return model->config.head != Head::token;
}

torch::Device device_of(const EncoderModel& model) {
  return model->embeddings->token->weight.device();
}

Tensor logits_of(EncoderModel& model, const Batch& batch) {
  return model(batch.ids, AttentionMask::lengths(batch.lengths));  // [B,T,C] or [B,C]
}

}  // namespace

Trainer::Trainer(EncoderModel model, const TrainingOptions& options)
    : model_(std::move(model)), options_(options), optimizer_(model_->parameters(), options.adamw) {
  TORCH_CHECK(model_->config.head != Head::none, "a model without a head has no answers to train on");
}

StepResult Trainer::step(const Batch& host_batch) {
  const Batch batch = host_batch.to(device_of(model_));
  model_->train();
  const Tensor logits = logits_of(model_, batch);
  const Tensor targets = batch.targets.flatten();
  const Tensor loss = torch::nn::functional::cross_entropy(
      logits.flatten(0, -2), targets, torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kIgnored));

  StepResult result;
  result.learning_rate = learning_rate(options_.schedule, steps_done_);
  optimizer_.zero_grad();
  loss.backward();
  if (options_.clip_norm > 0.0) result.gradient_norm = optimizer_.clip_gradients(options_.clip_norm);
  optimizer_.step(result.learning_rate);
  ++steps_done_;

  result.loss = loss.detach();
  const Tensor wrong = (logits.argmax(-1) != batch.targets) & (batch.targets != kIgnored);  // [B,T] or [B]
  result.exact = (per_sequence(model_) ? ~wrong : ~wrong.any(1)).sum();
  return result;
}

std::vector<std::vector<std::int64_t>> predict(EncoderModel model, const std::vector<Example>& examples,
                                               std::int64_t batch_size) {
  const torch::NoGradGuard no_grad;
  const bool was_training = model->is_training();
  model->eval();
  std::vector<std::vector<std::int64_t>> predictions;
  for (size_t first = 0; first < examples.size(); first += static_cast<size_t>(batch_size)) {
    const size_t last = std::min(examples.size(), first + static_cast<size_t>(batch_size));
    const std::vector<Example> chunk(examples.begin() + static_cast<std::ptrdiff_t>(first),
                                     examples.begin() + static_cast<std::ptrdiff_t>(last));
    const Batch batch = collate(chunk, per_sequence(model)).to(device_of(model));
    Tensor answers = logits_of(model, batch).argmax(-1).to(torch::kCPU);
    if (per_sequence(model)) answers = answers.unsqueeze(1);
    for (size_t b = 0; b < chunk.size(); ++b) {
      const auto* row = answers[static_cast<std::int64_t>(b)].const_data_ptr<std::int64_t>();
      predictions.emplace_back(row, row + chunk[b].target.size());
    }
  }
  model->train(was_training);
  return predictions;
}

}  // namespace prenorm
