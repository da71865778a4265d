// Dims and coordinates of arrays by the names of their dims, layouts of their chunk files, and which of these are
// there.
#include "data/zarr/zarr_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr double kPascals = 100.0;  // of one hPa

std::string text_attribute(const ZarrArray& array, const char* name) {
  const auto found = array.attributes.find(name);
  return found != array.attributes.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> number_attribute(const ZarrArray& array, const char* name) {
  const auto found = array.attributes.find(name);
  return found != array.attributes.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

ChunkFilter filter_of(const ZarrCodec& codec) {
  switch (codec.kind) {
    case ZarrCodec::Kind::kShuffle:
      return ChunkFilter::kShuffle;
    case ZarrCodec::Kind::kDeflate:
      return ChunkFilter::kDeflate;
    case ZarrCodec::Kind::kZstd:
      return ChunkFilter::kZstd;
    case ZarrCodec::Kind::kLz4:
      return ChunkFilter::kLz4;
    case ZarrCodec::Kind::kBlosc:
      return ChunkFilter::kBlosc;
    case ZarrCodec::Kind::kCrc32c:
      break;
  }
  return ChunkFilter::kCrc32c;
}

// Of an array that is not refused.
ArrayLayout layout_of(const ZarrArray& array, const std::string& where) {
  ArrayLayout layout;
  layout.name = array.name;
  layout.shape = array.shape;
  layout.type = array.type;
  layout.storage = ArrayLayout::Storage::kChunkFiles;
  layout.chunk = array.chunk;
  for (const ZarrCodec& codec : array.codecs) {
    const auto item = static_cast<int64_t>(c10::elementSize(array.type));
    if (codec.kind == ZarrCodec::Kind::kShuffle && codec.item_bytes != item) {
      throw Error(ErrorClass::kBadData,
                  str(where, " is shuffled in items of ", codec.item_bytes, " bytes, its values have ", item),
                  "store it with the size of its values");
    }
    layout.filters.push_back(static_cast<int64_t>(filter_of(codec)));
  }
  ChunkFiles& files = layout.chunk_files;
  // The path of a file of no indices is the prefix, but for the name that an array without dims has.
  files.prefix =
      array.name + "/" + array.key_prefix + (array.key_prefix.empty() ? "" : std::string(1, array.key_separator));
  files.separator = std::string(1, array.key_separator);
  files.shard = array.shard;
  files.index_at_end = array.shard_index_at_end;
  files.index_has_checksum = array.shard_index_has_checksum;
  files.is_swapped = array.is_swapped;
  files.has_fill = array.fill_value.has_value();
  files.fill = array.fill_value.value_or(0.0);
  return layout;
}

// Files along each dim: of chunks, or of shards of them.
std::vector<int64_t> grid_of_files(const ArrayLayout& layout) {
  const std::vector<int64_t>& in_file = layout.chunk_files.shard.empty() ? layout.chunk : layout.chunk_files.shard;
  std::vector<int64_t> grid;
  for (size_t d = 0; d < in_file.size(); ++d) {
    grid.push_back(layout.shape[d] / in_file[d] + (layout.shape[d] % in_file[d] != 0 ? 1 : 0));
  }
  return grid;
}

// The files of an array that are there, which may be in folders of their own: how many for each first index.
std::map<int64_t, int64_t> count_files(const std::string& folder, const ArrayLayout& layout) {
  std::map<int64_t, int64_t> counts;
  const std::string prefix = folder + "/" + layout.chunk_files.prefix;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(prefix, error), end; !error && entry != end; entry.increment(error)) {
    const std::string key = entry->path().string().substr(prefix.size());
    int64_t row = 0;
    const auto [last, failure] = std::from_chars(key.data(), key.data() + key.size(), row);
    const bool is_key = failure == std::errc() && key.find_first_not_of("0123456789./") == std::string::npos;
    std::error_code ignored;
    if (is_key && !entry->is_directory(ignored)) {
      ++counts[row];
    }
  }
  return counts;
}

// A fill value stands for chunks in which it is everywhere; that it is so in all chunks of a time, nobody believes.
std::string unwritten_chunks(const std::string& folder, const ArrayLayout& layout) {
  const std::vector<int64_t> grid = grid_of_files(layout);
  const std::map<int64_t, int64_t> counts = count_files(folder, layout);
  const int64_t all = num_elements(grid), of_row = all / std::max<int64_t>(grid.front(), 1);
  const bool can_fill = layout.chunk_files.has_fill && std::isfinite(layout.chunk_files.fill);
  int64_t row = 0, found = 0;  // the first row that lacks some
  for (const auto& [number, count] : counts) {
    row += number == row && count >= (can_fill ? 1 : of_row) ? 1 : 0;
    found += count;
  }
  const bool is_sharded = !layout.chunk_files.shard.empty();
  return row >= grid.front() ? ""
                             : str(all - found, " of the files of its ", all, is_sharded ? " shards" : " chunks",
                                   " are not there, the first of row ",
                                   row * (is_sharded ? layout.chunk_files.shard : layout.chunk).front());
}

int64_t existing_bytes(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(bytes);
}

// Its metadata, and the files of its first and last chunk, as far as these are there.
std::vector<std::string> samples_of(const std::string& folder, const ArrayLayout& layout) {
  const ChunkFiles& files = layout.chunk_files;
  std::vector<int64_t> last = grid_of_files(layout);
  const std::vector<int64_t> first(last.size(), 0);
  for (int64_t& index : last) {
    index = std::max<int64_t>(index - 1, 0);
  }
  std::vector<std::string> samples;
  for (const std::string& name :
       {layout.name + "/zarr.json", layout.name + "/.zarray", std::string("zarr.json"), std::string(".zmetadata")}) {
    if (samples.empty() && existing_bytes(folder + "/" + name) >= 0) {
      samples.push_back(name);
    }
  }
  for (const auto& index : {first, last}) {
    const std::string name = files.prefix + join(index, files.separator);
    if (existing_bytes(folder + "/" + name) >= 0) {
      samples.push_back(name);
    }
  }
  return samples;
}

Packing packing_of(const ZarrArray& array, const std::string& where) {
  Packing packing;
  packing.scale = number_attribute(array, "scale_factor").value_or(1.0);
  packing.offset = number_attribute(array, "add_offset").value_or(0.0);
  std::optional<double> fill = number_attribute(array, "_FillValue");
  if (!fill) {
    fill = number_attribute(array, "missing_value");
  }
  // What version 2 has no attribute for, xarray keeps as the fill value; the usual one, 0, says nothing.
  if (!fill && array.fill_value && *array.fill_value != 0.0) {
    fill = array.fill_value;
  }
  packing.has_fill = fill && !std::isnan(*fill);
  packing.fill = !packing.has_fill ? 0.0 : array.type == at::kFloat ? static_cast<float>(*fill) : *fill;
  if (!std::isfinite(packing.scale) || packing.scale == 0.0 || !std::isfinite(packing.offset)) {
    throw Error(ErrorClass::kBadData, str(where, ": scale_factor ", packing.scale, ", add_offset ", packing.offset),
                "both are finite, and the first is not 0");
  }
  return packing;
}

}  // namespace

