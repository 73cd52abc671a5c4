#include "prenorm/attention_mask.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace prenorm {
namespace {

constexpr const char* kDenseShapes = "[T, T], [B, T, T], [B, 1, T, T] or [B, H, T, T]";
constexpr double kHidden = -std::numeric_limits<double>::infinity();
constexpr double kHidesKey = -100.0;  // masks of -1e4 or the lowest number are common

void check_type(const char* name, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == torch::kBool || mask.is_floating_point(), name, " has type ",
              c10::toString(mask.scalar_type()), "; give bool (true: may attend) or floating (added to the scores)");
}

Tensor hidden(const Tensor& mask) {
  return mask.scalar_type() == torch::kBool ? ~mask : mask == kHidden;
}

Tensor as_added(const Tensor& mask, torch::ScalarType type) {
  if (mask.scalar_type() != torch::kBool) return mask.to(type);
  return torch::zeros(mask.sizes(), mask.options().dtype(type)).masked_fill(~mask, kHidden);
}

Tensor with_four_dimensions(const Tensor& dense) {
  if (!dense.defined() || dense.dim() == 4) return dense;
  return dense.dim() == 3 ? dense.unsqueeze(1) : dense.unsqueeze(0).unsqueeze(0);
}

/// Both of two masks that broadcast together; either may be undefined.
Tensor both(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  const Tensor other = b.to(a.device());
  if (a.scalar_type() == torch::kBool && other.scalar_type() == torch::kBool) return a & other;
  const auto type = a.scalar_type() == torch::kBool ? other.scalar_type() : a.scalar_type();
  return as_added(a, type) + as_added(other, type);
}

void check_not_negative(const std::vector<std::int64_t>& lengths) {
  for (size_t b = 0; b < lengths.size(); ++b) {
    TORCH_CHECK(lengths[b] >= 0, "length ", lengths[b], " of sequence ", b, " is negative");
  }
}

}  // namespace

Tensor causal_scores(std::int64_t length, torch::Device device) {
  return torch::ones({length, length}, torch::dtype(torch::kBool).device(device)).tril().unsqueeze(0).unsqueeze(0);
}

AttentionMask::AttentionMask(const Tensor& dense) {
  if (!dense.defined()) return;
  check_type("the attention mask", dense);
  TORCH_CHECK(dense.dim() >= 2 && dense.dim() <= 4, "the attention mask is ", dense.sizes(), "; give ", kDenseShapes,
              " (key padding [B, T]: AttentionMask::padding)");
  dense_ = dense;
  maybe_keys_ = dense.dim() == 2;
}

AttentionMask AttentionMask::dense(const Tensor& mask) {
  AttentionMask named(mask);
  named.maybe_keys_ = false;
  return named;
}

AttentionMask AttentionMask::padding(const Tensor& keys) {
  TORCH_CHECK(keys.defined(), "the padding mask is undefined; give [B, T]");
  check_type("the padding mask", keys);
  TORCH_CHECK(keys.dim() == 2, "the padding mask is ", keys.sizes(), "; give [B, T]");
  AttentionMask mask;
  mask.padding_ = keys;
  if (!keys.is_floating_point()) return mask;
  if (keys.numel() > 0 && !keys.is_meta()) {
    const auto greatest = keys.detach().max().item<double>();
    TORCH_CHECK(greatest <= 0.0, "the padding mask holds ", greatest, ", but a floating one is added to the scores: 0 ",
                "attends, -inf hides; give bool (true: a real token) or no values above 0");
  }
  mask.padding_ = keys.masked_fill(keys <= kHidesKey, kHidden);
  return mask;
}

AttentionMask AttentionMask::lengths(std::vector<std::int64_t> lengths) {
  check_not_negative(lengths);
  AttentionMask mask;
  mask.lengths_ = std::move(lengths);
  return mask;
}

AttentionMask AttentionMask::unpadded(std::vector<std::int64_t> lengths) {
  check_not_negative(lengths);
  AttentionMask mask;
  mask.sequences_ = std::move(lengths);
  return mask;
}

AttentionMask AttentionMask::causal() {
  AttentionMask mask;
  mask.causal_ = true;
  return mask;
}

