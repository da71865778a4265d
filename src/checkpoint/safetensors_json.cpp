// A reader that follows the JSON's parts as they come.
#include "src/checkpoint/safetensors_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::train {

namespace {

// Stops at the first part that a header does not have, so that nothing nested deeper is ever built.
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& problem() const { return problem_; }
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) {
      return unexpected("a number");
    }
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
      return fail(str("the number ", value, " of tensor ", shown_name(entry_.name), " is too large"));
    }
    auto& numbers = place_ == Place::kShape ? entry_.shape : offsets_;
    numbers.push_back(static_cast<int64_t>(value));
    return numbers.size() <= kMostNumbers ||
           fail(str("tensor ", shown_name(entry_.name), " has too many dims or offsets"));
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataValue) {
      header_.metadata[key_] = value;
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ != Place::kType) {
      return unexpected("a text");
    }
    entry_.type = value;
    place_ = Place::kTensor;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTensorStart:
        place_ = Place::kTensor;
        return true;
      case Place::kMetadataStart:
        place_ = Place::kMetadata;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& value) override {
    auto& names = place_ == Place::kTop ? top_names_ : inner_names_;
    if (!names.insert(value).second) {
      return fail(str("the name ", shown_name(value), " is there twice"));
    }
    key_ = value;
    if (place_ == Place::kMetadata) {
      place_ = Place::kMetadataValue;
      return true;
    }
    return place_ == Place::kTop ? begin_entry(value) : begin_field(value);
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      return end_tensor();
    }
    if (place_ == Place::kMetadata) {
      inner_names_.clear();
      place_ = Place::kTop;
    } else {
      place_ = Place::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kShapeStart && place_ != Place::kOffsetsStart) {
      return unexpected("a list");
    }
    place_ = place_ == Place::kShapeStart ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(str("its header is not JSON (at byte ", position, " of it)"));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kTensorStart,
    kTensor,
    kType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
    kEnd
  };
  static constexpr size_t kMostNumbers = 64;

  bool fail(const std::string& problem) {
    problem_ = problem;
    return false;
  }
  bool unexpected(const char* what) {
    return fail(str("its header has ", what, " where none may be", key_.empty() ? "" : ", at " + shown_name(key_)));
  }

  bool begin_entry(const std::string& name) {
    inner_names_.clear();
    if (name == kSafetensorsMetadata) {
      place_ = Place::kMetadataStart;
      return true;
    }
    entry_ = {};
    entry_.name = name;
    offsets_.clear();
    place_ = Place::kTensorStart;
    return true;
  }

  bool begin_field(const std::string& name) {
    if (name == "dtype") {
      place_ = Place::kType;
    } else if (name == "shape") {
      place_ = Place::kShapeStart;
    } else if (name == "data_offsets") {
      place_ = Place::kOffsetsStart;
    } else {
      return fail(str("tensor ", shown_name(entry_.name), " has an unknown field ", shown_name(name)));
    }
    return true;
  }

  bool end_tensor() {
    if (inner_names_.size() != 3 || offsets_.size() != 2) {
      return fail(str("tensor ", shown_name(entry_.name), " has no dtype, no shape, or not two data_offsets"));
    }
    inner_names_.clear();
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.tensors.push_back(std::move(entry_));
    place_ = Place::kTop;
    return true;
  }

  SafetensorsHeader header_;
  std::string problem_;
  Place place_ = Place::kStart;
  std::string key_;
  std::set<std::string> top_names_;
  std::set<std::string> inner_names_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
};

}  // namespace

std::string shown_name(const std::string& text) {
  return "'" + shown(text) + "'";
}

std::string read_safetensors_json(std::string_view json, SafetensorsHeader& header) {
  JsonReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    return reader.problem();
  }
  header = reader.take();
  return "";
}

}  // namespace vit_hybrid::train
