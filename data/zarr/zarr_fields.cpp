// Dims and coordinates of arrays by the names of their dims, layouts of their chunk files, and which of these are
// there.
#include "data/zarr/zarr_fields.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "data/datasets/field_share.h"
#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFlatArray = "data";
constexpr int64_t kMostPoints = int64_t{1} << 24;  // of a coordinate

std::string text_attribute(const ZarrArray& array, const char* name) {
  const auto found = array.attributes.find(name);
  return found != array.attributes.end() && found->is_string() ? found->get<std::string>() : "";
}

// A number, or a list of one.
std::optional<double> number_attribute(const ZarrArray& array, const char* name, const std::string& where) {
  const auto found = array.attributes.find(name);
  if (found == array.attributes.end() || found->is_null()) {
    return std::nullopt;
  }
  const ZarrJson& value = found->is_array() && found->size() == 1 ? found->front() : *found;
  if (value.is_number()) {
    return value.get<double>();
  }
  // What xarray writes for version 3 is the fill value in base64; NaN is a text in all of Zarr's JSON.
  constexpr size_t kShortest = 8;  // of four bytes
  const bool is_base64 = value.is_string() && value.get_ref<const std::string&>().size() >= kShortest;
  if (is_base64 && std::string(name) == "_FillValue" && array.fill_value) {
    return array.fill_value;
  }
  if (value == "NaN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  throw Error(ErrorClass::kBadData, str(where, ": the attribute ", name, " is not one number"),
              "scale_factor, add_offset, _FillValue and missing_value are numbers by CF's rules");
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
    if (codec.filter == ChunkFilter::kShuffle && codec.item_bytes != item) {
      throw Error(ErrorClass::kBadData,
                  str(where, " is shuffled in items of ", codec.item_bytes, " bytes, its values have ", item),
                  "store it with the size of its values");
    }
    layout.filters.push_back(static_cast<int64_t>(codec.filter));
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

// Visits the files of an array that are there, which may be in folders of their own, with their first index.
void for_each_file(const std::string& folder, const ArrayLayout& layout, const std::vector<int64_t>& grid,
                   const std::function<void(int64_t, const fs::directory_entry&)>& visit) {
  const std::string prefix = folder + "/" + layout.chunk_files.prefix;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(prefix, error), end; !error && entry != end; entry.increment(error)) {
    const std::string key = entry->path().string().substr(prefix.size());
    const std::vector<int64_t> index = chunk_index(key, layout.chunk_files.separator.front());
    const bool fits = std::equal(index.begin(), index.end(), grid.begin(), grid.end(), std::less<>());
    std::error_code ignored;
    if (fits && !index.empty() && entry->is_regular_file(ignored)) {  // nor is a link to nothing
      visit(index.front(), *entry);
    }
  }
}

// How many of them for each first index.
std::map<int64_t, int64_t> count_files(const std::string& folder, const ArrayLayout& layout,
                                       const std::vector<int64_t>& grid) {
  std::map<int64_t, int64_t> counts;
  for_each_file(folder, layout, grid, [&](int64_t first, const fs::directory_entry&) { ++counts[first]; });
  return counts;
}

