#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// The options of an app as a JSON object, one member an option under its long name: {"d-model": 64, "norm": "pre"}.
/// What JSON sets goes through the same checks as the command line, which comes first.

/// An option that was given on the command line and has another value in a file.
struct OptionConflict {
  const CLI::Option* option;
  std::string given, recorded;  ///< as text; "unset" where the file does not have it
};

/// Options of this group are about one call of the program and stand in no file.
constexpr const char* kCallGroup = "This call";

/// Every option that has a value, given or by default, in the order of the help; flags that are off are left out.
std::string options_to_json(const CLI::App& app);

/// Sets the options that the command line left alone. Throws prenorm::Error, which starts with `where`, when a member
/// is not an option, stands twice or has a value that is not allowed. Returns what the command line has otherwise.
std::vector<OptionConflict> set_options(CLI::App& app, const std::string& json, const std::string& where);
