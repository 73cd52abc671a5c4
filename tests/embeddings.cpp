#include "prenorm/embeddings.h"

#include "support.h"

namespace embeddings_test {

using prenorm::Embeddings;
using prenorm::EmbeddingsOptions;
using prenorm::Position;
using torch::Tensor;

namespace {

const Tensor kIds = torch::tensor({{3, 1, 0}, {2, 2, 4}});

EmbeddingsOptions options(Position position = Position::learned) {
  return EmbeddingsOptions(5, 4).position(position).max_positions(3);
}

}  // namespace

TEST_CASE("embeddings are token + position + segment, normalised if asked") {
  torch::manual_seed(1);
  Embeddings plain(options());
  CHECK(state_keys(*plain) == std::vector<std::string>{"token.weight [5, 4]", "position.weight [3, 4]"});
  const Tensor sum = plain->token->weight.index_select(0, kIds.flatten()).view({2, 3, 4}) + plain->position->weight;
  CHECK(close(plain(kIds), sum));

  Embeddings full(options().num_segments(2).norm(true).eps(1e-12));
  CHECK(state_keys(*full) == std::vector<std::string>{"token.weight [5, 4]", "position.weight [3, 4]",
                                                      "segment.weight [2, 4]", "norm.weight [4]", "norm.bias [4]"});
  const Tensor segments = torch::tensor({{0, 0, 1}, {1, 1, 1}});
  const Tensor x = full->token(kIds) + full->position->weight + full->segment(segments);
  const Tensor centred = x - x.mean(-1, true);
  CHECK(close(full(kIds, segments), centred / (centred.square().mean(-1, true) + 1e-12).sqrt()));
  CHECK(close(full(kIds), full(kIds, torch::zeros_like(kIds))));
}

TEST_CASE("sinusoidal positions need no table, and dropout acts in training only") {
  torch::manual_seed(2);
  Embeddings embeddings(options(Position::sinusoidal).dropout(0.5));
  CHECK(state_keys(*embeddings) == std::vector<std::string>{"token.weight [5, 4]"});
  const Tensor long_ids = torch::zeros({1, 40}, torch::kLong);
  CHECK_FALSE(same(embeddings(long_ids), embeddings(long_ids)));
  embeddings->eval();
  CHECK(close(embeddings(long_ids)[0], embeddings->token->weight[0] + prenorm::sinusoidal_table(40, 4, torch::kFloat)));
  CHECK(same(embeddings(kIds.to(torch::kInt)), embeddings(kIds)));
}

TEST_CASE("embeddings refuse ids that they do not have") {
  Embeddings embeddings(options());
  const auto error = [&](const Tensor& ids, const Tensor& segments = {}) {
    return error_of([&] { embeddings(ids, segments); });
  };
  CHECK(error(torch::tensor({{5}})) == "token ids hold 5, allowed are 0 to 4");
  CHECK(error(torch::tensor({{-1}})) == "token ids hold -1, allowed are 0 to 4");
  CHECK(error(torch::tensor({1})) == "token ids are [1], expected [B, T] with T at least 1");
  CHECK(error(torch::ones({1, 1})) == "token ids have type Float, expected int64 or int32");
  CHECK(error(torch::zeros({1, 4}, torch::kLong)) ==
        "a sequence of length 4 exceeds the max_positions 3 of the learned positions");
  CHECK(error(kIds, torch::zeros_like(kIds)) ==
        "segment ids were given to a model without segments (num_segments is 0)");
  CHECK(error_of([] { Embeddings(EmbeddingsOptions(0, 4)); }) == "vocab_size is 0, not a positive number");
  Embeddings segmented(options().num_segments(2));
  CHECK(error_of([&] {
          segmented(kIds, torch::zeros({2, 2}, torch::kLong));
        }) == "segment ids are [2, 2], token ids [2, 3]");
  CHECK(error_of([&] { segmented(kIds, kIds); }) == "segment ids hold 4, allowed are 0 to 1");
}

}  // namespace embeddings_test
