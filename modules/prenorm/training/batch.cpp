#include "prenorm/training/batch.h"

#include <algorithm>
#include <numeric>

namespace prenorm {

std::int64_t Batch::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

Batch Batch::to(torch::Device device) const {
  return {ids.to(device), targets.to(device), lengths};
}

Batch collate(const std::vector<Example>& examples, bool per_sequence) {
  Batch batch;
  std::int64_t longest = 0;
  for (const auto& example : examples) {
    batch.lengths.push_back(static_cast<std::int64_t>(example.input.size()));
    longest = std::max(longest, batch.lengths.back());
  }
  const auto size = static_cast<std::int64_t>(examples.size());
  const std::int64_t answers = per_sequence ? 1 : longest;
  batch.ids = torch::zeros({size, longest}, torch::kLong);
  batch.targets = torch::full({size, answers}, kIgnored, torch::kLong);
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const auto& example : examples) {
    std::ranges::copy(example.input, ids);
    std::ranges::copy(example.target, targets);
    ids += longest;
    targets += answers;
  }
  if (per_sequence) batch.targets = batch.targets.squeeze(1);
  return batch;
}

}  // namespace prenorm