AttentionMask AttentionMask::operator&(const AttentionMask& other) const {
  const auto check = [](bool fits, const Tensor& a, const Tensor& b) {
    TORCH_CHECK(fits, "masks of ", a.sizes(), " and ", b.sizes(), " do not combine");
  };
  const Tensor ours = with_four_dimensions(dense_), theirs = with_four_dimensions(other.dense_);
  if (ours.defined() && theirs.defined()) check(at::are_expandable(ours.sizes(), theirs.sizes()), dense_, other.dense_);
  if (padding_.defined() && other.padding_.defined()) {
    check(padding_.sizes() == other.padding_.sizes(), padding_, other.padding_);
  }
  AttentionMask mask;
  mask.dense_ = both(ours, theirs);
  mask.maybe_keys_ = maybe_keys_ || other.maybe_keys_;
  mask.padding_ = both(padding_, other.padding_);
  mask.causal_ = causal_ || other.causal_;
  mask.lengths_ = lengths_ ? lengths_ : other.lengths_;
  if (lengths_ && other.lengths_) {
    TORCH_CHECK(lengths_->size() == other.lengths_->size(), "masks of ", lengths_->size(), " and ",
                other.lengths_->size(), " lengths do not combine");
    std::ranges::transform(*lengths_, *other.lengths_, mask.lengths_->begin(),
                           [](auto a, auto b) { return std::min(a, b); });
  }
  mask.sequences_ = sequences_ ? sequences_ : other.sequences_;
  TORCH_CHECK(!mask.sequences_ || !((sequences_ && other.sequences_) || mask.dense_.defined() ||
                                    mask.padding_.defined() || mask.lengths_),
              "an unpadded mask combines with a causal one alone");
  return mask;
}

AttentionMask AttentionMask::prepare(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys,
                                     const torch::TensorOptions& options) const {
  const auto check_dense = [&](bool fits) {
    TORCH_CHECK(fits, "the attention mask is ", dense_.sizes(), ", expected ", kDenseShapes, " with B ", batch, ", H ",
                heads, ", T ", keys, queries == keys ? "" : " (queries: " + std::to_string(queries) + ")",
                maybe_keys_ ? " (key padding [B, T]: AttentionMask::padding)" : "");
  };
  if (dense_.defined() && dense_.dim() == 4) check_dense(dense_.size(1) == heads || dense_.size(1) == 1);

  const Key key{batch, queries, keys, options.device(), c10::typeMetaToScalarType(options.dtype())};
  if (prepared_for(key)) return *this;

  if (dense_.defined()) {
    const auto one_or = [](std::int64_t size, std::int64_t expected) { return size == expected || size == 1; };
    check_dense(dense_.size(-1) == keys && (dense_.dim() < 3 || one_or(dense_.size(0), batch)));
    check_dense(dense_.dim() == 4 ? one_or(dense_.size(2), queries) : dense_.size(-2) == queries);
    TORCH_CHECK(!maybe_keys_ || batch == 1 || batch != queries, "an attention mask of [", queries, ", ", keys,
                "] may be [T, T] or key padding [B, T] where both are ", batch,
                ": say AttentionMask::dense(mask) or AttentionMask::padding(mask)");
  }
  TORCH_CHECK(!padding_.defined() || padding_.sizes() == torch::IntArrayRef({batch, keys}), "the padding mask is ",
              padding_.sizes(), ", expected [B, T] = [", batch, ", ", keys, "]");
  TORCH_CHECK(!causal_ || queries == keys, "a causal mask needs as many queries as keys, got ", queries, " and ", keys);

  Prepared ready;
  if (sequences_) {
    const auto tokens = std::accumulate(sequences_->begin(), sequences_->end(), std::int64_t{0});
    TORCH_CHECK(batch == 1 && queries == tokens && keys == tokens, "the unpadded mask is of ", tokens,
                " tokens in one row, the queries are [B, T] = [", batch, ", ", queries, "] and the keys [", batch, ", ",
                keys, "]");
    ready.sequences = *sequences_;
  }
  ready.past = past_lengths(batch, keys, key.device);
  const bool written_out = dense_.defined() || padding_.defined();
  // Keys past the end are later than any real query, so a causal mask hides them already.
  ready.causal = causal_ && !written_out;
  if (written_out || (ready.past.defined() && !ready.causal)) {
    ready.scores = combined(ready.past, queries, options);
    ready.dead = hidden(ready.scores).all(-1, /*keepdim=*/true);
    ready.scores = ready.scores.masked_fill(ready.dead, ready.scores.scalar_type() == torch::kBool ? 1.0 : 0.0);
  }
  if (ready.past.defined() && queries == keys) {
    const Tensor past = ready.past.unsqueeze(1).unsqueeze(-1);
    ready.dead = ready.dead.defined() ? ready.dead | past : past;
  }
  AttentionMask mask = *this;
  mask.prepared_ = std::make_shared<const std::pair<Key, Prepared>>(key, std::move(ready));
  return mask;
}