// A fill value stands for chunks in which it is everywhere; that it is so in all chunks of a time, nobody believes.
// Where all chunks are there, none may be missing later: the layout then has no fill value.
// Of rows beyond the chosen ones those remain usable that are there up to these.
std::string unwritten_chunks(const std::string& folder, ArrayLayout& layout) {
  const std::vector<int64_t> grid = grid_of_files(layout);
  std::map<int64_t, int64_t> counts = count_files(folder, layout, grid);
  const bool is_sharded = !layout.chunk_files.shard.empty();
  const int64_t rows = (is_sharded ? layout.chunk_files.shard : layout.chunk).front();  // of a file
  const int64_t of_row = num_elements(grid) / std::max<int64_t>(grid.front(), 1);
  const bool can_fill = layout.chunk_files.has_fill && std::isfinite(layout.chunk_files.fill);
  const Range asked = layout.usable_rows();
  // As if they were there: files of no other rows than missing ones.
  std::map<int64_t, int64_t> rows_missing;
  for (const int64_t missing : layout.missing) {
    rows_missing[missing / rows] += asked.contains(missing) ? 1 : 0;
  }
  int64_t left_out = 0;
  for (const auto& [file, count] : rows_missing) {
    if (count > 0 && count == common_part({file * rows, (file + 1) * rows}, asked).size()) {
      left_out += of_row - std::exchange(counts[file], of_row);
    }
  }
  const int64_t needed = can_fill ? 1 : of_row;
  if (layout.usable) {
    const auto is_there = [&](int64_t file) { return counts.contains(file) && counts[file] >= needed; };
    const Range chosen = layout.chosen_rows();
    int64_t behind = (chosen.end + rows - 1) / rows, before = chosen.empty() ? behind : chosen.begin / rows;
    while (before * rows > asked.begin && is_there(before - 1)) {
      --before;
    }
    while (behind * rows < asked.end && is_there(behind)) {
      ++behind;
    }
    layout.usable = common_part(asked, {before * rows, behind * rows});
  }
  const Range wanted = layout.usable_rows();
  const Range files = wanted.empty() ? Range{} : Range{wanted.begin / rows, (wanted.end - 1) / rows + 1};
  int64_t row = files.begin, found = 0;  // the first row of files that lacks some
  for (auto at = counts.lower_bound(files.begin); at != counts.end() && at->first < files.end; ++at) {
    row += at->first == row && at->second >= needed ? 1 : 0;
    found += at->second;
  }
  const int64_t all = files.size() * of_row;
  layout.chunk_files.has_fill = layout.chunk_files.has_fill && (found - left_out < all || is_sharded);
  return row >= files.end ? ""
                          : str(all - found, " of the files of ", all, is_sharded ? " shards" : " chunks",
                                " are not there, the first of row ", std::max(row * rows, wanted.begin));
}

int64_t existing_bytes(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(bytes);
}

// Its metadata and attributes, and files of chunks spread over it, as far as these are there.
std::vector<std::string> samples_of(const std::string& folder, const ArrayLayout& layout, int64_t most_chunks) {
  const ChunkFiles& files = layout.chunk_files;
  const std::vector<int64_t> grid = grid_of_files(layout);
  std::vector<std::string> names = {layout.name + "/zarr.json", layout.name + "/.zarray", layout.name + "/.zattrs",
                                    "zarr.json", ".zmetadata"};
  const int64_t all = num_elements(grid), count = std::min(all, most_chunks);
  for (int64_t i = 0; i < count; ++i) {
    int64_t number = count < 2 ? 0 : (all - 1) / (count - 1) * i + (all - 1) % (count - 1) * i / (count - 1);
    std::vector<int64_t> index(grid.size());
    for (size_t d = grid.size(); d-- > 0;) {
      index[d] = number % grid[d];
      number /= grid[d];
    }
    names.push_back(files.prefix + join(index, files.separator));
  }
  std::erase_if(names, [&](const std::string& name) { return existing_bytes(folder + "/" + name) < 0; });
  return names;
}

Packing packing_of(const ZarrArray& array, const std::string& where) {
  const auto fill = number_attribute(array, "_FillValue", where);
  // What version 2 has no attribute for, xarray keeps as the fill value; the usual one, 0, says nothing.
  const bool is_told = array.fill_value && *array.fill_value != 0.0;
  return checked_packing({.scale = number_attribute(array, "scale_factor", where),
                          .offset = number_attribute(array, "add_offset", where),
                          .fill = fill || !is_told ? fill : array.fill_value,
                          .missing = number_attribute(array, "missing_value", where)},
                         array.type, where);
}

