#include "prenorm/training/memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "folder.h"
#include "prenorm/parameter_count.h"
#include "prenorm/training/loop.h"
#include "support.h"

namespace memory_test {

using prenorm::Activation;
using prenorm::Head;
using prenorm::ModelConfig;
using prenorm::NormPlacement;
using prenorm::Position;
using prenorm::Precision;
using prenorm::training_memory;
using prenorm::TrainingOptions;

namespace {

/// Counts the bytes that LibTorch's allocator has handed out on the CPU and not got back. What the process holds is no
/// measure: malloc keeps what is freed, by its thresholds, and a child's peak begins with that of whoever started it.
class Counter : public c10::Allocator {
 public:
  static Counter& get() {
    static Counter counter;  // outlives the tensors that it gave
    return counter;
  }

  int64_t now() const { return now_; }
  int64_t take_peak() { return std::exchange(peak_, now_); }

  c10::DataPtr allocate(size_t size) override {
    void* data = inner_->raw_allocate(size);
    const std::scoped_lock lock(mutex_);
    if (data != nullptr) {
      now_ += sizes_[data] = static_cast<int64_t>(size);
      peak_ = std::max(peak_, now_);
    }
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }

  c10::Allocator* inner() const { return inner_; }

 private:
  /// Also of what was allocated before the counting began.
  static void release(void* data) {
    Counter& counter = get();
    {
      const std::scoped_lock lock(counter.mutex_);
      if (const auto found = counter.sizes_.find(data); found != counter.sizes_.end()) {
        counter.now_ -= found->second;
        counter.sizes_.erase(found);
      }
    }
    counter.inner_->raw_deallocate(data);
  }

  c10::Allocator* inner_ = c10::GetAllocator(c10::kCPU);
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t now_ = 0, peak_ = 0;
};

/// While it lives, the counter is LibTorch's allocator.
struct Counting {
  Counting() { c10::SetAllocator(c10::kCPU, &Counter::get()); }
  ~Counting() { c10::SetAllocator(c10::kCPU, Counter::get().inner()); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
};

/// A model and batches for it; small ones, where what an estimate forgets weighs most.
struct Case {
  ModelConfig config{.vocab_size = 10,
                     .d_model = 32,
                     .num_heads = 4,
                     .num_layers = 2,
                     .dropout = 0,
                     .position = Position::learned,
                     .max_positions = 16,
                     .head = Head::token,
                     .num_classes = 10};
  TrainingOptions options = {};
  int64_t batch_size = 16, length = 16, evaluation_size = 1;
};

/// Sequences of full length, or one of them and shorter ones.
class Sequences : public prenorm::Dataset {
 public:
  explicit Sequences(const Case& of)
      : case_(of), vocabulary_({"a"}, {"b"}, of.config.head != Head::token, prenorm::Vocabulary::Split::spaces) {}

  bool shorter = false;

  const prenorm::Vocabulary& vocabulary() const override { return vocabulary_; }
  int64_t max_length() const override { return case_.length; }
  int64_t epoch_size() const override { return 0; }
  uint64_t fingerprint() const override { return 0; }
  int64_t evaluation_size() const override { return case_.evaluation_size; }
  std::vector<prenorm::Example> training_examples(uint64_t, int64_t, int64_t size) const override {
    return examples(size);
  }
  std::vector<prenorm::Example> evaluation_examples(int64_t, int64_t size) const override { return examples(size); }

 private:
  std::vector<prenorm::Example> examples(int64_t size) const {
    std::vector<prenorm::Example> examples;
    for (int64_t i = 0; i < size; ++i) {
      const auto length =
          static_cast<size_t>(shorter && i > 0 ? std::max<int64_t>(1, case_.length - 1 - i % 3) : case_.length);
      examples.push_back(
          {std::vector<int64_t>(length, 1), std::vector<int64_t>(vocabulary_.per_sequence() ? 1 : length, i % 2)});
    }
    return examples;
  }

