// JSON asked for as what it must be; arrays of v2 and v3; and the files of a store: consolidated metadata (.zmetadata
// of v2, inside of zarr.json in v3), else a walk.
#include "data/zarr/zarr_metadata.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>

#include "data/reading/box_runs.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr int kZarrMostNesting = 64;  // the parser has no bound, and copies recurse
constexpr const char* kZarrDamaged = "the metadata are damaged: copy or make the store again";

// Of the text or word that `rest` begins with; of anything else one byte.
size_t token_bytes(std::string_view rest) {
  size_t length = 1;
  if (rest.front() == '"') {
    while (length < rest.size() && rest[length] != '"') {
      length += rest[length] == '\\' ? 2 : 1;
    }
    return std::min(length + 1, rest.size());
  }
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
    length = rest.starts_with(word) ? word.size() : length;
  }
  return length;
}

std::string standard_json(std::string_view text, const std::string& path) {
  std::string out;
  out.reserve(text.size());
  int depth = 0;
  while (!text.empty()) {
    const std::string_view token = text.substr(0, token_bytes(text));
    const char first = token.front();
    depth += first == '{' || first == '[' ? 1 : first == '}' || first == ']' ? -1 : 0;
    if (depth > kZarrMostNesting) {
      throw Error(ErrorClass::kBadData, str(path, " nests deeper than ", kZarrMostNesting, " levels"), kZarrDamaged);
    }
    const bool is_word = token.size() > 1 && first != '"';
    out.append(is_word ? "\"" : "").append(token).append(is_word ? "\"" : "");
    text.remove_prefix(token.size());
  }
  return out;
}

}  // namespace

ZarrJson parse_zarr_json(const std::string& text, const std::string& path) {
  try {
    return ZarrJson::parse(standard_json(text, path));
  } catch (const ZarrJson::exception& error) {
    throw Error(ErrorClass::kBadData, str(path, " is no JSON: ", shown(error.what())), kZarrDamaged);
  }
}

void ZarrField::fail(const std::string& what) const {
  throw Error(ErrorClass::kBadData, str(place_, " ", what), kZarrDamaged);
}

const ZarrJson& ZarrField::object() const {
  if (!value_.is_object()) fail("is no object {...}");
  return value_;
}

std::string ZarrField::text() const {
  if (!value_.is_string()) fail("is no text");
  return value_.get<std::string>();
}

int64_t ZarrField::integer(int64_t least) const {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const bool fits = value_.is_number_unsigned() ? value_.get<uint64_t>() <= kMost : value_.is_number_integer();
  if (!fits || value_.get<int64_t>() < least) {
    fail(str("is ", shown(value_.dump()), ", a whole number from ", least, " to ", kMost, " is needed"));
  }
  return value_.get<int64_t>();
}

std::vector<ZarrField> ZarrField::items() const {
  if (!value_.is_array() || value_.size() > kMostItems) {
    fail(str("is no list of at most ", kMostItems, " items"));
  }
  std::vector<ZarrField> items;
  for (const ZarrJson& item : value_) {
    items.emplace_back(item, str(place_, "[", items.size(), "]"));
  }
  return items;
}

std::vector<int64_t> ZarrField::integers(int64_t least) const {
  std::vector<int64_t> integers;
  for (const ZarrField& item : items()) {
    integers.push_back(item.integer(least));
  }
  return integers;
}

bool ZarrField::has(const std::string& key) const {
  return object().contains(key) && !value_.at(key).is_null();
}

ZarrField ZarrField::operator[](const std::string& key) const {
  if (!object().contains(key)) fail(str("has no '", shown(key), "'"));
  return {value_.at(key), str(place_, ": '", shown(key), "'")};
}

std::string ZarrField::text_or(const std::string& key, const std::string& usual) const {
  return has(key) ? (*this)[key].text() : usual;
}

ZarrJson ZarrField::object_or_empty(const std::string& key) const {
  return has(key) ? (*this)[key].object() : ZarrJson::object();
}

