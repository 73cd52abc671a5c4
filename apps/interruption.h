#pragma once

#include <unistd.h>

#include <csignal>

/// While it lives, the first Ctrl-C or SIGTERM is a request that the program looks at when it can, the second one ends
/// the program at once, and a reader of stderr that is gone (`| tee`, which the same Ctrl-C ends) does not.
class Interruption {
 public:
  Interruption() {
    signal_ = 0;
    for (const int number : {SIGINT, SIGTERM}) std::signal(number, handle);
    std::signal(SIGPIPE, SIG_IGN);
  }
  ~Interruption() {
    for (const int number : {SIGINT, SIGTERM, SIGPIPE}) std::signal(number, SIG_DFL);
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static bool requested() { return signal_ != 0; }
  static int exit_code() { return 128 + signal_; }  ///< what a shell reports of a program that the signal ended

 private:
  static void handle(int number) {
    if (signal_ != 0) ::_exit(128 + number);
    signal_ = number;
  }

  static inline volatile std::sig_atomic_t signal_ = 0;
};
