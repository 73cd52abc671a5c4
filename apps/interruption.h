#pragma once

#include <unistd.h>

#include <array>
#include <csignal>

/// While it lives, the first Ctrl-C, SIGTERM or SIGHUP is a request that the program looks at when it can, a second
/// Ctrl-C or SIGTERM ends the program at once, and a reader of stderr that is gone (`| tee`, which the same Ctrl-C ends)
/// does not. Signals that the caller had ignored, as nohup does, stay so.
class Interruption {
 public:
  Interruption() {
    signal_ = 0;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      const bool ignored = kSignals[i] == SIGPIPE || before_[i].sa_handler == SIG_IGN;
      std::signal(kSignals[i], ignored ? SIG_IGN : handle);
    }
  }
  ~Interruption() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static bool requested() { return signal_ != 0; }
  static int exit_code() { return 128 + signal_; }  ///< what a shell reports of a program that the signal ended

 private:
  /// Of a terminal that is closed, the shell and the system tell with a SIGHUP each: no second one counts.
  static void handle(int number) {
    if (number == SIGHUP && signal_ != 0) return;
    if (signal_ != 0 && signal_ != SIGHUP) ::_exit(128 + number);
    signal_ = number;
  }

  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  static inline volatile std::sig_atomic_t signal_ = 0;
  std::array<struct sigaction, kSignals.size()> before_;
};
