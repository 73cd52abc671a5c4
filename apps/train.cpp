#include "training_run.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Trains a Transformer encoder on a task over random sequences, or on lines of your own, and says how well it "
      "learned.",
      "train");
  TrainOptions options;
  add_train_options(app, options);
  return run_app(app, argc, argv, [&] { return train(app, options); });
}
