#include "prenorm/training/trainer.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "prenorm/training/evaluation.h"

namespace prenorm {

template <>
const std::vector<std::pair<std::string, Precision>>& enum_names() {
  static const std::vector<std::pair<std::string, Precision>> names{{"float32", Precision::float32},
                                                                    {"bfloat16", Precision::bfloat16}};
  return names;
}

namespace {

/// While it lives, this thread computes on the device in bfloat16, if that is the precision.
class Autocast {
 public:
  Autocast(c10::DeviceType device, Precision precision)
      : device_(device),
        on_(precision == Precision::bfloat16),
        was_on_(at::autocast::is_autocast_enabled(device)),
        type_(at::autocast::get_autocast_dtype(device)) {
    if (!on_) return;
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
  }
  ~Autocast() {
    if (!on_) return;
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_on_);
    at::autocast::set_autocast_dtype(device_, type_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool on_, was_on_;
  at::ScalarType type_;
};

/// Some sequences of a batch, padded to the longest of them.
Batch rows(const Batch& batch, std::int64_t first, std::int64_t count) {
  const auto begin = batch.lengths.begin() + first;
  Batch part{batch.ids.narrow(0, first, count), batch.targets.narrow(0, first, count), {begin, begin + count}};
  const auto longest = *std::ranges::max_element(part.lengths);
  part.ids = part.ids.narrow(1, 0, longest);
  if (part.targets.dim() == 2) part.targets = part.targets.narrow(1, 0, longest);
  return part;
}

}  // namespace

bool StepResult::finite() const {
  return std::isfinite(loss) && std::isfinite(gradient_norm);
}

Trainer::Trainer(EncoderModel model, const TrainingOptions& options)
    : model_(std::move(model)), options_(options), optimizer_(model_->named_parameters(), options.adamw) {
  TORCH_CHECK(model_->config.head != Head::none, "a model without a head has no answers to train on");
  check_positive("accumulate", options.accumulate);
}

StepResult Trainer::step(const Batch& batch) {
  TORCH_CHECK(batch.size() > 0, "the batch has no sequences");
  model_->train();
  optimizer_.zero_grad();
  const auto device = model_->embeddings->token->weight.device();
  const auto answers = (batch.targets != kIgnored).sum().item<double>();  // of the whole batch, so that parts add up
  Tensor loss = torch::zeros({}, torch::dtype(torch::kDouble).device(device)), exact = torch::zeros_like(loss);
  const auto parts = std::min(options_.accumulate, batch.size()), part_size = (batch.size() + parts - 1) / parts;
  for (std::int64_t first = 0; first < batch.size(); first += part_size) {
    const Batch part = rows(batch, first, std::min(part_size, batch.size() - first)).to(device);
    Tensor logits;  // [B,T,C] or [B,C]
    {
      const Autocast autocast(device.type(), options_.precision);
      logits = model_(part.ids, AttentionMask::lengths(part.lengths));
    }
    if (logits.scalar_type() == torch::kBFloat16) logits = logits.to(torch::kFloat);
    const Tensor part_loss = torch::nn::functional::cross_entropy(
        logits.flatten(0, -2), part.targets.flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kIgnored).reduction(torch::kSum));
    (part_loss / answers).backward();
    loss += part_loss.detach();
    exact += exact_sequences(logits.detach(), part.targets);
  }

  StepResult result{.learning_rate = learning_rate(options_.schedule, steps_done_), .tokens = batch.tokens()};
  const Tensor norm = optimizer_.clip_gradients(options_.clip_norm);
  const Tensor seen = torch::stack({loss, exact, norm.to(loss.options())}).cpu();  // one wait for the device
  result.loss = seen[0].item<double>() / answers;
  result.accuracy = seen[1].item<double>() / static_cast<double>(batch.size());
  result.gradient_norm = seen[2].item<double>();
  if (!result.finite()) return result;
  optimizer_.step(result.learning_rate);
  ++steps_done_;
  return result;
}

}  // namespace prenorm