// To rounding; of fewer than three values any are.
bool is_even(const std::vector<double>& values) {
  constexpr double kRounding = 1e-6;
  const double step =
      values.size() < 2 ? 0.0 : (values.back() - values.front()) / static_cast<double>(values.size() - 1);
  return std::adjacent_find(values.begin(), values.end(), [&](double a, double b) {
           return !(std::abs(b - a - step) <= kRounding * std::abs(step));
         }) == values.end();
}

// Of a grid whose cells have these latitudes, row by row: rows are as long as the first one. Of one dim where not all
// are whole.
std::vector<int64_t> shape_of_rows(const std::vector<double>& latitudes) {
  const auto next = std::find_if(latitudes.begin(), latitudes.end(),
                                 [&](double point) { return !same_points({point}, {latitudes.front()}); });
  const int64_t cells = std::ssize(latitudes), width = next - latitudes.begin();
  return width > 0 && cells % width == 0 ? std::vector{cells / width, width} : std::vector{cells};
}

}  // namespace

ZarrFields::ZarrFields(const std::string& folder) : folder_(folder), store_(read_zarr_store(folder)) {
  unfold();
}

// anemoi's stores have one array (date, variable, member, cell), whose cells are the rows of a grid one after the
// other. Once it is known to be that, it is (time, channel, latitude, longitude): the same bytes in the same files.
void ZarrFields::unfold() {
  const auto array = std::find_if(store_.arrays.begin(), store_.arrays.end(),
                                  [](const ZarrArray& known) { return known.name == kFlatArray; });
  if (array == store_.arrays.end() || array->shape.size() != kFieldDims || !store_.attributes.contains("variables") ||
      find("latitudes") == nullptr || find("longitudes") == nullptr || find("dates") == nullptr) {
    return;
  }
  const ZarrField attributes(store_.attributes, folder_);
  const auto fail = [&](const std::string& what, const char* hint) {
    throw Error(ErrorClass::kBadData, str(folder_, ": array '", kFlatArray, "' (", join(array->shape), ") ", what),
                hint);
  };
  std::vector<std::string> names;
  for (const ZarrJson& name : store_.attributes["variables"]) {
    names.push_back(name.is_string() ? name.get<std::string>() : "");
  }
  for (const ZarrJson& date : store_.attributes.value("missing_dates", ZarrJson::array())) {
    missing_dates_.push_back(date.is_string() ? date.get<std::string>() : date.dump());
  }
  const int64_t cells = array->shape[3];
  const bool has_shape = attributes.has("field_shape");
  std::vector<int64_t> shape =
      has_shape ? attributes["field_shape"].integers(1) : shape_of_rows(points_of_cells("latitudes", cells));
  if (shape.size() != 2 || cells % shape[0] != 0 || shape[1] != cells / shape[0]) {
    fail(has_shape ? str("has its cells on a grid of shape (", join(shape), "), which is no latitude-longitude grid")
                   : "has no attribute field_shape, and latitudes that do not change every so many cells",
         "reduced Gaussian and unstructured grids are not read: make the store on a regular one");
  }
  if (std::ssize(names) != array->shape[1]) {
    fail(str("has ", array->shape[1], " variables, the attribute variables names ", names.size()), "make it again");
  }
  if (array->shape[2] != 1) {
    fail(str("has ", array->shape[2], " members of an ensemble"), "one is needed: make the store of one");
  }
  for (std::vector<int64_t>* const block : {&array->chunk, &array->shard}) {
    if (!block->empty() && (*block)[3] != cells) {
      fail(str("has its cells in chunks of ", (*block)[3]), "needed are chunks of all cells of a date");
    }
  }
  std::vector<double> latitudes = grid_points("latitudes", "degrees_north", shape, 0);
  std::vector<double> longitudes = grid_points("longitudes", "degrees_east", shape, 1);
  for (std::vector<int64_t>* const block : {&array->shape, &array->chunk, &array->shard}) {
    if (!block->empty()) {
      (*block)[2] = shape[0];
      (*block)[3] = shape[1];
    }
  }
  array->dims = {"dates", "channel", "latitude", "longitude"};
  const ZarrJson about = store_.attributes.value("variables_metadata", ZarrJson::object());
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_known = about.is_object() && about.contains(names[i]) && about[names[i]].is_object();
    if (is_known && about[names[i]].value("constant_in_time", ZarrJson(false)) == true) {
      constant_.push_back(static_cast<int64_t>(i));
    }
  }
  channels_ = std::move(names);
  for (auto& [name, units, points] :
       {std::tuple<const char*, const char*, std::vector<double>&>("latitude", "degrees_north", latitudes),
        {"longitude", "degrees_east", longitudes}}) {
    ZarrArray coordinate;
    coordinate.name = name;
    coordinate.shape = coordinate.chunk = {std::ssize(points)};
    coordinate.type = at::kDouble;
    coordinate.attributes["units"] = units;
    values_[name] = std::move(points);
    points_.push_back(std::move(coordinate));
  }
}

