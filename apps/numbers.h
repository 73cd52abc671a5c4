#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

/// Takes decimal numbers that the type holds, and gives each whole one a single spelling: CLI11 takes the nearest number
/// that the type holds, and a leading 0 for octal.
template <typename Number>
std::string check_number(std::string& text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.erase(0, 1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error != std::errc::invalid_argument && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<Number>) {
    if (!number || !std::isfinite(std::strtod(text.c_str(), nullptr))) return text + " is not a finite number";
    if (error != std::errc() || std::fpclassify(value) == FP_SUBNORMAL) {
      return text + " is nearer to 0 than a number of double precision can be, 2.3e-308";
    }
  } else {
    if (!number || error != std::errc()) {
      return text + " is not a whole number" + (std::is_signed_v<Number> ? "" : " from 0") + " of 64 bits";
    }
    text = std::to_string(value);
  }
  return "";
}

/// Makes every option of `app` that is a number check it, before all else that it checks.
inline void check_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->transform(CLI::Validator(check_number<std::int64_t>, ""));
    if (type.starts_with("UINT")) option->transform(CLI::Validator(check_number<std::uint64_t>, ""));
    if (type.starts_with("FLOAT")) option->transform(CLI::Validator(check_number<double>, ""));
  }
}
