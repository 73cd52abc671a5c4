#include "prenorm/training/loop.h"

#include "prenorm/training/task.h"
#include "support.h"

namespace loop_test {

using prenorm::EncoderModel;
using prenorm::LoopEvents;
using prenorm::LoopOptions;
using prenorm::Outcome;
using prenorm::run_training;
using prenorm::RunState;
using prenorm::StepResult;
using prenorm::Trainer;

namespace {

const prenorm::Task kMajority({.kind = prenorm::TaskKind::majority, .max_length = 15});

Trainer trainer(double rate = 1e-3) {
  torch::manual_seed(1);
  prenorm::TrainingOptions options;
  options.schedule.peak = rate;
  return {EncoderModel(prenorm::ModelConfig{.vocab_size = 10,
                                            .d_model = 8,
                                            .num_heads = 2,
                                            .num_layers = 1,
                                            .head = prenorm::Head::sequence_mean,
                                            .num_classes = 2}),
          options};
}

Trainer continued(int64_t steps) {
  Trainer later = trainer();
  later.set_steps_done(steps);
  return later;
}

/// What a run told, a word for each event: "1", "2", ... for steps, "e" for an evaluation, "c" for a checkpoint.
struct Told {
  std::string events;
  int64_t stop_at = 0;  // the step after which somebody wants it to end
  Outcome outcome{};
  RunState state;

  Told& run(Trainer trainer, LoopOptions options) {
    bool stop = false;
    options.batch_size = 4;
    const LoopEvents tell{.stepped =
                              [&](const RunState& now, const StepResult&) {
                                events += std::to_string(now.step) + " ";
                                stop = now.step == stop_at;
                              },
                          .evaluated = [&](const RunState&) { events += "e "; },
                          .checkpoint = [&](const RunState&) { events += "c "; },
                          .interrupted = [&] { return stop; }};
    outcome = run_training(trainer, kMajority, options, state, tell);
    return *this;
  }
};

}  // namespace

TEST_CASE("evaluations and checkpoints come when they are due, and after the last step") {
  Told told;
  CHECK(told.run(trainer(), {.steps = 5, .evaluate_every = 2}).events == "1 2 e c 3 4 e c 5 e c ");
  CHECK(told.outcome == Outcome::finished);
  CHECK(told.state.examples == 20);
  CHECK(told.state.last->step == 5);
  CHECK(told.state.best);
  CHECK(Told().run(trainer(), {.steps = 3}).events == "1 2 3 e c ");
}

TEST_CASE("a pause and an interruption end with a checkpoint") {
  Told paused, stopped;
  CHECK(paused.run(trainer(), {.steps = 5, .stop_after = 3}).events == "1 2 3 c ");
  CHECK(paused.outcome == Outcome::paused);
  stopped.stop_at = 2;
  CHECK(stopped.run(trainer(), {.steps = 5, .evaluate_every = 2}).events == "1 2 c ");
  CHECK(stopped.outcome == Outcome::interrupted);
  CHECK_FALSE(stopped.state.last);
  stopped.stop_at = 0;  // the evaluation that nobody waited for is made up for
  stopped.events.clear();
  CHECK(stopped.run(continued(2), {.steps = 3, .evaluate_every = 2}).events == "e c 3 e c ");
  Told done;
  done.stop_at = 5;
  CHECK(done.run(trainer(), {.steps = 5}).outcome == Outcome::interrupted);
  CHECK(done.events == "1 2 3 4 5 c ");
  done.stop_at = 0;
  CHECK(done.run(continued(5), {.steps = 5}).outcome == Outcome::finished);
  CHECK(done.events == "1 2 3 4 5 c e c ");
}

TEST_CASE("a target ends the run, also one that was reached before") {
  Told told;
  CHECK(told.run(trainer(), {.steps = 9, .evaluate_every = 2, .target = 0.4}).events ==
        "1 2 e c ");  // about half are right
  CHECK(told.outcome == Outcome::on_target);
  told.events.clear();
  CHECK(told.run(trainer(), {.steps = 9, .evaluate_every = 2, .target = 0.4}).events.empty());
  CHECK(told.outcome == Outcome::on_target);
}

TEST_CASE("a target in per cent is reached by as many") {
  Told told;
  told.state = {.step = 2, .last = {{2, {.loss = 1, .accuracy = 999 / 1000.0}}}};
  CHECK(told.run(continued(2), {.steps = 9, .target = 99.9 / 100}).outcome == Outcome::on_target);
  CHECK(told.run(continued(2), {.steps = 3, .target = 0.9991}).outcome == Outcome::finished);
}

TEST_CASE("the best evaluation is the most accurate, of equal ones that with the lowest loss") {
  RunState state;
  auto best = [&, step = int64_t{1000}](double accuracy, double loss) mutable {
    // A score that the run is said to have had, then one step and one evaluation that is worse than any.
    state.best = {{++step, {loss, accuracy, 0}}};
    LoopOptions options{.steps = state.step + 1, .batch_size = 4};
    Trainer fresh = continued(state.step);
    run_training(fresh, kMajority, options, state, {});
    return state.best->step == step;
  };
  CHECK(best(1.0, 9.0));
  CHECK_FALSE(best(0.0, 0.0));
  const auto score = state.last->score;
  CHECK(best(score.accuracy, score.loss - 1));
  CHECK_FALSE(best(score.accuracy, score.loss + 1));
}

TEST_CASE("a step that went wrong is told, ends the run and asks for no checkpoint") {
  Told told;
  Trainer bad = trainer();
  bad.model()->head->weight.data()[0][0] = NAN;
  CHECK(told.run(std::move(bad), {.steps = 5, .evaluate_every = 1}).events == "0 ");
  CHECK(told.outcome == Outcome::diverged);
  CHECK(told.state.examples == 0);
}

}  // namespace loop_test
