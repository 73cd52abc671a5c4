#include "prenorm/tensor_file/safetensors.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <unordered_set>

#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/tensor_file/json_events.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};

/// Fills tensors (`begin` and `end` still counted from the end of the header) and metadata from the header.
class HeaderEvents : public JsonEvents {
 public:
  explicit HeaderEvents(TensorFile::Contents& contents) : contents_(contents) {}

  bool key(std::string& text) override {
    if (skipped_levels_ > 0) return true;
    if (place_ == Place::top) {
      require(names_.insert(text).second, "duplicate key ", InQuotes(text), " in the header");
      name_ = std::move(text);
    } else if (place_ == Place::metadata) {
      require(!contents_.metadata.contains(text), "duplicate key ", InQuotes(text), " in __metadata__");
      field_ = std::move(text);
    } else {
      field_ = std::move(text);
      const auto* known = std::find(kFields.begin(), kFields.end(), field_);
      if (known == kFields.end()) return true;
      bool& seen = seen_[static_cast<std::size_t>(known - kFields.begin())];
      require(!seen, "tensor ", InQuotes(name_), ": duplicate key ", InQuotes(field_));
      seen = true;
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top && name_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      place_ = Place::tensor;
      seen_ = {};
      contents_.tensors.push_back({.name = name_, .shape = {}});
    } else if (ignored()) {
      ++skipped_levels_;
    } else {
      return other("an object");
    }
    return true;
  }

  bool end_object() override {
    if (skipped_levels_ > 0) {
      --skipped_levels_;
    } else if (place_ == Place::tensor) {
      for (std::size_t i = 0; i < kFields.size(); ++i) {
        require(seen_[i], "tensor ", InQuotes(name_), " has no ", kFields[i]);
      }
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (ignored()) {
      ++skipped_levels_;
    } else if (place_ == Place::tensor && (field_ == "shape" || field_ == "data_offsets")) {
      place_ = Place::numbers;
      numbers_.clear();
    } else {
      return other("an array");
    }
    return true;
  }

  bool end_array() override {
    if (skipped_levels_ > 0) {
      --skipped_levels_;
      return true;
    }
    place_ = Place::tensor;
    TensorInfo& tensor = contents_.tensors.back();
    if (field_ == "shape") {
      tensor.shape.assign(numbers_.begin(), numbers_.end());
    } else {
      require(numbers_.size() == 2, "tensor ", InQuotes(name_), ": data_offsets has ", numbers_.size(),
              " numbers, not 2");
      std::tie(tensor.begin, tensor.end) = std::pair(numbers_[0], numbers_[1]);
    }
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    const bool too_large = field_ == "shape" && value > std::uint64_t{INT64_MAX};
    if (place_ != Place::numbers || skipped_levels_ > 0 || too_large) return other(std::to_string(value));
    numbers_.push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      contents_.metadata.emplace(std::move(field_), std::move(value));
    } else if (place_ == Place::tensor && skipped_levels_ == 0 && field_ == "dtype") {
      const auto dtype = find_dtype(value);
      require(dtype.has_value(), "tensor ", InQuotes(name_), " has the unknown dtype ", InQuotes(value));
      contents_.tensors.back().dtype = *dtype;
    } else {
      return other(InQuotes(value));
    }
    return true;
  }

  bool null() override { return (place_ == Place::top && name_ == "__metadata__") || other("null"); }

 protected:
  bool other(const std::string& value) override {
    if (ignored()) return true;
    require(place_ != Place::outside, "the header is not a JSON object");
    require(place_ != Place::metadata, "__metadata__: ", InQuotes(field_), " is ", value, ", not a string");
    require(place_ != Place::top, InQuotes(name_), " is ", value, ", not an object");
    fail("tensor ", InQuotes(name_), ": ", field_, place_ == Place::numbers ? " holds " : " is ", value, ", not ",
         field_ == "dtype" ? "a string" : "numbers from 0 to 2^63");
  }

 private:
  enum class Place { outside, top, metadata, tensor, numbers };

  /// Inside a field of a tensor that the format does not have; the reference reader passes over it.
  bool ignored() const {
    const bool known = std::find(kFields.begin(), kFields.end(), field_) != kFields.end();
    return skipped_levels_ > 0 || (place_ == Place::tensor && !known);
  }

  TensorFile::Contents& contents_;
  Place place_ = Place::outside;
  std::size_t skipped_levels_ = 0;
  std::string name_, field_;
  std::unordered_set<std::string> names_;
  std::array<bool, 3> seen_{};
  std::vector<std::uint64_t> numbers_;
};

/// Elements lie one tensor after the other, without holes, from the end of the header to the end of the file.
void place_tensors(std::vector<TensorInfo>& tensors, std::uint64_t data_begin, std::uint64_t file_size) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t position = 0;
  const TensorInfo* beyond = nullptr;
  for (const TensorInfo& tensor : tensors) {
    const InQuotes name(tensor.name);
    require(tensor.begin <= tensor.end, "tensor ", name, " ends at ", tensor.end, ", before it begins at ",
            tensor.begin);
    require(tensor.begin == position, "tensor ", name, " begins at ", tensor.begin,
            tensor.begin < position ? ", inside another tensor; " : ", after a hole; ", position, " is expected");
    position = tensor.end;
    std::uint64_t expected = 0;
    try {
      expected = nbytes(tensor.dtype, tensor.shape);
    } catch (const Error& error) {
      fail("tensor ", name, ": ", error.what());
    }
    require(tensor.end - tensor.begin == expected, "tensor ", name, " of dtype ", dtype_name(tensor.dtype),
            " and shape ", ShapeText(tensor.shape), " needs ", expected, " bytes, data_offsets give it ",
            tensor.end - tensor.begin);
    if (!beyond && position > file_size - data_begin) beyond = &tensor;
  }
  if (beyond) {
    const bool overflow = position > UINT64_MAX - data_begin;
    fail("truncated: ", overflow ? UINT64_MAX : data_begin + position, " bytes are expected, the file has ", file_size,
         "; tensor ", InQuotes(beyond->name), " ends beyond it");
  }
  require(position == file_size - data_begin, file_size - data_begin - position, " bytes follow the last tensor");
  for (TensorInfo& tensor : tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
}

}  // namespace

TensorFile::Contents read_safetensors(const FileSource& source) {
  require(source.size() > kLengthBytes, "has ", source.size(), " bytes, too few for a weights file");
  std::uint64_t length = 0;
  source.read(0, &length, kLengthBytes);
  require(length <= kMaxSafetensorsHeader,
          "is no weights file: not a zip, and as safetensors its header length would be ", length, " (at most ",
          kMaxSafetensorsHeader, ")");
  char first = 0;
  source.read(kLengthBytes, &first, 1);
  require(first == '{', "is no weights file: not a zip, and as safetensors its header would not start with {");
  require(length <= source.size() - kLengthBytes, "truncated: the header ends at byte ", kLengthBytes + length,
          ", the file has ", source.size());

  TensorFile::Contents contents;
  HeaderEvents events(contents);
  TextRange text(source, kLengthBytes, kLengthBytes + length);
  try {
    nlohmann::json::sax_parse(std::istreambuf_iterator<char>(&text), {}, &events);
  } catch (const Error& error) {
    fail("bad safetensors header: ", error.what());
  }
  place_tensors(contents.tensors, kLengthBytes + length, source.size());
  return contents;
}

}  // namespace prenorm
