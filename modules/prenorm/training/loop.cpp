#include "prenorm/training/loop.h"

#include <algorithm>
#include <cmath>

namespace prenorm {
namespace {

/// Whether `score` is to be kept before what was best.
bool better(const Score& score, const std::optional<ScoredStep>& best) {
  if (!best || score.accuracy != best->score.accuracy) return !best || score.accuracy > best->score.accuracy;
  return score.loss < best->score.loss;
}

bool finite_weights(const Trainer& trainer) {
  return std::ranges::all_of(trainer.model()->parameters(),
                             [](const Tensor& parameter) { return parameter.isfinite().all().item<bool>(); });
}

void tell(const auto& event, const auto&... values) {
  if (event) event(values...);
}

}  // namespace

Outcome run_training(Trainer& trainer, const Dataset& dataset, const LoopOptions& options, RunState& state,
                     const LoopEvents& events) {
  const bool per_sequence = dataset.vocabulary().per_sequence();
  const auto interrupted = [&] { return events.interrupted && events.interrupted(); };
  const auto has_score = [&] { return state.last && state.last->step == state.step; };
  const auto on_target = [&] {
    constexpr double kRounding = 1e-12;  // 99.9 / 100 is more than 999 / 1000
    return options.target > 0.0 && has_score() && state.last->score.accuracy >= options.target - kRounding;
  };
  const auto due = [&] {
    return state.step == options.steps || (options.evaluate_every > 0 && state.step % options.evaluate_every == 0);
  };
  const auto judge = [&] {  // false: the model is no good
    const auto score = evaluate(trainer.model(), dataset, events.interrupted);
    if (!score) return true;
    if (!std::isfinite(score->loss)) return false;
    state.last = {state.step, *score};
    if (better(*score, state.best)) state.best = state.last;
    tell(events.evaluated, state);
    return true;
  };

  if (state.step > 0 && due() && !has_score()) {  // whoever interrupted the run did not wait for it
    if (!judge()) return Outcome::diverged;
    tell(events.checkpoint, state);
    if (!has_score()) return Outcome::interrupted;
  }
  while (state.step < options.steps && !on_target()) {
    const auto examples = dataset.training_examples(options.seed, state.examples, options.batch_size);
    const StepResult result = trainer.step(collate(examples, per_sequence));
    if (result.finite()) {
      state.step = trainer.steps_done();
      state.examples += options.batch_size;
    }
    tell(events.stepped, state, result);
    if (!result.finite()) return Outcome::diverged;

    const bool pause = state.step == options.stop_after;
    if ((due() || pause || interrupted()) && !finite_weights(trainer)) return Outcome::diverged;
    if (due() && !interrupted() && !judge()) return Outcome::diverged;
    const bool stop = interrupted();
    if (due() || pause || stop) tell(events.checkpoint, state);
    if (on_target() || (state.step == options.steps && has_score())) break;
    if (stop) return Outcome::interrupted;
    if (pause) return Outcome::paused;
  }
  return on_target() ? Outcome::on_target : Outcome::finished;
}

}  // namespace prenorm
