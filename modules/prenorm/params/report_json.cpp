#include "prenorm/json.h"
#include "prenorm/params/report.h"

namespace prenorm::params {
namespace {

Json tree_json(const Component& component) {
  Json children = Json::array();
  for (const Component& child : component.children) children.push_back(tree_json(child));
  return {{"name", component.name},
          {"formula", component.formula},
          {"copies", component.copies.value()},
          {"parameters", component.total().value()},
          {"children", children}};
}

template <typename Optional>
Json nullable(const Optional& count) {
  return count ? Json(count->value()) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json report_json(const Report& report) {
  Json by_dtype = Json::object();
  for (const auto& [dtype, count] : report.by_dtype) by_dtype[dtype] = count.value();
  Json bytes_for = Json::object();
  for (const auto& [name, bytes] : memory(report.total)) bytes_for[name] = bytes.value();
  Json differences = Json::array();
  for (const auto& [reason, elements] : report.differences) {
    differences.push_back({{"reason", reason}, {"elements", elements.value()}});
  }
  Json candidates = Json::array();
  for (const Candidate& candidate : report.candidates) {
    candidates.push_back({{"d_model", candidate.config.d_model},
                          {"num_layers", candidate.config.num_layers},
                          {"total", candidate.total.value()},
                          {"error_percent", candidate.error_percent}});
  }
  Json label = nullptr;
  if (const auto found = size_label(report)) {
    label = {
        {"text", found->text}, {"claimed", found->claimed.value()}, {"off_percent", found->off_percent(report.total)}};
  }
  const std::optional<double> extras = report.extras_percent();
  return {{"input", report.input},
          {"source", report.source},
          {"exact", report.exact},
          {"model_type", text_or_null(report.model_type)},
          {"architecture", text_or_null(report.architecture)},
          {"total", report.total.value()},
          {"active", nullable(report.active)},
          {"embedding", nullable(report.embedding)},
          {"non_embedding", report.embedding ? Json((report.total - *report.embedding).value()) : Json(nullptr)},
          {"buffers", report.buffers.value()},
          {"bytes", nullable(report.bytes)},
          {"by_dtype", by_dtype},
          {"rule_12d2L", nullable(report.rule)},
          {"extras_percent", extras ? Json(*extras) : Json(nullptr)},
          {"layers", report.rule ? Json(report.layers.value()) : Json(nullptr)},
          {"d_model", report.rule ? Json(report.d_model.value()) : Json(nullptr)},
          {"label", label},
          {"memory", bytes_for},
          {"config_total", nullable(report.config_total)},
          {"file_total", nullable(report.file_total)},
          {"differences", differences},
          {"candidates", candidates},
          {"components", tree_json(report.tree)},
          {"notes", report.notes}};
}

}  // namespace

std::string json(const Report& report) {
  return report_json(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string json(const std::vector<Report>& reports) {
  Json all = Json::array();
  for (const Report& report : reports) all.push_back(report_json(report));
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace prenorm::params