namespace {

static_assert(std::endian::native == std::endian::little, "is_swapped is big-endian");

constexpr int64_t kZarrMostChunkBytes = int64_t{512} << 20;  // of values, and of the index of a shard
constexpr int64_t kZarrIndexEntryBytes = 16;

// The keys of an array in v3: one that is not known might change what values mean.
constexpr std::array<std::string_view, 11> kZarrKeysV3 = {
    "zarr_format", "node_type", "shape",      "data_type",       "chunk_grid",          "chunk_key_encoding",
    "fill_value",  "codecs",    "attributes", "dimension_names", "storage_transformers"};

// What comes by name and, often, a configuration: codecs, types, grids.
struct ZarrExtension {
  std::string name;
  ZarrField options;
};

ZarrExtension extension_v2(const ZarrField& field) {
  return {field["id"].text(), field};
}

ZarrExtension extension_v3(const ZarrField& field) {
  static const ZarrJson kNothing = ZarrJson::object();
  if (field.value().is_string()) {
    return {field.text(), {kNothing, field.place()}};
  }
  return {field["name"].text(),
          field.has("configuration") ? field["configuration"] : ZarrField(kNothing, field.place())};
}

void require_format(const ZarrField& field, int64_t format) {
  if (field["zarr_format"].integer(0) != format) {
    field["zarr_format"].fail(str("is not ", format));
  }
}

void refuse_array(ZarrArray& array, const std::string& why) {
  if (array.refused.empty()) {
    array.refused = why;
  }
}

struct ZarrType {
  std::string_view v2;
  std::string_view v3;
  at::ScalarType type;
};

constexpr std::array kZarrTypes = {ZarrType{"f2", "float16", at::kHalf},   ZarrType{"f4", "float32", at::kFloat},
                                   ZarrType{"f8", "float64", at::kDouble}, ZarrType{"i1", "int8", at::kChar},
                                   ZarrType{"i2", "int16", at::kShort},    ZarrType{"i4", "int32", at::kInt},
                                   ZarrType{"i8", "int64", at::kLong},     ZarrType{"u1", "uint8", at::kByte}};

// NumPy's datetime64: whole numbers of its unit, for which CF has an attribute.
void read_dates(const std::string& unit, ZarrArray& array) {
  static const std::map<std::string_view, const char*> kUnits = {
      {"D", "days"},          {"h", "hours"},         {"m", "minutes"},     {"s", "seconds"},
      {"ms", "milliseconds"}, {"us", "microseconds"}, {"ns", "nanoseconds"}};
  const auto known = kUnits.find(unit);
  if (known == kUnits.end()) {
    return refuse_array(array, str("dates in units of '", shown(unit), "'"));
  }
  array.type = at::kLong;
  array.attributes["units"] = str(known->second, " since 1970-01-01");
}

void read_type(std::string_view ZarrType::*version, std::string_view name, const ZarrField& field, ZarrArray& array) {
  constexpr std::string_view kDates = "M8[";
  if (version == &ZarrType::v2 && name.starts_with(kDates) && name.ends_with(']')) {
    return read_dates(std::string(name.substr(kDates.size(), name.size() - kDates.size() - 1)), array);
  }
  const auto* const known = std::ranges::find(kZarrTypes, name, version);
  if (known == kZarrTypes.end()) {
    return refuse_array(array, str("values of type ", shown(field.value().dump())));
  }
  array.type = known->type;
}

int64_t zarr_item_bytes(const ZarrArray& array) {
  return static_cast<int64_t>(c10::elementSize(array.type));
}

// numcodecs' bitround changes values when they are written; to read them nothing is to be undone.
bool is_undone_by_nothing(const std::string& name) {
  return name == "bitround" || name == "numcodecs.bitround";
}

void add_codec(const ZarrExtension& codec, ZarrArray& array) {
  static const std::map<std::string_view, ChunkFilter> kFilters = {
      {"shuffle", ChunkFilter::kShuffle}, {"zlib", ChunkFilter::kDeflate}, {"gzip", ChunkFilter::kDeflate},
      {"zstd", ChunkFilter::kZstd},       {"lz4", ChunkFilter::kLz4},      {"blosc", ChunkFilter::kBlosc},
      {"crc32c", ChunkFilter::kCrc32c}};
  constexpr std::string_view kWrapped = "numcodecs.";
  if (is_undone_by_nothing(codec.name)) {
    return;
  }
  const std::string_view name = codec.name;
  const auto found = kFilters.find(name.starts_with(kWrapped) ? name.substr(kWrapped.size()) : name);
  if (found == kFilters.end()) {
    return refuse_array(array, str("codec '", shown(name), "'"));
  }
  if (found->second == ChunkFilter::kCrc32c && codec.options.text_or("location", "end") != "end") {
    return refuse_array(array, "codec 'crc32c' before the bytes");
  }
  int64_t item = 1;
  if (found->second == ChunkFilter::kShuffle) {
    item = codec.options.has("elementsize") ? codec.options["elementsize"].integer(1) : 4;  // numcodecs' default
  }
  array.codecs.push_back({found->second, item});
}

bool is_identity(const ZarrField& order, size_t num_dims) {
  bool is_sorted = order.value().is_array() && order.value().size() == num_dims;
  for (size_t d = 0; is_sorted && d < num_dims; ++d) {
    is_sorted = order.value()[d] == d;
  }
  return is_sorted;
}

bool is_big_endian(const ZarrField& options, ZarrArray& array) {
  const std::string order = options.text_or("endian", "");
  if (order != "little" && order != "big" && !(order.empty() && zarr_item_bytes(array) == 1)) {
    refuse_array(array, str("bytes in the order '", shown(order), "'"));
  }
  return order == "big" && zarr_item_bytes(array) > 1;
}

void read_shards(const ZarrField& options, ZarrArray& array);

// Codecs of values, one that makes bytes of them, codecs of bytes.
void read_codecs(const ZarrField& list, ZarrArray& array) {
  bool is_bytes = false;
  bool is_shard = false;
  for (const ZarrField& field : list.items()) {
    const ZarrExtension codec = extension_v3(field);
    if (is_shard) {
      refuse_array(array, str("codec '", shown(codec.name), "' of whole shards"));
    } else if (is_bytes) {
      add_codec(codec, array);
    } else if (codec.name == "bytes") {
      array.is_swapped = is_big_endian(codec.options, array);
      is_bytes = true;
    } else if (codec.name == "sharding_indexed") {
      read_shards(codec.options, array);
      is_bytes = is_shard = true;
    } else if (!is_undone_by_nothing(codec.name) &&
               (codec.name != "transpose" || !is_identity(codec.options["order"], array.shape.size()))) {
      refuse_array(array, str("codec '", shown(codec.name), "'"));
    }
  }
  if (!is_bytes) {
    refuse_array(array, "no codec that makes bytes of values");
  }
}

void read_shard_index(const ZarrField& options, ZarrArray& array) {
  const std::string place = options.text_or("index_location", "end");
  const std::vector<ZarrField> codecs = options["index_codecs"].items();
  array.shard_index_at_end = place == "end";
  array.shard_index_has_checksum = codecs.size() == 2;
  const auto is_codec = [&](size_t i, const char* name) { return extension_v3(codecs[i]).name == name; };
  const bool is_usual = (codecs.size() == 1 || (codecs.size() == 2 && is_codec(1, "crc32c"))) && is_codec(0, "bytes") &&
                        extension_v3(codecs[0]).options.text_or("endian", "") == "little";
  if (!is_usual || (place != "end" && place != "start")) {
    refuse_array(array, "an index of shards that is not of bytes (little-endian), perhaps with crc32c");
  }
}

void read_shards(const ZarrField& options, ZarrArray& array) {
  if (!array.shard.empty()) {
    return refuse_array(array, "shards in shards");
  }
  array.shard = std::exchange(array.chunk, options["chunk_shape"].integers(1));
  read_shard_index(options, array);
  read_codecs(options["codecs"], array);
}

double bits_value(uint64_t bits, at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return static_cast<float>(c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits()));
    case at::kFloat:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    default:
      return std::bit_cast<double>(bits);
  }
}

