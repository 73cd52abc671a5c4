#include "prenorm/unpadded.h"

#include <algorithm>
#include <numeric>

namespace prenorm {
namespace {

// Of the slots of a padded batch; measured, see `./dev bench`.
constexpr double kWorthwhile = 0.95;

std::vector<size_t> as_they_come(size_t size) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

std::int64_t sum(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::int64_t greatest(const std::vector<std::int64_t>& lengths) {
  return lengths.empty() ? 0 : *std::ranges::max_element(lengths);
}

}  // namespace

std::optional<Unpadded> Unpadded::of(const Tensor& x, const AttentionMask& mask) {
  const auto* lengths = mask.only_lengths();
  if (lengths == nullptr) return std::nullopt;
  mask.check_lengths(x.size(0), x.size(1));
  const std::int64_t tokens = sum(*lengths);
  const double slots = static_cast<double>(x.size(0) * x.size(1));
  if (tokens == 0 || static_cast<double>(tokens) > kWorthwhile * slots) return std::nullopt;
  // Sequences of one length are neighbours, which attention then takes together.
  std::vector<size_t> order = as_they_come(lengths->size());
  std::ranges::stable_sort(order, {}, [&](size_t b) { return (*lengths)[b]; });
  return Unpadded(*lengths, order, x.size(1), mask.is_causal(), x.device());
}

Unpadded::Unpadded(std::vector<std::int64_t> lengths, bool causal, torch::Device device)
    : Unpadded(lengths, as_they_come(lengths.size()), greatest(lengths), causal, device) {}

Unpadded::Unpadded(const std::vector<std::int64_t>& lengths, const std::vector<size_t>& order, std::int64_t longest,
                   bool causal, torch::Device device)
    : batch_(static_cast<std::int64_t>(lengths.size())), longest_(longest) {
  std::vector<std::int64_t> in_row;
  places_ = torch::empty({sum(lengths)}, torch::kLong);
  auto* place = places_.mutable_data_ptr<std::int64_t>();
  for (const size_t b : order) {
    in_row.push_back(lengths[b]);
    std::iota(place, place + lengths[b], static_cast<std::int64_t>(b) * longest);
    place += lengths[b];
  }
  places_ = places_.to(device, /*non_blocking=*/true);
  mask_ = AttentionMask::unpadded(std::move(in_row));
  if (causal) mask_ = mask_ & AttentionMask::causal();
}

Tensor Unpadded::pack(const Tensor& x) const {
  return x.flatten(0, 1).index_select(0, places_).unsqueeze(0);
}

Tensor Unpadded::pad(const Tensor& x) const {
  auto sizes = x.sizes().vec();
  sizes[0] = batch_ * longest_;
  sizes.erase(sizes.begin() + 1);
  // index_copy would keep x for backward, only to know its shape.
  return torch::zeros(sizes, x.options()).index_put_({places_}, x.squeeze(0)).unflatten(0, {batch_, longest_});
}

}  // namespace prenorm
