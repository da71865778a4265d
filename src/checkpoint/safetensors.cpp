// A reader that follows the JSON's parts as they come, the rules of the format, and files read and written.
#include "src/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "data/reading/box_runs.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::train {

namespace {

// The key of the texts that a header may hold beside the tensors.
constexpr const char* kMetadataKey = "__metadata__";
constexpr int64_t kMostHeader = 100'000'000;  // bytes: the format's limit

// A name from a file, as a message can show it: in quotes, shortened, without control characters.
std::string shown_name(const std::string& text) {
  return "'" + shown(text) + "'";
}

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
    if (name == kMetadataKey) {
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

struct StoredType {
  const char* name;
  int64_t bytes;
  at::ScalarType values;  // kOther: of tensors that are neither read nor written
};
constexpr at::ScalarType kOther = at::ScalarType::Undefined;
constexpr StoredType kTypes[] = {{"BOOL", 1, kOther},        {"U8", 1, kOther},      {"I8", 1, kOther},
                                 {"F8_E5M2", 1, kOther},     {"F8_E4M3", 1, kOther}, {"I16", 2, kOther},
                                 {"U16", 2, kOther},         {"I32", 4, kOther},     {"U32", 4, kOther},
                                 {"I64", 8, kOther},         {"U64", 8, kOther},     {"F16", 2, at::kHalf},
                                 {"BF16", 2, at::kBFloat16}, {"F32", 4, at::kFloat}, {"F64", 8, at::kDouble}};

[[noreturn]] void refuse_header(const std::string& where, const std::string& what) {
  throw Error(ErrorClass::kBadData, str(where, " is no safetensors file: ", what),
              "it is damaged or of another format");
}

// Null for an unknown type.
const StoredType* find_type(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const StoredType& known) { return known.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

void check(const SafetensorsEntry& entry, int64_t data_bytes, const std::string& where) {
  const std::string tensor = "tensor " + shown_name(entry.name);
  const StoredType* const type = find_type(entry.type);
  if (type == nullptr) {
    refuse_header(where, str(tensor, " is of the unknown type ", shown_name(entry.type)));
  }
  if (entry.begin > entry.end || entry.end > data_bytes) {
    refuse_header(where, str(tensor, " is at bytes ", entry.begin, " to ", entry.end, " of ", data_bytes));
  }
  if (data::bytes_of_shape(entry.shape, type->bytes) != entry.end - entry.begin) {
    refuse_header(where, str(tensor, " has ", entry.end - entry.begin, " bytes, not those of ", entry.type, " [",
                             join(entry.shape), "]"));
  }
}

// Every byte of the data belongs to exactly one tensor.
void check_cover(const std::vector<SafetensorsEntry>& tensors, int64_t data_bytes, const std::string& where) {
  int64_t position = 0;
  for (const SafetensorsEntry& entry : tensors) {
    if (entry.begin != position) {
      refuse_header(where, str("tensor ", shown_name(entry.name), " begins at byte ", entry.begin, ", where ", position,
                               " is due: tensors overlap or leave a gap"));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    refuse_header(where, str("its tensors end at byte ", position, " of ", data_bytes));
  }
}

static_assert(std::endian::native == std::endian::little, "the format's bytes are little-endian");

constexpr int64_t kLengthBytes = 8;  // of the header's length, before it

const char* name_of(at::ScalarType type) {
  const auto* const found = std::ranges::find(kTypes, type, &StoredType::values);
  VH_ASSERT(found != std::end(kTypes), str("no safetensors type for ", c10::toString(type)));
  return found->name;
}

int64_t header_length(const data::PosixFile& file) {
  uint64_t length = 0;
  const int64_t size = file.size();
  if (size >= kLengthBytes) {
    file.read(0, &length, kLengthBytes);
  }
  if (size < kLengthBytes || length > static_cast<uint64_t>(kMostHeader) ||
      static_cast<int64_t>(length) > size - kLengthBytes) {
    throw Error(ErrorClass::kBadData,
                str(file.path(), " is no safetensors file: it has ", size, " bytes, of which the header would be ",
                    length, " (at most ", kMostHeader, ")"),
                "it is damaged, truncated or of another format");
  }
  return static_cast<int64_t>(length);
}

SafetensorsHeader make_header(const std::vector<SafetensorsItem>& items,
                              const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  int64_t position = 0;
  for (const SafetensorsItem& item : items) {
    const int64_t bytes = data::num_elements(item.shape) * static_cast<int64_t>(c10::elementSize(item.type));
    header.tensors.push_back({item.name, name_of(item.type), item.shape, position, position + bytes});
    position += bytes;
  }
  return header;
}

// The JSON of a header, padded with blanks so that the data behind it begins at a multiple of 8 bytes.
std::string header_text(const SafetensorsHeader& header) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) {
    object[kMetadataKey] = header.metadata;
  }
  for (const SafetensorsEntry& entry : header.tensors) {
    object[entry.name] = {
        {"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", std::vector<int64_t>{entry.begin, entry.end}}};
  }
  std::string text = object.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& where) {
  if (!json.starts_with('{')) {
    refuse_header(where, "its header does not begin with '{'");
  }
  JsonReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    refuse_header(where, reader.problem());
  }
  SafetensorsHeader header = reader.take();
  for (const SafetensorsEntry& entry : header.tensors) {
    check(entry, data_bytes, where);
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_cover(header.tensors, data_bytes, where);
  return header;
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path, data::PosixFile::Access::kRead) {
  const int64_t length = header_length(file_);
  std::string json(static_cast<size_t>(length), '\0');
  file_.read(kLengthBytes, json.data(), length);
  data_begin_ = kLengthBytes + length;
  header_ = parse_safetensors_header(json, file_.size() - data_begin_, path);
}

at::Tensor SafetensorsReader::read(const SafetensorsEntry& entry) const {
  const StoredType* const type = find_type(entry.type);
  if (type == nullptr || type->values == kOther) {
    throw Error(ErrorClass::kBadData, str(path(), ": tensor '", entry.name, "' is of type ", entry.type,
                                          "; allowed are F64, F32, F16, BF16"));
  }
  const MemoryScope scope(MemoryClass::kData);
  const at::Tensor values = at::empty(entry.shape, at::TensorOptions(type->values));
  file_.read(data_begin_ + entry.begin, values.mutable_data_ptr(), entry.end - entry.begin);
  return values;
}

void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<at::Tensor(size_t)>& values) {
  const SafetensorsHeader header = make_header(items, metadata);
  const std::string text = header_text(header);
  const std::string temporary = data::temporary_name(path);
  data::PosixFile file(temporary, data::PosixFile::Access::kCreate);
  try {
    const uint64_t length = text.size();
    const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
    file.write(0, &length, kLengthBytes);
    file.write(kLengthBytes, text.data(), static_cast<int64_t>(length));
    for (size_t i = 0; i < items.size(); ++i) {
      const at::Tensor tensor = values(i);
      VH_ASSERT(tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == items[i].type &&
                    tensor.sizes() == at::IntArrayRef(items[i].shape),
                items[i].name);
      file.write(data_begin + header.tensors[i].begin, tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()));
    }
    file.sync();
    file.close();
    data::rename_file(temporary, path);
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
}

}  // namespace vit_hybrid::train