std::optional<double> float_fill(const std::string& text, at::ScalarType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::nan("");
  if (text == "Infinity") return kInfinity;
  if (text == "-Infinity") return -kInfinity;
  uint64_t bits = 0;  // "0x7fc00000"
  const char* const end = text.data() + text.size();
  if (text.starts_with("0x") && text.size() == 2 + 2 * c10::elementSize(type) &&
      std::from_chars(text.data() + 2, end, bits, 16).ptr == end) {
    return bits_value(bits, type);
  }
  return std::nullopt;
}

// Nothing, where it is no value of the type: it matters only where chunks are missing.
std::optional<double> read_fill(const ZarrJson& fill, at::ScalarType type) {
  if (c10::isFloatingType(type)) {
    return fill.is_number()   ? fill.get<double>()
           : fill.is_string() ? float_fill(fill.get<std::string>(), type)
           : fill.is_null()   ? std::optional(std::nan(""))
                              : std::nullopt;
  }
  if (!fill.is_number()) {
    return std::nullopt;
  }
  const auto value = fill.get<double>();
  const bool is_signed = type != at::kByte;
  const double end = std::ldexp(1.0, static_cast<int>(8 * c10::elementSize(type)) - (is_signed ? 1 : 0));
  const bool fits = value == std::floor(value) && value >= (is_signed ? -end : 0.0) && value < end;
  return fits ? std::optional(value) : std::nullopt;
}