bool AttentionMask::prepared_for(const Key& key) const {
  if (!prepared_) return false;
  const auto& [ready, mask] = *prepared_;
  const bool same_type = ready.type == key.type || !mask.scores.defined() || mask.scores.scalar_type() == torch::kBool;
  return ready.batch == key.batch && ready.queries == key.queries && ready.keys == key.keys &&
         ready.device == key.device && same_type;  // under autocast the queries come in another type than the input
}

const AttentionMask::Prepared& AttentionMask::prepared() const {
  TORCH_CHECK(prepared_, "prepare() the mask before reading what attention reads");
  return prepared_->second;
}

Tensor AttentionMask::combined(const Tensor& past, std::int64_t queries, const torch::TensorOptions& options) const {
  const auto on_device = [&](const Tensor& mask) { return mask.defined() ? mask.to(options.device()) : mask; };
  Tensor scores = with_four_dimensions(on_device(dense_));
  if (padding_.defined()) scores = both(scores, on_device(padding_).unsqueeze(1).unsqueeze(1));
  if (past.defined()) scores = both(scores, ~past.unsqueeze(1).unsqueeze(1));
  if (causal_) scores = both(scores, causal_scores(queries, options.device()));
  return scores.scalar_type() == torch::kBool ? scores : scores.to(options.dtype());
}

Tensor AttentionMask::past_lengths(std::int64_t batch, std::int64_t length, torch::Device device) const {
  if (!lengths_) return {};
  if (prepared_ && prepared_->first.batch == batch && prepared_->first.keys == length &&
      prepared_->first.device == device) {
    return prepared_->second.past;
  }
  check_lengths(batch, length);
  if (std::ranges::all_of(*lengths_, [&](std::int64_t own) { return own == length; })) return {};
  return torch::arange(length, device).unsqueeze(0) >=
         torch::tensor(*lengths_).to(device, /*non_blocking=*/true).unsqueeze(1);
}

const std::vector<std::int64_t>* AttentionMask::only_lengths() const {
  return lengths_ && !dense_.defined() && !padding_.defined() ? &*lengths_ : nullptr;
}

void AttentionMask::check_lengths(std::int64_t batch, std::int64_t length) const {
  if (!lengths_) return;
  TORCH_CHECK(static_cast<std::int64_t>(lengths_->size()) == batch, "the mask has ", lengths_->size(),
              " lengths for a batch of ", batch);
  for (size_t b = 0; b < lengths_->size(); ++b) {
    TORCH_CHECK((*lengths_)[b] <= length, "length ", (*lengths_)[b], " of sequence ", b, " exceeds T ", length);
  }
}

Tensor AttentionMask::real_tokens(std::int64_t batch, std::int64_t length, torch::Device device) const {
  const Tensor past = past_lengths(batch, length, device);
  const Tensor real = past.defined() ? ~past : past;
  return padding_.defined() ? both(real, ~hidden(padding_.to(device))) : real;
}

Tensor AttentionMask::zero_past_lengths(const Tensor& x) const {
  if (!lengths_) return x;
  Tensor past = past_lengths(x.size(0), x.size(1), x.device());
  if (!past.defined()) return x;
  while (past.dim() < x.dim()) past = past.unsqueeze(-1);
  return x.masked_fill(past, 0.0);
}

}  // namespace prenorm