ZarrFields::ZarrFields(const std::string& folder) : folder_(folder), store_(read_zarr_store(folder)) {}

const ZarrArray* ZarrFields::find(const std::string& name) const {
  const auto found = std::find_if(store_.arrays.begin(), store_.arrays.end(),
                                  [&](const ZarrArray& array) { return array.name == name; });
  return found == store_.arrays.end() ? nullptr : &*found;
}

// The list of numbers that is called as the dim is, and has one for each index.
const ZarrArray* ZarrFields::coordinate(const ZarrArray& array, size_t dim) const {
  const ZarrArray* const found = dim < array.dims.size() && !array.dims[dim].empty() ? find(array.dims[dim]) : nullptr;
  const bool fits = found != nullptr && found != &array && found->refused.empty() &&
                    found->shape == std::vector<int64_t>{array.shape[dim]};
  return fits ? found : nullptr;
}

std::vector<DimKind> ZarrFields::dims_of(const ZarrArray& array) const {
  std::vector<DimKind> told(array.shape.size(), DimKind::kUnknown);
  for (size_t d = 0; d < array.dims.size() && d < told.size(); ++d) {
    const ZarrArray* const values = coordinate(array, d);
    told[d] = dim_kind(array.dims[d], values == nullptr ? "" : text_attribute(*values, "units"));
  }
  return field_dims(array.shape, std::move(told));
}

