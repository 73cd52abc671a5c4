#include "prenorm/tensor_file/sharded_index.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "prenorm/error.h"
#include "prenorm/tensor_file/json_events.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

class IndexEvents : public JsonEvents {
 public:
  explicit IndexEvents(ShardedIndex& index) : index_(index) {}

  bool key(std::string& text) override {
    if (depth_ == 1) {
      require(sections_.insert(text).second, "duplicate key ", InQuotes(text));
      section_ = text;
    }
    if (depth_ == 2) key_ = text;
    return true;
  }

  bool start_object(std::size_t) override {
    ++depth_;
    has_map_ = has_map_ || in_section("weight_map");
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return ++depth_, true; }
  bool end_array() override { return --depth_, true; }

  bool string(std::string& value) override {
    if (!in_section("weight_map")) return other(value);
    const fs::path shard(value);
    const bool inside = !value.empty() && value.find('\0') == std::string::npos && shard.is_relative() &&
                        std::find(shard.begin(), shard.end(), "..") == shard.end();
    require(inside, "weight_map gives ", InQuotes(key_), " the shard ", InQuotes(value),
            ", not a file beside the index");
    require(index_.weight_map.emplace(key_, std::move(value)).second, "weight_map has ", InQuotes(key_), " twice");
    return true;
  }

  void finish() const { require(has_map_, "is a JSON file without a weight_map, no index of a sharded checkpoint"); }

 protected:
  bool other(const std::string& value) override {
    require(!in_section("weight_map"), "weight_map gives ", InQuotes(key_), " the value ", value, ", not a file name");
    if (in_section("metadata")) index_.metadata[key_] = value;
    return true;
  }

 private:
  bool in_section(const char* name) const { return depth_ == 2 && section_ == name; }

  ShardedIndex& index_;
  int depth_ = 0;
  bool has_map_ = false;
  std::string section_, key_;
  std::set<std::string> sections_;
};

}  // namespace

ShardedIndex read_sharded_index(const FileSource& source) {
  ShardedIndex index;
  IndexEvents events(index);
  TextRange text(source, 0, source.size());
  nlohmann::json::sax_parse(std::istreambuf_iterator<char>(&text), {}, &events);
  events.finish();
  return index;
}

}  // namespace prenorm