std::vector<std::string> read_dims(const ZarrJson& names, size_t num_dims) {
  std::vector<std::string> dims;
  if (names.is_array() && names.size() == num_dims) {
    for (const ZarrJson& name : names) {
      dims.push_back(name.is_string() ? name.get<std::string>() : "");
    }
  }
  return dims;
}

char read_separator(const ZarrField& field, const std::string& key, const std::string& usual) {
  const std::string separator = field.text_or(key, usual);
  if (separator != "." && separator != "/") {
    field[key].fail(str("is '", shown(separator), "', '.' or '/' is needed"));
  }
  return separator.front();
}

// Shape, chunks and shards against each other, and what memory they ask for.
void check_extents(const ZarrField& field, ZarrArray& array) {
  const size_t num_dims = array.shape.size();
  if (array.chunk.size() != num_dims || (!array.shard.empty() && array.shard.size() != num_dims)) {
    field.fail(str("has the shape (", join(array.shape), ") and chunks of (", join(array.chunk), ")"));
  }
  if (!bytes_of_shape(array.shape, zarr_item_bytes(array))) {
    field.fail(str("has more values than can be counted, of shape (", join(array.shape), ")"));
  }
  if (bytes_of_shape(array.chunk, zarr_item_bytes(array)).value_or(kZarrMostChunkBytes + 1) > kZarrMostChunkBytes) {
    refuse_array(array, str("chunks of (", join(array.chunk), ") values, more than ", bytes_text(kZarrMostChunkBytes)));
  }
  std::vector<int64_t> chunks_of_shard;
  for (size_t d = 0; d < array.shard.size(); ++d) {
    if (array.shard[d] % array.chunk[d] != 0) {
      field.fail(str("has shards of (", join(array.shard), ") with chunks of (", join(array.chunk), ")"));
    }
    chunks_of_shard.push_back(array.shard[d] / array.chunk[d]);
  }
  if (bytes_of_shape(chunks_of_shard, kZarrIndexEntryBytes).value_or(kZarrMostChunkBytes + 1) > kZarrMostChunkBytes) {
    refuse_array(array,
                 str("shards of (", join(array.shard), ") values with too many chunks of (", join(array.chunk), ")"));
  }
}

}  // namespace

std::string ZarrArray::chunk_path(std::span<const int64_t> index) const {
  std::string key = key_prefix;
  for (const int64_t i : index) {
    key += str(key.empty() ? "" : std::string(1, key_separator), i);
  }
  return str(name, "/", key.empty() ? "0" : key);
}