// Of the array `name`, which has a value for each cell.
const std::vector<double>& ZarrFields::points_of_cells(const std::string& name, int64_t cells) const {
  const ZarrArray& array = *find(name);
  if (!array.refused.empty() || array.shape != std::vector{cells} || cells > kMostPoints) {
    throw Error(ErrorClass::kBadData,
                str(where(array), " (", join(array.shape), ") ",
                    array.refused.empty() ? str("is no list of a value for each of ", cells, " cells")
                                          : "cannot be read: " + array.refused),
                str("needed is the place of each cell, of at most ", kMostPoints, ": make the store again"));
  }
  return values_of(array);
}

// The points along dim `dim` of the grid, the same for the other one.
std::vector<double> ZarrFields::grid_points(const std::string& name, const char* units,
                                            const std::vector<int64_t>& shape, size_t dim) const {
  const std::vector<double>& all = points_of_cells(name, shape[0] * shape[1]);
  const auto width = static_cast<size_t>(shape[1]);
  const size_t stride = dim == 0 ? width : 1, other = dim == 0 ? 1 : width;
  std::vector<double> points;
  for (int64_t i = 0; i < shape[dim]; ++i) {
    points.push_back(all[static_cast<size_t>(i) * stride]);
    for (int64_t j = 0; j < shape[1 - dim]; ++j) {
      const double point = all[static_cast<size_t>(i) * stride + static_cast<size_t>(j) * other];
      if (!same_points({point}, {points.back()})) {
        throw Error(ErrorClass::kBadData,
                    str(folder_, ": array '", name, "' has ", points.back(), " and ", point, " ", units, " in ",
                        dim == 0 ? "row " : "column ", i),
                    "the cells are no latitude-longitude grid: make the store on a regular one");
      }
    }
  }
  return points;
}

std::string ZarrFields::where(const ZarrArray& array) const {
  return str(folder_, ": array '", shown(array.name), "'");
}

ArrayLayout ZarrFields::layout(const ZarrArray& array) const {
  return layout_of(array, where(array));
}

ZarrChunkFiles ZarrFields::chunk_files(const ZarrArray& array) const {
  const ArrayLayout layout = layout_of(array, where(array));
  const std::vector<int64_t> grid = grid_of_files(layout);
  ZarrChunkFiles files{.all = num_elements(grid)};
  for_each_file(folder_, layout, grid, [&](int64_t, const fs::directory_entry& entry) {
    std::error_code ignored;
    const auto bytes = entry.file_size(ignored);
    files.bytes += ignored ? 0 : static_cast<int64_t>(bytes);
    ++files.found;
  });
  return files;
}

