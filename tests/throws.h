#pragma once

#include <string>

/// The message with which `action` throws an Exception; empty when it throws none.
template <typename Exception>
std::string message_of(auto&& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return {};
}
