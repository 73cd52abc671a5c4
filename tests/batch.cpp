#include "prenorm/training/batch.h"

#include "support.h"

namespace batch_test {

using prenorm::collate;
using prenorm::Example;
using prenorm::kIgnored;

TEST_CASE("a batch is padded to its longest sequence") {
  const std::vector<Example> examples{{{1, 2, 3}, {3, 2, 1}}, {{4}, {4}}};
  const auto batch = collate(examples, /*per_sequence=*/false);
  CHECK(same(batch.ids, torch::tensor({{1, 2, 3}, {4, 0, 0}})));
  CHECK(same(batch.targets, torch::tensor(std::vector<int64_t>{3, 2, 1, 4, kIgnored, kIgnored}).view({2, 3})));
  CHECK(batch.lengths == std::vector<int64_t>{3, 1});
  CHECK(batch.size() == 2);
  CHECK(batch.tokens() == 4);
}

TEST_CASE("sequences with one answer have one target each") {
  const auto batch = collate({{{1, 2}, {1}}, {{3}, {0}}}, /*per_sequence=*/true);
  CHECK(same(batch.ids, torch::tensor({{1, 2}, {3, 0}})));
  CHECK(same(batch.targets, torch::tensor({1, 0})));
}

}  // namespace batch_test
