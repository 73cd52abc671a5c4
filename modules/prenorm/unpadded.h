#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "prenorm/attention_mask.h"

namespace prenorm {

/// A batch without its padding: the N tokens of all sequences in one row. On real text more than half of a padded batch
/// is padding, and only attention has to know to which sequence a token belongs.
class Unpadded {
 public:
  /// Of x [B,T,...] and what hides its keys. None where more than lengths and causality does, and where there is too
  /// little padding for the way there and back to pay. Throws c10::Error when the lengths do not fit x.
  static std::optional<Unpadded> of(const Tensor& x, const AttentionMask& mask);

  /// Of sequences that lie in the row in this order.
  Unpadded(std::vector<std::int64_t> lengths, bool causal, torch::Device device);

  Tensor pack(const Tensor& x) const;                  ///< [B,T,...] -> [1,N,...]
  Tensor pad(const Tensor& x) const;                   ///< [1,N,...] -> [B,T,...], 0 past each length
  const AttentionMask& mask() const { return mask_; }  ///< of the row

 private:
  Unpadded(const std::vector<std::int64_t>& lengths, const std::vector<size_t>& order, std::int64_t longest,
           bool causal, torch::Device device);

  std::int64_t batch_, longest_;
  Tensor places_;  // [N], where each token of the row lies among the B * T
  AttentionMask mask_;
};

}  // namespace prenorm