const ZarrArray* ZarrFields::find(const std::string& name) const {
  for (const std::vector<ZarrArray>* const arrays : {&points_, &store_.arrays}) {
    const auto found =
        std::find_if(arrays->begin(), arrays->end(), [&](const ZarrArray& array) { return array.name == name; });
    if (found != arrays->end()) {
      return &*found;
    }
  }
  return nullptr;
}

// The list of numbers that is called as the dim is.
const ZarrArray* ZarrFields::named_as(const ZarrArray& array, size_t dim) const {
  const ZarrArray* const found = dim < array.dims.size() && !array.dims[dim].empty() ? find(array.dims[dim]) : nullptr;
  const bool is_list = found != nullptr && found != &array && found->refused.empty() && found->shape.size() == 1;
  return is_list ? found : nullptr;
}

// The same where it has one for each index.
const ZarrArray* ZarrFields::coordinate(const ZarrArray& array, size_t dim) const {
  const ZarrArray* const found = named_as(array, dim);
  const bool fits = found != nullptr && found->shape.front() == array.shape[dim] && array.shape[dim] <= kMostPoints;
  return fits ? found : nullptr;
}

void ZarrFields::require_coordinates(const ZarrArray& array, const std::string& where) const {
  for (size_t d = 0; d < array.shape.size(); ++d) {
    const ZarrArray* const found = named_as(array, d);
    if (found != nullptr && coordinate(array, d) == nullptr) {
      throw Error(ErrorClass::kBadData,
                  str(where, " has ", array.shape[d], " indices along '", shown(array.dims[d]),
                      "', the array of this name ", found->shape.front(), " values"),
                  str("a coordinate has a value for each index, and at most ", kMostPoints,
                      ": finish the store or make it again"));
    }
  }
}

std::vector<DimKind> ZarrFields::told_of(const ZarrArray& array) const {
  std::vector<DimKind> told(array.shape.size(), DimKind::kUnknown);
  for (size_t d = 0; d < array.dims.size() && d < told.size(); ++d) {
    const ZarrArray* const values = coordinate(array, d);
    told[d] = dim_kind(array.dims[d], values == nullptr ? "" : text_attribute(*values, "units"));
  }
  return told;
}

const std::vector<double>& ZarrFields::values_of(const ZarrArray& array) const {
  const auto known = values_.find(array.name);
  return known != values_.end() ? known->second : values_.emplace(array.name, read_values(array)).first->second;
}

std::vector<double> ZarrFields::read_values(const ZarrArray& array) const {
  const Packing packing = packing_of(array, where(array));
  ArrayLayout layout = layout_of(array, where(array));
  const std::map<int64_t, int64_t> counts = count_files(folder_, layout, grid_of_files(layout));
  const int64_t found = std::accumulate(counts.begin(), counts.end(), int64_t{0},
                                        [](int64_t sum, const auto& of_row) { return sum + of_row.second; });
  const bool lacks_some = found < num_elements(grid_of_files(layout));
  layout.chunk_files.has_fill = true;  // zarr-python leaves out chunks of zeros, also where no fill value is named
  const at::Tensor stored = read_chunk_files({folder_, layout}).to(at::kDouble).mul(packing.scale).add(packing.offset);
  const auto* first = stored.const_data_ptr<double>();
  std::vector<double> values(first, first + stored.numel());
  if (lacks_some && !is_even(values)) {
    throw Error(ErrorClass::kBadData, str(where(array), " lacks the files of some of its chunks"),
                "fill values in their place are no coordinates: finish the store or make it again");
  }
  return values;
}

