#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prenorm/params/blocks.h"

namespace prenorm::params {

/// One kind of head: its class-name endings ("ForCausalLM"), and the parts that it puts on the base model.
struct HeadRule {
  std::vector<std::string_view> names;
  std::function<Parts()> parts;
};

/// The fields of a config.json, read strictly: a size that is missing, not an integer, or not positive throws Error
/// naming its key, and every value that is not in the file but derived or a family's default is noted. Copies share
/// their notes.
class Fields {
 public:
  /// The names of one field. Where a file has several, the last one counts, as in transformers.
  using Names = std::initializer_list<std::string_view>;

  /// Throws Error with line and column unless `json` is one JSON object.
  explicit Fields(std::string_view json);

  /// The object under `key`; its fields are named `key.field` in errors and notes.
  Fields object(std::string_view key) const;

  bool has(std::string_view key) const;  ///< it is there and not null

  Count size(Names names) const { return at_least(1, names); }
  Count size_or_zero(Names names) const { return at_least(0, names); }

  /// A size that may be missing or null: then `derived`, which `rule` says in words for the notes.
  Count size_or(Names names, Count derived, std::string_view rule) const;

  /// A size that may be null, and then is `derived`, but must be there.
  Count size_or_null(Names names, Count derived, std::string_view rule) const;

  std::pair<Count, Count> size_2d(std::string_view key) const;  ///< n or [n, m]
  std::vector<Count> list(std::string_view key) const;          ///< empty when missing or null
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;  ///< of any sign
  std::vector<std::string> words(std::string_view key) const;               ///< a list, or one text parted by "|"

  /// heads of the field and d / heads; throws Error with both numbers unless they divide.
  std::pair<Count, Count> heads(Names names, Count d, std::string_view d_name) const;

  /// Entries of `id2label`, or `num_labels`, or 2.
  Count labels() const;

  /// Whether the output matrix is the token table: `tie_word_embeddings`, or the family's rule.
  bool tied(bool family_rule) const { return flag("tie_word_embeddings", family_rule); }

  /// The first of `architectures`, or of `choose_head`; empty when there is none.
  std::string architecture() const;
  void choose_head(std::string_view name);

  /// What the names of the family's classes begin with ("Bert"): another class may be another net. Empty: not known.
  void expect_classes(std::string_view prefix);

  /// Fields that the family has and that change nothing in this model.
  void ignore(Names names) const;

  /// Notes it, and that the count is not exact.
  void doubt(std::string text) const;

  /// Doubts where code of its own builds the net, or where a field that no family function asked for may change it.
  void doubt_unread() const;

  /// The parts of the head that the architecture names; of the first rule (the bare model), with a note, if it names
  /// none or none of these.
  Parts head_parts(const std::vector<HeadRule>& rules) const;
  Component head(const std::vector<HeadRule>& rules) const { return group("head", head_parts(rules)); }

  bool exact() const;  ///< false after a doubt, such as an architecture that is none of the rules of `head`

  std::string model_type() const;  ///< empty when missing
  void note(std::string text) const;
  std::vector<std::string> notes() const;
  std::vector<std::string> heads_seen() const;  ///< the names that the last call of `head` offered

  /// 12 d^2 L from whatever keys hold d and L in this file or its text_config, 0 when they are not there.
  Count estimate() const;
  bool has_dimensions() const;  ///< a key that families use for d, and one for L

 private:
  struct Data;
  bool may_change_the_net(const std::string& key) const;
  Fields(std::shared_ptr<Data> data, std::string prefix, std::string pointer);
  Count at_least(std::int64_t smallest, Names names) const;
  std::shared_ptr<Data> data_;
  std::string prefix_;   // of names in messages: "text_config."
  std::string pointer_;  // of the object in the file: "/text_config"
};

}  // namespace prenorm::params
