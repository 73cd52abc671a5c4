#include "prenorm/positional_encoding.h"

#include <cmath>

namespace prenorm {

Tensor sinusoidal_table(std::int64_t length, std::int64_t d_model, const torch::TensorOptions& options) {
  // In double, since a float angle of t radians is off by t * 6e-8.
  const auto exact = options.dtype(torch::kDouble).requires_grad(false);
  const Tensor exponents = torch::arange(0, d_model, 2, exact) / static_cast<double>(d_model);
  const Tensor frequencies = torch::exp(exponents * -std::log(10000.0));           // [ceil(D/2)]
  const Tensor angles = torch::arange(length, exact).unsqueeze(1) * frequencies;   // [T,ceil(D/2)]
  const Tensor pairs = torch::stack({angles.sin(), angles.cos()}, -1).flatten(1);  // [T,D or D+1]
  return pairs.slice(1, 0, d_model).to(options.dtype());
}

PositionalEncodingImpl::PositionalEncodingImpl(const PositionalEncodingOptions& options_) : options(options_) {
  PositionalEncodingImpl::reset();
}

void PositionalEncodingImpl::reset() {
  check_positive("d_model", options.d_model());
  if (options.kind() != Position::learned) return;
  check_positive("max_positions", options.max_positions());
  TORCH_CHECK(options.offset() >= 0 && options.offset() < options.max_positions(), "the offset of the positions is ",
              options.offset(), ", not in [0, max_positions ", options.max_positions(), ")");
  weight = register_parameter("weight", torch::randn({options.max_positions(), options.d_model()}));
}

void PositionalEncodingImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::PositionalEncoding(" << enum_name(options.kind()) << ")";
}

Tensor PositionalEncodingImpl::forward(const Tensor& x) {
  check_input(x, options.d_model());
  const auto length = x.size(1);
  switch (options.kind()) {
    case Position::none:
      return x;
    case Position::sinusoidal:
      return x + sinusoidal_table(length, options.d_model(), x.options());
    case Position::learned:
      TORCH_CHECK(length <= options.max_positions() - options.offset(), "a sequence of length ", length,
                  " exceeds the max_positions ", options.max_positions(), " of the learned positions",
                  options.offset() > 0 ? ", which start at row " + std::to_string(options.offset()) : "");
      return x + weight.slice(0, options.offset(), options.offset() + length);
  }
  TORCH_CHECK(false, "the position kind has the unknown value ", static_cast<int>(options.kind()));
}

}  // namespace prenorm