  const Case& case_;
  prenorm::Vocabulary vocabulary_;
};

/// What a run that saves a checkpoint has at once: with sequences of full length only, and with shorter ones too.
std::pair<double, double> taken(const Case& run) {
  const Folder folder;
  const Counting counting;
  Counter& counter = Counter::get();
  const int64_t before = counter.now();
  counter.take_peak();
  Sequences sequences(run);
  prenorm::Trainer trainer(prenorm::EncoderModel(run.config), run.options);
  prenorm::RunState state;
  const prenorm::LoopEvents events{.checkpoint = [&](const prenorm::RunState& now) {
    prenorm::save_checkpoint(folder.path / std::to_string(now.step), trainer, now, sequences.vocabulary());
  }};
  const auto peak = [&](int64_t steps) {
    prenorm::run_training(trainer, sequences, {.steps = steps, .batch_size = run.batch_size}, state, events);
    return static_cast<double>(counter.take_peak() - before);
  };
  const double full = peak(1);
  sequences.shorter = true;
  return {full, std::max(full, peak(2))};
}

void check(const Case& run) {
  const auto& [config, options, batch_size, length, evaluation_size] = run;
  const auto [full, most] = taken(run);
  const double estimate = training_memory(config, options, batch_size, length, evaluation_size).total();
  INFO(config.to_json() << " in parts: " << options.accumulate << ", " << enum_name(options.precision) << ", "
                        << batch_size << " of " << length << " tokens, " << evaluation_size << " evaluated");
  CHECK(estimate / most >= 1.0);
  CHECK(estimate / full <= 1.5);
}

/// The precisions and kinds of dropout, which decide together what a layer keeps.
std::vector<Case> kinds(const Case& base) {
  std::vector<Case> cases;
  for (const auto precision : {Precision::float32, Precision::bfloat16}) {
    for (const auto& [dropout, attention_dropout] : {std::pair(0.0, 0.0), {0.1, 0.0}, {0.1, 0.1}}) {
      Case& next = cases.emplace_back(base);
      next.options.precision = precision;
      next.config.dropout = dropout;
      next.config.attention_dropout = attention_dropout;
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("the memory of the parameters is sixteen bytes for each that a model really has") {
  for (const bool all : {false, true}) {
    ModelConfig config{.vocab_size = 50, .d_model = 256, .num_layers = 3, .head = Head::token, .num_classes = 50};
    if (all) {
      config.attention_bias = config.embedding_norm = true;
      config.num_segments = 2;
      config.position = Position::learned;
      config.tie_head = true;
    } else {
      config.feed_forward_bias = config.norm_bias = false;
      config.norm_placement = NormPlacement::post;
      config.head = Head::none;
      config.num_classes = 0;
    }
    const auto real = prenorm::count_parameters(*prenorm::EncoderModel(config)).front().second.total();
    CHECK(training_memory(config, {}, 8, 16).parameters == 16.0 * static_cast<double>(real));
  }
}

TEST_CASE("a run takes no more than the estimate, and two thirds of it at least") {
  torch::manual_seed(1);
  const auto check_all = [&](const std::vector<Case>& cases) {
    for (const Case& run : cases) check(run);
  };
  const auto check_with = [&](const auto& change) {
    Case run;
    change(run);
    run.config.max_positions = std::max(run.config.max_positions, run.length);
    check_all(kinds(run));
  };
  SECTION("of any size") {
    for (const auto& [batch_size, length] : {std::pair(2, 4), {1, 1}, {2, 128}, {16, 16}}) {
      for (const auto& [d_model, heads] : {std::pair(16, 2), {64, 8}, {256, 4}}) {
        if (batch_size * length * d_model > 1 << 14) continue;
        for (const int64_t layers : {1, 6}) {
          if (layers * d_model > 256) continue;
          for (const int64_t parts : {1, 4}) {
            if (parts > 1 && d_model == 64) continue;
            Case run{.options = {}, .batch_size = batch_size, .length = length};
            run.config.d_model = d_model;
            run.config.num_heads = heads;
            run.config.num_layers = layers;
            run.config.max_positions = length;
            run.options.accumulate = parts;
            check_all(kinds(run));
          }
        }
      }
    }
    check_with([](Case& run) { run.config.num_heads = 32; });
    check_with([](Case& run) { run.length = 4, run.batch_size = 512; });
    check_with([](Case& run) { run.length = 200, run.batch_size = 2; });
    check_with([](Case& run) { run.length = 800, run.batch_size = 1, run.config.d_model = 16; });
    check_with([](Case& run) { run.config.d_ff = 8; });
    check_with([](Case& run) { run.config.d_ff = 1024; });
    check_with([](Case& run) { run.config.vocab_size = 5000; });
    check_with([](Case& run) { run.config.vocab_size = 5000, run.options.accumulate = 4; });
    check_with([](Case& run) { run.config.max_positions = 2000; });
  }
  SECTION("of any kind") {
    for (const auto activation : {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
      for (const auto placement : {NormPlacement::pre, NormPlacement::post}) {
        check_with([&](Case& run) {
          run.config.activation = activation;
          run.config.norm_placement = placement;
        });
      }
    }
    check_with([](Case& run) { run.config.activation = Activation::relu, run.config.d_ff = 8; });
    check_with([](Case& run) { run.config.norm_placement = NormPlacement::post, run.config.d_ff = 8; });
    check_with([](Case& run) { run.config.position = Position::sinusoidal; });
    check_with([](Case& run) { run.config.position = Position::none; });
    check_with([](Case& run) { run.config.causal = true; });
    check_with([](Case& run) { run.config.attention_bias = true; });
    check_with([](Case& run) { run.config.attention_bias = true, run.config.d_ff = 8; });
    check_with([](Case& run) { run.config.feed_forward_bias = run.config.norm_bias = false; });
    check_with([](Case& run) { run.config.final_norm = false; });
    check_with([](Case& run) { run.config.tie_head = true, run.config.vocab_size = run.config.num_classes = 2000; });
    check_with([](Case& run) { run.config.embedding_dropout = 0.1, run.config.num_layers = 1; });
    check_with([](Case& run) {
      run.config.num_segments = 2;
      run.config.embedding_norm = true;
      run.config.num_layers = 1;
    });
    for (const auto head : {Head::token, Head::sequence_mean, Head::sequence_first}) {
      for (const int64_t classes : {2, 2000}) {
        check_with([&](Case& run) {
          run.config.head = head;
          run.config.num_classes = classes;
          run.options.accumulate = classes == 2 ? 4 : 1;
        });
      }
    }
  }
  SECTION("also where its evaluation takes most") {
    for (const int64_t length : {4, 100}) {
      for (const auto head : {Head::token, Head::sequence_mean}) {
        for (const int64_t classes : {2, 500}) {
          Case run{.options = {}, .batch_size = 2, .length = length, .evaluation_size = 300};
          run.config.max_positions = length;
          run.config.head = head;
          run.config.num_classes = classes;
          check(run);
          run.config.d_ff = 16;
          check(run);
        }
      }
    }
  }
}

TEST_CASE("the longest sequence to judge by is no part of a training step") {
  const auto with = [](std::int64_t length, std::int64_t evaluation_length) {
    return training_memory({.vocab_size = 10, .d_model = 64}, {}, 64, length, 100, evaluation_length).total();
  };
  CHECK(with(16, 16) == training_memory({.vocab_size = 10, .d_model = 64}, {}, 64, 16, 100).total());
  CHECK(with(16, 64) == with(16, 16));  // a step of many takes more than judging some longer ones
  CHECK(with(16, 16384) > with(16, 16));
  CHECK(with(16384, 16384) > 5 * with(16, 16384));  // the length of those to judge is not that of a step
}

TEST_CASE("sizes beyond 64 bits have an estimate too") {
  CHECK(training_memory({.vocab_size = 10, .d_model = 1'000'000'000'000}, {}, 64, 16).total() > 1e25);
}

TEST_CASE("this machine has some memory, but no petabyte") {
  const auto bytes = prenorm::available_memory(torch::kCPU);
  REQUIRE(bytes);
  CHECK(*bytes > 1e8);
  CHECK(*bytes < 1e15);
}

}  // namespace memory_test