std::vector<double> ZarrFields::values_of(const ZarrArray& array) const {
  const std::string where = str(folder_, ": array '", shown(array.name), "'");
  const Packing packing = packing_of(array, where);
  const at::Tensor values =
      read_chunk_files({folder_, layout_of(array, where)}).to(at::kDouble).mul(packing.scale).add(packing.offset);
  const auto* first = values.const_data_ptr<double>();
  return {first, first + values.numel()};
}

std::vector<FieldVariable> ZarrFields::variables() const {
  std::vector<FieldVariable> variables;
  for (const ZarrArray& array : store_.arrays) {
    FieldVariable variable;
    variable.name = array.name;
    variable.shape = array.shape;
    variable.dims = dims_of(array);
    const auto level = std::find(variable.dims.begin(), variable.dims.end(), DimKind::kLevel);
    if (level != variable.dims.end()) {
      const ZarrArray* const values = coordinate(array, static_cast<size_t>(level - variable.dims.begin()));
      variable.levels = values == nullptr ? std::vector<double>{} : values_of(*values);
      for (double& value : variable.levels) {
        value /= text_attribute(*values, "units") == "Pa" ? kPascals : 1.0;
      }
    }
    const bool has_channels =
        std::find(variable.dims.begin(), variable.dims.end(), DimKind::kChannel) != variable.dims.end();
    const bool can_be_asked_for = level == variable.dims.end() ? !has_channels : !variable.levels.empty();
    if (!variable.dims.empty() && can_be_asked_for) {
      variables.push_back(std::move(variable));
    }
  }
  return variables;
}

ArrayLayout ZarrFields::inspect(const FieldVariable& variable, bool is_whole) const {
  const ZarrArray* const array = find(variable.name);
  VH_ASSERT(array != nullptr, variable.name);
  const std::string where = str(folder_, ": array '", shown(array->name), "'");
  if (!array->refused.empty()) {
    throw Error(ErrorClass::kBadData, str(where, " cannot be read: ", array->refused),
                "read are the codecs blosc, zstd, lz4, gzip, zlib, shuffle and crc32c, in row-major order, of numbers");
  }
  ArrayLayout layout = layout_of(*array, where);
  layout.dims = variable.dims;
  layout.packing = packing_of(*array, where);
  layout.attribute = text_attribute(*array, "units");
  if (is_whole) {
    layout.unwritten = unwritten_chunks(folder_, layout);
    layout.chunk_files.samples = samples_of(folder_, layout);
    layout.file_bytes = existing_bytes(folder_ + "/" + layout.chunk_files.samples.front());
  }
  const auto coordinate_of = [&](DimKind kind) {
    const auto dim = std::find(layout.dims.begin(), layout.dims.end(), kind) - layout.dims.begin();
    return coordinate(*array, static_cast<size_t>(dim));
  };
  if (const StoredTimes times = times_of(array->name); !times.values.empty()) {
    layout.times = checked_time_axis(times.values, times.units, times.calendar, where);
  }
  const ZarrArray* const latitudes = coordinate_of(DimKind::kLatitude);
  const ZarrArray* const longitudes = coordinate_of(DimKind::kLongitude);
  layout.grid.latitudes = latitudes == nullptr ? std::vector<double>{} : values_of(*latitudes);
  layout.grid.longitudes = longitudes == nullptr ? std::vector<double>{} : values_of(*longitudes);
  unwrap_longitudes(layout.grid.longitudes);
  check_grid(layout.grid, where);
  return layout;
}

StoredTimes ZarrFields::times_of(const std::string& name) const {
  const ZarrArray* const array = find(name);
  VH_ASSERT(array != nullptr, name);
  const ZarrArray* const times = coordinate(*array, 0);
  return times == nullptr
             ? StoredTimes{}
             : StoredTimes{values_of(*times), text_attribute(*times, "units"), text_attribute(*times, "calendar")};
}

}  // namespace vit_hybrid::data
