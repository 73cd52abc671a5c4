#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "prenorm/module.h"

namespace prenorm {

/// [1,1,T,T] bool: true where the key is not later than the query.
Tensor causal_scores(std::int64_t length, torch::Device device);

/// What attention may look at: one value for everything that hides keys from queries.
///
/// A bool mask is true where a query may attend, as in `scaled_dot_product_attention` and in the course; a floating
/// mask is added to the scores (0 attends, -inf hides). A default mask hides nothing. Masks combine with `&`: a key is
/// seen where every part shows it.
///
/// A query with nothing to attend to has attention weights of 0, and finite gradients. Positions past a sequence's
/// length, where the mask knows lengths, are 0 in every output.
class AttentionMask {
 public:
  AttentionMask() = default;

  /// A dense mask, bool or floating: [T,T], [B,T,T], [B,1,T,T] or [B,H,T,T]; B may be 1, and in four dimensions the
  /// queries' T too. An undefined tensor hides nothing. Throws c10::Error on another type or number of dimensions;
  /// the sizes are checked where the mask is used. There two dimensions are refused when B is T (and not 1): the tensor
  /// may be meant as key padding [B,T].
  AttentionMask(const Tensor& dense);  // NOLINT(google-explicit-constructor): forward(x, tensor) is the common call

  /// The same, by name: two dimensions are [T,T], whatever B is.
  static AttentionMask dense(const Tensor& mask);

  /// Hides keys of each sequence, for all its queries: [B,T], bool (true: a real token) or floating (added: 0 attends,
  /// and -100 or less, of which e^-100 would be left, hides as -inf does). Throws c10::Error when a value is above 0, as
  /// in a mask of 1 and 0; looking makes the host wait for a GPU, which bool does not.
  static AttentionMask padding(const Tensor& keys);

  /// Sequence b has `lengths[b]` tokens, at its start; what follows is padding. Each is at least 0 and at most T.
  static AttentionMask lengths(std::vector<std::int64_t> lengths);

  /// The sequences of an unpadded batch, which lie one after another in one row [1,N,...]: `lengths[b]` tokens that see
  /// their own sequence alone. Combines with `causal`, with nothing else.
  static AttentionMask unpadded(std::vector<std::int64_t> lengths);

  /// Query t sees keys 0..t.
  static AttentionMask causal();

  /// Both masks at once. Two lists of lengths give the smaller ones. Throws c10::Error naming sizes that do not fit.
  AttentionMask operator&(const AttentionMask& other) const;

  // What follows serves attention and whoever stacks it.

  /// The mask made ready for scores [B,H,Tq,Tk] of these options (device, dtype), so that layers in a row share the
  /// work; one that already is comes back as it is. Throws c10::Error naming the sizes when they do not fit.
  AttentionMask prepare(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys,
                        const torch::TensorOptions& options) const;

  /// The same for self-attention of x [B,T,D].
  AttentionMask prepare(const Tensor& x, std::int64_t heads) const {
    return prepare(x.size(0), heads, x.size(1), x.size(1), x.options());
  }

  /// What attention reads of a prepared mask.
  struct Prepared {
    Tensor scores;        ///< bool or floating, broadcastable to [B,H,Tq,Tk]; undefined: nothing more is hidden
    bool causal = false;  ///< the causal mask, not written out in `scores`
    Tensor dead;          ///< bool, broadcastable to [B,H,Tq,1]: queries with nothing to attend to, whose scores are
                          ///< left open so that softmax stays finite; undefined: there are none
    Tensor past;          ///< [B,Tk] bool: positions past the lengths; undefined: there are none
    std::vector<std::int64_t> sequences;  ///< of an unpadded row, not written out in `scores`; empty: there is padding
  };
  const Prepared& prepared() const;

  /// The lengths, where nothing but these and causality hides keys; else null.
  const std::vector<std::int64_t>* only_lengths() const;
  bool is_causal() const { return causal_; }

  /// Throws c10::Error naming the length that does not fit a batch [B,T].
  void check_lengths(std::int64_t batch, std::int64_t length) const;

  /// Which positions hold tokens, [B,T] bool, as far as lengths and padding tell; undefined: all of them.
  Tensor real_tokens(std::int64_t batch, std::int64_t length, torch::Device device) const;

  /// `x`, [B,T,...], with 0 at the positions past each sequence's length.
  Tensor zero_past_lengths(const Tensor& x) const;

 private:
  struct Key {
    std::int64_t batch, queries, keys;
    torch::Device device;
    torch::ScalarType type;
  };

  bool prepared_for(const Key& key) const;
  Tensor past_lengths(std::int64_t batch, std::int64_t length, torch::Device device) const;
  Tensor combined(const Tensor& past, std::int64_t queries, const torch::TensorOptions& options) const;

  Tensor dense_;             // broadcastable to [B,H,Tq,Tk]
  bool maybe_keys_ = false;  // two dimensions came without a name, and may be meant as key padding
  Tensor padding_;           // [B,Tk]
  std::optional<std::vector<std::int64_t>> lengths_, sequences_;
  bool causal_ = false;
  std::shared_ptr<const std::pair<Key, Prepared>> prepared_;
};

}  // namespace prenorm