std::vector<int64_t> chunk_index(std::string_view key, char separator) {
  std::vector<int64_t> index;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find(separator, begin), key.size());
    int64_t number = -1;
    const auto [last, failure] = std::from_chars(key.data() + begin, key.data() + end, number);
    if (failure != std::errc() || last != key.data() + end || number < 0) {
      return {};
    }
    index.push_back(number);
    begin = end + 1;
  }
  return index;
}

ZarrArray zarr_array_v2(const std::string& name, const ZarrField& field, const ZarrJson& attributes) {
  require_format(field, 2);
  ZarrArray array;
  array.name = name;
  array.attributes = attributes;
  array.shape = field["shape"].integers(0);
  array.chunk = field["chunks"].integers(1);
  array.dims = read_dims(attributes.value("_ARRAY_DIMENSIONS", ZarrJson()), array.shape.size());
  array.key_separator = read_separator(field, "dimension_separator", ".");
  const ZarrField type = field["dtype"];
  const std::string code = type.value().is_string() ? type.text() : "";  // "<f4"; structures are lists
  const bool has_order = code.starts_with('<') || code.starts_with('>') || code.starts_with('|');
  read_type(&ZarrType::v2, std::string_view(code).substr(has_order ? 1 : 0), type, array);
  array.is_swapped = code.starts_with('>') && zarr_item_bytes(array) > 1;
  if (field["order"].text() != "C" && array.shape.size() > 1) {
    refuse_array(array, str("order ", shown(field["order"].text())));
  }
  if (field.has("filters")) {
    for (const ZarrField& filter : field["filters"].items()) {
      add_codec(extension_v2(filter), array);
    }
  }
  if (field.has("compressor")) {
    add_codec(extension_v2(field["compressor"]), array);
  }
  array.fill_value = read_fill(field["fill_value"].value(), array.type);
  check_extents(field, array);
  return array;
}

ZarrArray zarr_array_v3(const std::string& name, const ZarrField& field) {
  require_format(field, 3);
  ZarrArray array;
  array.name = name;
  array.attributes = field.object_or_empty("attributes");
  array.shape = field["shape"].integers(0);
  array.dims = field.has("dimension_names") ? read_dims(field["dimension_names"].value(), array.shape.size())
                                            : std::vector<std::string>();
  const ZarrExtension type = extension_v3(field["data_type"]);
  if (type.name == "numpy.datetime64" && type.options.has("unit") && type.options.has("scale_factor") &&
      type.options["scale_factor"].integer(1) == 1) {
    read_dates(type.options["unit"].text(), array);
  } else {
    read_type(&ZarrType::v3, type.name, field["data_type"], array);
  }
  const ZarrExtension grid = extension_v3(field["chunk_grid"]);
  if (grid.name != "regular") {
    refuse_array(array, str("chunk grid '", shown(grid.name), "'"));
    return array;
  }
  array.chunk = grid.options["chunk_shape"].integers(1);
  const ZarrExtension keys = extension_v3(field["chunk_key_encoding"]);
  if (keys.name != "default" && keys.name != "v2") {
    refuse_array(array, str("chunk keys '", shown(keys.name), "'"));
  }
  array.key_prefix = keys.name == "v2" ? "" : "c";
  array.key_separator = read_separator(keys.options, "separator", keys.name == "v2" ? "." : "/");
  if (field.has("storage_transformers") && !field["storage_transformers"].items().empty()) {
    refuse_array(array, "storage transformers");
  }
  for (const auto& [key, value] : field.object().items()) {
    const bool is_harmless = value.is_object() && value.value("must_understand", ZarrJson(true)) == false;
    if (!is_harmless && std::ranges::find(kZarrKeysV3, key) == kZarrKeysV3.end()) {
      refuse_array(array, str("key '", shown(key), "'"));
    }
  }
  read_codecs(field["codecs"], array);
  array.fill_value = read_fill(field["fill_value"].value(), array.type);
  check_extents(field, array);
  return array;
}

