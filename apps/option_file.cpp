#include "option_file.h"

#include <set>

#include "prenorm/error.h"
#include "prenorm/json.h"
#include "prenorm/tensor_file/text.h"

namespace {

using prenorm::Json;

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

bool is_flag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}

bool in_files(const CLI::Option& option) {
  return option.get_group() != kCallGroup && !name_of(option).empty() && name_of(option) != "help";
}

/// The value of an option: given or by default; null when it has none.
Json value_of(const CLI::Option& option) {
  if (is_flag(option)) return option.count() > 0 && option.results().back() == "true" ? Json(true) : Json(nullptr);
  const std::string text = option.count() > 0 ? option.results().back() : option.get_default_str();
  if (text.empty() || text == "\"\"") return nullptr;
  const std::string type = option.get_type_name();
  if (!type.starts_with("INT") && !type.starts_with("UINT") && !type.starts_with("FLOAT") && type != "BOOL")
    return text;
  const Json number = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return number.is_number() || number.is_boolean() ? number : Json(text);
}

/// The text as JSON, in which every name of the one object there is stands once.
Json parse_options(const std::string& text, const std::string& where) {
  std::set<std::string> names;
  std::string last;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      last = prenorm::InQuotes(parsed.get_ref<const std::string&>());
      prenorm::require(names.insert(last).second, last, " stands twice");
    }
    return prenorm::refuse_deep<Json>(depth, event, parsed);
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& error) {
    prenorm::fail(where, ": not valid JSON at byte ", error.byte);
  } catch (const Json::exception&) {
    prenorm::fail(where, ": ", last, " is out of range");
  } catch (const prenorm::Error& error) {
    prenorm::fail(where, ": ", error.what());
  }
}

void set_option(CLI::Option& option, const Json& value, const std::string& where) {
  prenorm::require(value.is_string() || value.is_number() || value.is_boolean(), where, ": ", name_of(option), " is ",
                   value, ", not a string, a number, true or false");
  prenorm::require(!is_flag(option) || value.is_boolean(), where, ": ", name_of(option), " is ", value,
                   ", not true or false");
  if (is_flag(option) && !value.get<bool>()) return;
  try {
    option.add_result(value.is_string() ? value.get<std::string>() : value.dump());
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    prenorm::fail(where, ": ", error.what());
  }
}

}  // namespace

std::string options_to_json(const CLI::App& app) {
  Json json = Json::object();
  for (const CLI::Option* option : app.get_options()) {
    const Json value = in_files(*option) ? value_of(*option) : Json(nullptr);
    if (!value.is_null()) json[name_of(*option)] = value;
  }
  return json.dump(2) + "\n";
}

std::vector<OptionConflict> set_options(CLI::App& app, const std::string& text, const std::string& where) {
  const Json json = parse_options(text, where);
  prenorm::require(json.is_object(), where, " is not a JSON object of options");
  for (const auto& [name, value] : json.items()) {
    const CLI::Option* option = app.get_option_no_throw("--" + name);
    prenorm::require(option != nullptr && in_files(*option), where, ": there is no option \"", name, "\"");
  }
  std::vector<OptionConflict> conflicts;
  for (CLI::Option* option : app.get_options()) {
    if (!in_files(*option)) continue;
    const auto recorded = json.find(name_of(*option));
    if (option->count() == 0 && recorded != json.end()) {
      set_option(*option, *recorded, where);
    } else if (option->count() > 0) {
      const Json given = value_of(*option), saved = recorded != json.end() ? *recorded : Json(nullptr);
      const auto shown = [](const Json& value) {
        return value.is_string() ? value.get<std::string>() : value.is_null() ? "unset" : value.dump();
      };
      if (given != saved) conflicts.push_back({option, shown(given), shown(saved)});
    }
  }
  return conflicts;
}
