#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "prenorm/error.h"

namespace prenorm {

/// The events of a JSON text as they are read, so that no tree of it is ever held and duplicate keys are seen.
/// A derived class overrides what it takes; whatever it does not expect is refused.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(std::int64_t value) override { return other(std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) override { return other(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return other(text.substr(0, 40)); }
  bool string(std::string&) override { return other("a string"); }
  bool binary(nlohmann::json::binary_t&) override { return other("bytes"); }
  bool start_object(std::size_t) override { return other("an object"); }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return other("an array"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail("not valid JSON at byte ", position);
  }

 protected:
  /// A value that no override took; throws Error unless it may be ignored.
  virtual bool other(const std::string& value) = 0;
};

}  // namespace prenorm
