#include "prenorm/training/memory.h"

#include "prenorm/parameter_count.h"
#include "support.h"

namespace memory_test {

using prenorm::ModelConfig;
using prenorm::training_memory;

TEST_CASE("the memory of the parameters is sixteen bytes for each that a model really has") {
  const ModelConfig config{.vocab_size = 1000,
                           .d_model = 256,
                           .num_heads = 8,
                           .num_layers = 3,
                           .position = prenorm::Position::learned,
                           .head = prenorm::Head::token,
                           .num_classes = 50};
  const auto real = prenorm::count_parameters(*prenorm::EncoderModel(config)).front().second.total();
  CHECK(training_memory(config, {}, 8, 16).parameters == Approx(16.0 * static_cast<double>(real)).epsilon(0.01));
}

TEST_CASE("the memory of the activations goes with the batch, its parts, the length and the precision") {
  const ModelConfig config{.vocab_size = 10, .d_model = 64, .num_heads = 8, .num_layers = 2};
  prenorm::TrainingOptions options;
  const double one = training_memory(config, options, 64, 16).activations;
  CHECK(training_memory(config, options, 128, 16).activations == 2 * one);
  CHECK(training_memory(config, options, 64, 32).activations == 2 * one);
  options.accumulate = 4;
  CHECK(training_memory(config, options, 64, 16).activations ==
        Approx(one / 4).epsilon(0.02));  // the batch itself stays
  options = {};
  options.precision = prenorm::Precision::bfloat16;
  CHECK(training_memory(config, options, 64, 16).activations < one);
  CHECK(training_memory({.vocab_size = 10, .d_model = 1'000'000'000'000}, {}, 64, 16).total() > 1e25);
}

TEST_CASE("this machine has some memory, but no petabyte") {
  const auto bytes = prenorm::available_memory(torch::kCPU);
  REQUIRE(bytes);
  CHECK(*bytes > 1e8);
  CHECK(*bytes < 1e15);
}

}  // namespace memory_test
