#pragma once

#include <cstdint>

#include "prenorm/config.h"
#include "prenorm/module.h"

namespace prenorm {

/// The sinusoidal table (Vaswani et al. 2017, section 3.5), [T,D] of these options: entry (t, 2i) is
/// sin(t / 10000^(2i/D)) and (t, 2i+1) the cosine; an odd D ends on a sine.
Tensor sinusoidal_table(std::int64_t length, std::int64_t d_model, const torch::TensorOptions& options);

struct PositionalEncodingOptions {
  PositionalEncodingOptions(std::int64_t d_model, Position kind = Position::sinusoidal)
      : d_model_(d_model), kind_(kind) {}
  bool operator==(const PositionalEncodingOptions&) const = default;
  /// D, width of the residual stream; may be odd.
  TORCH_ARG(std::int64_t, d_model);
  /// Sinusoidal (any length, no parameters), learned, or none.
  TORCH_ARG(Position, kind);
  /// The longest sequence of the learned kind: rows of its table.
  TORCH_ARG(std::int64_t, max_positions) = 512;
  /// Row of the learned table for the first token; less than max_positions.
  TORCH_ARG(std::int64_t, offset) = 0;
};

/// Adds to each token a vector that tells its place: x [B,T,D] -> x + table[offset..offset+T), [B,T,D].
///
/// The learned table is the parameter `weight` [max_positions,D], drawn from N(0,1) as torch.nn.Embedding does; the
/// sinusoidal one is computed where and in what type the input is. Throws c10::Error naming both numbers when T
/// exceeds `max_positions` - `offset`.
class PositionalEncodingImpl : public Cloneable<PositionalEncodingImpl> {
 public:
  explicit PositionalEncodingImpl(const PositionalEncodingOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& x);

  PositionalEncodingOptions options;
  Tensor weight;  ///< the learned table, else undefined
};
TORCH_MODULE(PositionalEncoding);

}  // namespace prenorm
