#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "prenorm/config.h"

/// Runs an app: parses the command line, then calls `work`. Returns the exit code: 0, 2 when the command line cannot be
/// parsed, 1 for every other error, which becomes one line on stderr (LibTorch's messages end in a backtrace).
template <typename Work>
int run_app(CLI::App& app, int argc, char** argv, Work&& work) {
  const auto fail = [&](std::string message, int code) {
    message = message.substr(0, message.find("\nException raised from"));
    std::ranges::replace_if(
        message, [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
    std::cerr << app.get_name() << ": " << message << "\n";
    return code;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return fail(error.what() + std::string(" (--help lists the options)"), 2);
  }
  try {
    work();
    return 0;
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