namespace {

namespace fs = std::filesystem;

constexpr int64_t kZarrMostMetadataBytes = int64_t{64} << 20;

// The files of a store, by their names in it.
class ZarrFiles {
 public:
  explicit ZarrFiles(std::string folder) : folder_(std::move(folder)) {}

  std::string path(const std::string& name) const { return name.empty() ? folder_ : folder_ + "/" + name; }
  bool has(const std::string& name) const {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(path(name), ignored));
  }
  ZarrJson read(const std::string& name) {
    const std::string file = path(name);
    const std::string text = read_regular_file(file, kZarrMostMetadataBytes, Links::kRefuse);
    bytes_ += static_cast<int64_t>(text.size());
    if (bytes_ > kZarrMostMetadataBytes) {
      throw Error(ErrorClass::kBadData, str(folder_, " has more than ", bytes_text(kZarrMostMetadataBytes),
                                            " of metadata, the most that a store may have"));
    }
    return parse_zarr_json(text, file);
  }
  /// The attributes of a v2 group or array.
  ZarrJson read_attributes(const std::string& name) {
    return has(name) ? ZarrField(read(name), path(name)).object() : ZarrJson::object();
  }
  /// Whether a folder on the way to an array is a link.
  bool is_linked(const std::string& name) const {
    std::error_code ignored;
    for (size_t end = name.find('/');; end = name.find('/', end + 1)) {
      if (fs::is_symlink(path(name.substr(0, end)), ignored)) return true;
      if (end == name.npos) return false;
    }
  }
  std::vector<std::string> folders_in(const std::string& name) const {
    std::vector<std::string> folders;
    std::error_code error;
    for (fs::directory_iterator entry(path(name), error), end; !error && entry != end; entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_directory(ignored)) {
        folders.push_back((name.empty() ? "" : name + "/") + entry->path().filename().string());
      }
    }
    if (error) {
      throw Error(ErrorClass::kIo, str("cannot list ", path(name), ": ", error.message()));
    }
    return folders;
  }

 private:
  std::string folder_;
  int64_t bytes_ = 0;
};

constexpr const char* kArrayV2 = ".zarray";

ZarrArray linked_array(const std::string& name) {
  ZarrArray array;
  array.name = name;
  array.refused = "a symbolic link on the way to it";
  return array;
}

// Names come from a file here: none may lead out of the folder.
void check_name(const ZarrField& field, const std::string& name) {
  const std::string parts = "/" + name + "/";
  const bool is_inside = parts.find("//") == parts.npos && parts.find("/./") == parts.npos &&
                         parts.find("/../") == parts.npos && find_no_text(name) == name.size() &&
                         std::count(name.begin(), name.end(), '/') < kZarrMostNesting;
  if (!is_inside) {
    field.fail(str("names the array '", shown(name), "', which is no path in the store"));
  }
}

[[noreturn]] void fail_single_array(const std::string& path) {
  throw Error(ErrorClass::kBadData, str(path, " is of a single array, a Zarr group is needed"),
              "name the folder of the group that has this array in it");
}

void add_consolidated_v2(const ZarrField& metadata, const ZarrFiles& files, ZarrStore& store) {
  const std::string ending = str("/", kArrayV2);
  store.attributes = metadata.object_or_empty(".zattrs");
  for (const auto& [key, value] : metadata.object().items()) {
    if (key == kArrayV2) fail_single_array(metadata.place());
    if (!key.ends_with(ending)) continue;
    const std::string name = key.substr(0, key.size() - ending.size());
    check_name(metadata, name);
    store.arrays.push_back(files.is_linked(name)
                               ? linked_array(name)
                               : zarr_array_v2(name, metadata[key], metadata.object_or_empty(str(name, "/.zattrs"))));
  }
}

bool is_array_v3(const ZarrField& node) {
  const std::string type = node["node_type"].text();
  if (type != "array" && type != "group") {
    node.fail(str("is of a '", shown(type), "', neither array nor group"));
  }
  return type == "array";
}