std::vector<FieldVariable> ZarrFields::variables() const {
  std::vector<FieldVariable> variables;
  for (const ZarrArray& array : store_.arrays) {
    FieldVariable variable;
    variable.name = array.name;
    variable.shape = array.shape;
    variable.dim_names = array.dims;
    variable.told = told_of(array);
    variable.dims = field_dims(array.shape, variable.told);
    const size_t level = dim_of(variable.dims, DimKind::kLevel);
    if (level < variable.dims.size()) {
      const ZarrArray* const values = coordinate(array, level);
      if (values != nullptr) {
        variable.levels = levels_in_hpa(values_of(*values), text_attribute(*values, "units"));
      }
    }
    const bool has_channels = dim_of(variable.dims, DimKind::kChannel) < variable.dims.size();
    if (array.name == kFlatArray && has_channels) {
      variable.channels = channels_;
    }
    const bool can_be_asked_for =
        level == variable.dims.size() ? !has_channels || !variable.channels.empty() : !variable.levels.empty();
    if (!can_be_asked_for) {
      variable.dims.clear();
    }
    if (variable.shape.size() > 1) {
      variables.push_back(std::move(variable));
    }
  }
  return variables;
}

ArrayLayout ZarrFields::inspect(const FieldVariable& variable, bool is_whole, const AskedDates& dates) const {
  const ZarrArray* const array = find(variable.name);
  VH_ASSERT(array != nullptr, variable.name);
  const std::string where = this->where(*array);
  require_coordinates(*array, where);
  if (!array->refused.empty()) {
    throw Error(ErrorClass::kBadData, str(where, " cannot be read: ", array->refused),
                "read are the codecs blosc, zstd, lz4, gzip, zlib, shuffle and crc32c, in row-major order, of numbers");
  }
  ArrayLayout layout = layout_of(*array, where);
  layout.dims = variable.dims;
  layout.packing = packing_of(*array, where);
  layout.attribute = text_attribute(*array, "units");
  if (is_whole) {
    constexpr int64_t kChunks = 16;
    layout.chunk_files.samples = samples_of(folder_, layout, kChunks);
    for (size_t d = 0; d < array->shape.size(); ++d) {
      if (const ZarrArray* const points = coordinate(*array, d)) {
        const auto more = samples_of(folder_, layout_of(*points, where), kChunks);
        layout.chunk_files.samples.insert(layout.chunk_files.samples.end(), more.begin(), more.end());
      }
    }
    layout.file_bytes = existing_bytes(folder_ + "/" + layout.chunk_files.samples.front());
  }
  const StoredTimes times = times_of(array->name);
  layout.times = checked_time_axis(times, where);
  if (array->name == kFlatArray) {
    layout.constant = constant_;
  }
  if (array->name == kFlatArray && layout.times.kind == TimeAxis::Kind::kDates) {
    layout.missing = rows_at_dates(missing_dates_, times, layout.times, str(folder_, ": the attribute missing_dates"));
  }
  if (!dates.span.empty()) {
    layout.chosen = rows_of_dates(dates, DateRows::kOfSpan, times.values, layout.times, folder_);
    layout.usable = rows_of_dates(dates, DateRows::kWithReach, times.values, layout.times, folder_);
  }
  if (is_whole) {
    layout.unwritten = unwritten_chunks(folder_, layout);
  }
  const ZarrArray* const latitudes = coordinate(*array, dim_of(layout.dims, DimKind::kLatitude));
  const ZarrArray* const longitudes = coordinate(*array, dim_of(layout.dims, DimKind::kLongitude));
  layout.grid.latitudes = latitudes == nullptr ? std::vector<double>{} : values_of(*latitudes);
  layout.grid.longitudes = longitudes == nullptr ? std::vector<double>{} : values_of(*longitudes);
  unwrap_longitudes(layout.grid.longitudes);
  check_grid(layout.grid, where);
  return layout;
}

StoredTimes ZarrFields::times_of(const std::string& name, size_t dim) const {
  const ZarrArray* const array = find(name);
  VH_ASSERT(array != nullptr, name);
  const ZarrArray* const times = coordinate(*array, dim);
  return times == nullptr ? StoredTimes{}
                          : StoredTimes{values_of(*times), text_attribute(*times, "units"),
                                        text_attribute(*times, "calendar"), text_attribute(*times, kSimulation)};
}

}  // namespace vit_hybrid::data
