#include "prenorm/positional_encoding.h"

#include "support.h"

namespace positional_encoding_test {

using prenorm::Position;
using prenorm::PositionalEncoding;
using prenorm::PositionalEncodingOptions;
using torch::Tensor;

TEST_CASE("the sinusoidal table holds the paper's numbers, for odd widths and any length too") {
  const Tensor table = prenorm::sinusoidal_table(2, 4, torch::kFloat);
  CHECK(close(table[0], torch::tensor({0.0f, 1.0f, 0.0f, 1.0f})));
  CHECK(close(table[1], torch::tensor({0.8414710f, 0.5403023f, 0.0099998f, 0.9999500f})));
  const Tensor odd = prenorm::sinusoidal_table(3, 5, torch::kDouble);
  CHECK(odd.sizes() == torch::IntArrayRef({3, 5}));
  for (const int i : {0, 1, 2})
    CHECK(odd[2][2 * i].item<double>() == Approx(std::sin(2 / std::pow(10000, 2 * i / 5.0))));
  for (const int i : {0, 1})
    CHECK(odd[2][2 * i + 1].item<double>() == Approx(std::cos(2 / std::pow(10000, 2 * i / 5.0))));
  CHECK(prenorm::sinusoidal_table(1, 1, torch::kFloat).item<float>() == 0.0f);
  // Far out, where a table computed in float is off by 1e-3.
  const Tensor far = prenorm::sinusoidal_table(100001, 2, torch::kFloat)[100000];
  CHECK(close(far, torch::tensor({float(std::sin(1e5)), float(std::cos(1e5))})));
}

TEST_CASE("positions take the type of the input and are no part of the state") {
  PositionalEncoding position(PositionalEncodingOptions(6));
  CHECK(state_keys(*position).empty());
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    const Tensor zero = torch::zeros({2, 7, 6}, type);
    CHECK(close(position(zero)[1], prenorm::sinusoidal_table(7, 6, type)));
  }
}

TEST_CASE("learned positions end where their table ends") {
  PositionalEncoding position(PositionalEncodingOptions(6, Position::learned).max_positions(4));
  CHECK(state_keys(*position) == std::vector<std::string>{"weight [4, 6]"});
  CHECK(same(position(torch::zeros({1, 4, 6}))[0], position->weight));
  CHECK(error_of([&] {
          position(torch::zeros({1, 5, 6}));
        }) == "a sequence of length 5 exceeds the max_positions 4 of the learned positions");
}

TEST_CASE("no positions add nothing; bad options and inputs are refused") {
  PositionalEncoding none(PositionalEncodingOptions(6, Position::none));
  const Tensor x = torch::randn({2, 3, 6});
  CHECK(same(none(x), x));
  CHECK(error_of([&] { none(torch::zeros({2, 3, 5})); }) == "the input is [2, 3, 5], expected [B, T, 6]");
  CHECK(error_of([] { PositionalEncoding(PositionalEncodingOptions(0)); }) == "d_model is 0, not a positive number");
  CHECK(error_of([] { PositionalEncoding(PositionalEncodingOptions(4, Position::learned).max_positions(0)); }) ==
        "max_positions is 0, not a positive number");
}

}  // namespace positional_encoding_test
