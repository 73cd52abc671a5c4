#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "numbers.h"
#include "prenorm/config.h"

/// Makes stdin, stdout and stderr lead nowhere where the caller closed them: the next files that are opened would take
/// their places.
inline void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // as the lowest that is free
  }
}

/// Runs an app: parses the command line, then calls `work`. Returns the exit code: what `work` returns, if anything, or
/// 0; 2 when the command line cannot be parsed, 1 for every other error, which becomes one line on stderr (LibTorch's
/// messages end in a backtrace).
template <typename Work>
int run_app(CLI::App& app, int argc, char** argv, Work&& work) {
  const auto fail = [&](std::string message, int code) {
    message = message.substr(0, message.find("\nException raised from"));
    std::ranges::replace_if(
        message, [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
    std::cerr << app.get_name() << ": " << message << "\n";
    return code;
  };
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is an error of the write, not the end of the program
  check_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return fail(error.what() + std::string(" (--help lists the options)"), 2);
  }
  try {
    int code = 0;
    if constexpr (std::is_same_v<decltype(work()), int>) {
      code = work();
    } else {
      work();
    }
    std::cout.flush();
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
    return written ? code : fail(std::string("cannot write to stdout: ") + std::strerror(errno), 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}

/// An option that takes the name of one of `choices`.
template <typename Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, Enum& value, const std::string& help,
                        const std::vector<std::pair<std::string, Enum>>& choices = prenorm::enum_names<Enum>()) {
  std::string names, current;
  for (const auto& [name, choice] : choices) {
    names += (names.empty() ? "" : "|") + name;
    if (choice == value) current = name;
  }
  const auto choose = [&value, choices, flag, names](const std::string& text) {
    for (const auto& [name, choice] : choices) {
      if (name != text) continue;
      value = choice;
      return;
    }
    throw CLI::ValidationError(flag, "\"" + text + "\" is not one of " + names);
  };
  return app.add_option_function<std::string>(flag, choose, help)->type_name(names)->default_str(current);
}