void add_consolidated_v3(const ZarrField& metadata, const ZarrFiles& files, ZarrStore& store) {
  for (const auto& [name, value] : metadata.object().items()) {
    check_name(metadata, name);
    if (is_array_v3(metadata[name])) {
      store.arrays.push_back(files.is_linked(name) ? linked_array(name) : zarr_array_v3(name, metadata[name]));
    }
  }
}

// Adds what the folder of this name has; true where it is a group.
bool add_node(const std::string& name, ZarrFiles& files, ZarrStore& store) {
  const auto file = [&](const char* kind) { return str(name, "/", kind); };
  if (files.is_linked(name)) {
    store.arrays.push_back(linked_array(name));
    return false;
  }
  if (files.has(file("zarr.json"))) {
    const ZarrJson json = files.read(file("zarr.json"));
    const ZarrField node(json, files.path(file("zarr.json")));
    if (!is_array_v3(node)) return true;
    store.arrays.push_back(zarr_array_v3(name, node));
    return false;
  }
  if (files.has(file(kArrayV2))) {
    const ZarrJson json = files.read(file(kArrayV2));
    store.arrays.push_back(
        zarr_array_v2(name, ZarrField(json, files.path(file(kArrayV2))), files.read_attributes(file(".zattrs"))));
    return false;
  }
  return files.has(file(".zgroup"));
}

void walk_groups(ZarrFiles& files, ZarrStore& store) {
  std::vector<std::string> groups = {""};
  while (!groups.empty()) {
    const std::string group = std::move(groups.back());
    groups.pop_back();
    if (std::count(group.begin(), group.end(), '/') >= kZarrMostNesting) {
      throw Error(ErrorClass::kBadData,
                  str(files.path(group), " is a group below more than ", kZarrMostNesting, " others"), kZarrDamaged);
    }
    for (const std::string& name : files.folders_in(group)) {
      if (add_node(name, files, store)) {
        groups.push_back(name);
      }
    }
  }
}

bool has_metadata(const ZarrFiles& files) {
  const auto names = {"zarr.json", ".zgroup", ".zmetadata", ".zattrs", kArrayV2};
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return files.has(name); });
}

// Reads the root group; true where it has told of all arrays, too.
bool add_root(ZarrFiles& files, ZarrStore& store) {
  if (files.has("zarr.json")) {
    const ZarrJson json = files.read("zarr.json");
    const ZarrField group(json, files.path("zarr.json"));
    if (is_array_v3(group)) fail_single_array(group.place());
    store.attributes = group.object_or_empty("attributes");
    if (!group.has("consolidated_metadata")) return false;
    add_consolidated_v3(group["consolidated_metadata"]["metadata"], files, store);
    return true;
  }
  if (files.has(".zmetadata")) {
    const ZarrJson json = files.read(".zmetadata");
    add_consolidated_v2(ZarrField(json, files.path(".zmetadata"))["metadata"], files, store);
    return true;
  }
  if (files.has(kArrayV2)) fail_single_array(files.path(kArrayV2));
  store.attributes = files.read_attributes(".zattrs");
  return false;
}

}  // namespace

bool is_zarr_store(const std::string& folder) {
  return has_metadata(ZarrFiles(folder));
}

ZarrStore read_zarr_store(const std::string& folder) {
  ZarrFiles files(folder);
  if (!files.has("")) {
    throw Error(ErrorClass::kMissingInput, str(folder, " is not there"),
                "check the path; every node of the job must see the folder");
  }
  if (!has_metadata(files)) {
    throw Error(ErrorClass::kBadData, str(folder, " is no Zarr store: it has neither zarr.json nor .zgroup"),
                "name the folder of a Zarr group (v2 or v3)");
  }
  ZarrStore store;
  if (!add_root(files, store)) {
    walk_groups(files, store);
  }
  std::ranges::sort(store.arrays, {}, &ZarrArray::name);
  return store;
}

}  // namespace vit_hybrid::data
