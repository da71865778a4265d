// The walk over the chunks that HDF5 has stored, filters, types, and layouts as bytes for other ranks; the walk over
// the root group, levels and names of channels, and the CF attributes of packed values.
#include "data/hdf5/hdf5_layout.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "data/datasets/class_names.h"
#include "data/datasets/field_catalogue.h"
#include "data/datasets/year_files.h"
#include "data/hdf5/hdf5_coordinates.h"
#include "data/hdf5/hdf5_crash_guard.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_virtual.h"
#include "data/reading/box_runs.h"
#include "data/reading/chunk_rows.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

// The most chunks of a dataset that hdf5_find_chunks() is for. HDF5 before 1.14.2 walks through all of them to find
// the next one, so the time grows with the square of their number (30,000 take 6 s); before 1.10.5 it tells of none.
#if H5_VERSION_GE(1, 14, 2)
constexpr int64_t kHdf5MostChunks = int64_t{1} << 40;
#elif H5_VERSION_GE(1, 10, 5)
constexpr int64_t kHdf5MostChunks = 40000;
#else
constexpr int64_t kHdf5MostChunks = 0;
#endif

// The place in ArrayLayout::chunk_offsets of a chunk that is not stored, as hdf5_find_chunks() leaves it.
constexpr int64_t kHdf5ChunkNotStored = -1;

// One chunk as HDF5 tells of it; `corner` in elements.
struct StoredChunk {
  std::vector<hsize_t> corner;
  haddr_t offset = HADDR_UNDEF;
  hsize_t bytes = 0;
  unsigned mask = 0;
};

#if H5_VERSION_GE(1, 14, 2)

using Visit = std::function<bool(const StoredChunk&)>;

int visit_chunk(const hsize_t* corner, unsigned mask, haddr_t offset, hsize_t bytes, void* context) {
  const auto& [rank, visit] = *static_cast<std::pair<size_t, const Visit*>*>(context);
  return (*visit)({{corner, corner + rank}, offset, bytes, mask}) ? H5_ITER_CONT : H5_ITER_STOP;
}

void for_each_chunk(hid_t dataset, size_t rank, const Visit& visit) {
  std::pair<size_t, const Visit*> context(rank, &visit);
  H5Dchunk_iter(dataset, H5P_DEFAULT, &visit_chunk, &context);
}

#elif H5_VERSION_GE(1, 10, 5)

void for_each_chunk(hid_t dataset, size_t rank, const std::function<bool(const StoredChunk&)>& visit) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  hsize_t count = 0;
  H5Dget_num_chunks(dataset, space.get(), &count);
  for (hsize_t i = 0; i < count; ++i) {
    StoredChunk chunk;
    chunk.corner.resize(rank);
    if (H5Dget_chunk_info(dataset, space.get(), i, chunk.corner.data(), &chunk.mask, &chunk.offset, &chunk.bytes) < 0 ||
        !visit(chunk)) {
      break;
    }
  }
}

#else

void for_each_chunk(hid_t, size_t, const std::function<bool(const StoredChunk&)>&) {}

#endif

std::vector<int64_t> chunk_grid(const ArrayLayout& layout) {
  std::vector<int64_t> grid;
  for (size_t d = 0; d < layout.shape.size(); ++d) {
    grid.push_back(layout.chunks_along(d));
  }
  return grid;
}

// Chunks of the grid that covers the dataset.
int64_t hdf5_num_chunks(const ArrayLayout& layout) {
  return num_elements(chunk_grid(layout));
}

// Those of them that are in the file; before HDF5 1.10.5 all, if any is.
int64_t hdf5_num_stored_chunks(hid_t dataset, const ArrayLayout& layout) {
#if H5_VERSION_GE(1, 10, 5)
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  hsize_t count = 0;
  if (H5Dget_num_chunks(dataset, space.get(), &count) >= 0) {
    return static_cast<int64_t>(count);
  }
  H5Eclear2(H5E_DEFAULT);
#endif
  return H5Dget_storage_size(dataset) == 0 ? 0 : hdf5_num_chunks(layout);
}

// Fills the tables of chunks of `layout`, whose shape and chunk are set; false if one is not stored (its values are
// fill values).
bool hdf5_find_chunks(hid_t dataset, ArrayLayout& layout) {
  const std::vector<int64_t> grid = chunk_grid(layout);
  const auto count = static_cast<size_t>(num_elements(grid));
  layout.chunk_offsets.assign(count, kHdf5ChunkNotStored);
  layout.chunk_bytes.assign(count, 0);
  layout.chunk_masks.assign(count, 0);
  size_t num_found = 0;
  for_each_chunk(dataset, grid.size(), [&](const StoredChunk& chunk) {
    int64_t number = 0;
    for (size_t d = 0; d < grid.size(); ++d) {
      number = number * grid[d] + static_cast<int64_t>(chunk.corner[d]) / layout.chunk[d];
    }
    const auto at = static_cast<size_t>(number);
    if (chunk.offset == HADDR_UNDEF || at >= count || layout.chunk_offsets[at] != kHdf5ChunkNotStored) {
      return false;
    }
    layout.chunk_offsets[at] = static_cast<int64_t>(chunk.offset);
    layout.chunk_bytes[at] = static_cast<int64_t>(chunk.bytes);
    layout.chunk_masks[at] = chunk.mask;
    ++num_found;
    return true;
  });
  H5Eclear2(H5E_DEFAULT);
  return num_found == count;
}

using Storage = ArrayLayout::Storage;

// Files that name their channels in a dimension scale have no attribute for it.
constexpr const char* kChannels = "channels";
constexpr size_t kDimOfChannels = 1;

bool is_there(const Hdf5Filter& filter) {
  unsigned can = 0;
  const bool is_known = H5Zfilter_avail(filter.id) > 0 && H5Zget_filter_info(filter.id, &can) >= 0;
  H5Eclear2(H5E_DEFAULT);
  return is_known && (can & H5Z_FILTER_CONFIG_DECODE_ENABLED) != 0;
}

// Whether some chunk has gone through filter `number`: one that made nothing smaller may have been left out.
bool is_applied(hid_t dataset, size_t number, const ArrayLayout& layout) {
  ArrayLayout found = layout;
  if (hdf5_num_chunks(layout) > kHdf5MostChunks) {
    return true;
  }
  static_cast<void>(hdf5_find_chunks(dataset, found));
  for (size_t i = 0; i < found.chunk_offsets.size(); ++i) {
    if (found.chunk_offsets[i] != kHdf5ChunkNotStored && (found.chunk_masks[i] >> number & 1) == 0) {
      return true;
    }
  }
  return false;
}

// The names and numbers of those that HDF5, which alone can read the dataset, does not have, nor finds among its
// plugins, and needs.
std::string missing_filters(hid_t dataset, hid_t creation, const ArrayLayout& layout) {
  std::vector<std::string> missing;
  const std::vector<Hdf5Filter> filters = hdf5_filters(creation);
  for (size_t i = 0; i < filters.size(); ++i) {
    if (!is_there(filters[i]) && is_applied(dataset, i, layout)) {
      missing.push_back(str(filters[i].name, " (", filters[i].id, ")"));
    }
  }
  return join(missing);
}

// Whether decode_chunk() undoes the filter.
bool is_decoded_here(const Hdf5Filter& filter, size_t item_bytes) {
  switch (static_cast<ChunkFilter>(filter.id)) {
    case ChunkFilter::kShuffle:
      return filter.parameter == item_bytes;
    case ChunkFilter::kDeflate:
    case ChunkFilter::kFletcher32:
    case ChunkFilter::kBlosc:
    case ChunkFilter::kLz4Hdf5:
    case ChunkFilter::kZstd:
      return true;
    case ChunkFilter::kLz4:  // of Zarr alone
    case ChunkFilter::kCrc32c:
      break;
  }
  return false;
}

std::string foreign_filters(hid_t creation, const ArrayLayout& layout) {
  std::vector<std::string> names;
  for (const Hdf5Filter& filter : hdf5_filters(creation)) {
    if (!is_decoded_here(filter, c10::elementSize(layout.type))) {
      names.push_back(filter.name);
    }
  }
  unsigned options = 0;
  if (H5Pget_layout(creation) == H5D_CHUNKED && H5Pget_chunk_opts(creation, &options) >= 0 &&
      (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0) {
    names.emplace_back("on whole chunks only");
  }
  H5Eclear2(H5E_DEFAULT);
  return names.empty() ? "" : str("filter ", join(names));
}

// What keeps the bytes of the file from being the values in memory, or nothing.
std::string reason_opaque(hid_t file, hid_t dataset, hid_t creation, hid_t type, const StoredType& stored,
                          const ArrayLayout& layout) {
  const std::string owner = hdf5_file_name(dataset);
  if (owner != hdf5_file_name(file)) {
    return str("a link to ", owner);
  }
  if (!stored.is_native) {
    return str("values stored as ", hdf5_type_name(type), " that must be converted");
  }
  if (H5Pget_nfilters(creation) > 0) {
    const std::string foreign = foreign_filters(creation, layout);
    if (!foreign.empty()) {
      return foreign;
    }
  }
  if (H5Pget_external_count(creation) > 0) {
    return "external storage";
  }
  const Hid file_creation(H5Fget_create_plist(file), &H5Pclose);
  hsize_t user_block = 0;
  H5Pget_userblock(file_creation.get(), &user_block);
  return user_block == 0 ? "" : "a user block before the HDF5 file";
}

// Begin and length are what the file says: neither of them, nor their sum, need fit 63 bits.
void check_place(const std::string& where, const ArrayLayout& layout, int64_t begin, int64_t bytes) {
  int64_t end = 0;
  const bool fits = begin >= 0 && bytes >= 0 && !__builtin_add_overflow(begin, bytes, &end);
  if (!fits || end > layout.file_bytes) {
    throw Error(ErrorClass::kBadData,
                str(where, fits ? str(" ends at byte ", end) : str(" has ", bytes, " bytes at byte ", begin),
                    ", but the file has ", layout.file_bytes, " bytes"),
                "the file is truncated or damaged: copy or make it again");
  }
}

void locate_contiguous(hid_t dataset, const std::string& where, ArrayLayout& layout) {
  if (H5Dget_storage_size(dataset) == 0) {
    layout.opaque_because = "storage that was never allocated";
    layout.unwritten = num_elements(layout.shape) > 0 ? "all of it" : "";
    return;
  }
  if (!layout.opaque_because.empty()) {
    return;
  }
  const haddr_t offset = H5Dget_offset(dataset);
  layout.storage = Storage::kContiguous;
  layout.offset = static_cast<int64_t>(offset);
  check_place(where, layout, layout.offset, hdf5_value_bytes(layout.shape, layout.type));
}

void forget_chunks(ArrayLayout& layout, const std::string& why) {
  layout.opaque_because = why;
  layout.chunk_offsets.clear();
  layout.chunk_bytes.clear();
  layout.chunk_masks.clear();
}

// Where all were looked for, with the first row that lacks one.
std::string unwritten_chunks(hid_t dataset, const ArrayLayout& layout) {
  const int64_t count = hdf5_num_chunks(layout);
  const int64_t stored = hdf5_num_stored_chunks(dataset, layout);
  if (stored == count) {
    return "";
  }
  const auto first = std::find(layout.chunk_offsets.begin(), layout.chunk_offsets.end(), kHdf5ChunkNotStored);
  const std::string from =
      first == layout.chunk_offsets.end()
          ? ""
          : str(", from row ", (first - layout.chunk_offsets.begin()) / layout.chunks_per_row() * layout.chunk.front());
  return str(count - stored, " of its ", count, " chunks", from);
}

void locate_chunks(hid_t dataset, hid_t creation, const std::string& where, ArrayLayout& layout) {
  std::vector<hsize_t> extents(layout.shape.size());
  H5Pget_chunk(creation, static_cast<int>(extents.size()), extents.data());
  layout.chunk.assign(extents.begin(), extents.end());
  layout.unwritten = unwritten_chunks(dataset, layout);
  if (!layout.opaque_because.empty()) {
    layout.missing_filters = missing_filters(dataset, creation, layout);
    return;
  }
  if (hdf5_num_chunks(layout) > kHdf5MostChunks) {
    forget_chunks(layout,
                  str(hdf5_num_chunks(layout), " chunks, of which this HDF5 (", H5_VERS_MAJOR, ".", H5_VERS_MINOR, ".",
                      H5_VERS_RELEASE, ") locates at most ", kHdf5MostChunks, " in good time"));
    layout.missing_filters = missing_filters(dataset, creation, layout);
    return;
  }
  if (!hdf5_find_chunks(dataset, layout) || layout.chunk_offsets.empty()) {
    layout.unwritten = unwritten_chunks(dataset, layout);
    forget_chunks(layout, "chunks that are not all stored");
    layout.missing_filters = missing_filters(dataset, creation, layout);
    return;
  }
  for (const Hdf5Filter& filter : hdf5_filters(creation)) {
    layout.filters.push_back(filter.id);
  }
  layout.storage = layout.filters.empty() ? Storage::kChunked : Storage::kFiltered;
  for (size_t i = 0; i < layout.chunk_offsets.size(); ++i) {
    check_place(where, layout, layout.chunk_offsets[i], layout.chunk_bytes[i]);
  }
  if (layout.storage == Storage::kChunked) {  // all of the same size, without filters
    layout.chunk_bytes.clear();
    layout.chunk_masks.clear();
  }
}

void locate(const std::string& path, hid_t file, hid_t dataset, const std::string& where, hid_t type,
            const StoredType& stored, ArrayLayout& layout) {
  const Hid creation(H5Dget_create_plist(dataset), &H5Pclose);
  layout.opaque_because = reason_opaque(file, dataset, creation.get(), type, stored, layout);
  switch (H5Pget_layout(creation.get())) {
    case H5D_CHUNKED:
      return locate_chunks(dataset, creation.get(), where, layout);
    case H5D_CONTIGUOUS:
      return locate_contiguous(dataset, where, layout);
    case H5D_VIRTUAL:
      layout.is_virtual = true;
      layout.opaque_because = "virtual storage, read with HDF5's default driver";
      layout.unwritten = hdf5_unwritten_parts(path, dataset, where, layout);
      return;
    default:
      layout.opaque_because = "compact storage";
  }
}

// What a file tells of fields besides their values.
void describe_fields(const std::string& path, hid_t file, hid_t dataset, const std::string& where,
                     ArrayLayout& layout) {
  if (layout.attribute.empty()) {
    layout.attribute = hdf5_scale_texts(dataset, kDimOfChannels);
  }
  FieldOrder order = hdf5_field_order(file, dataset);
  order.num_channel_names = layout.attribute.empty() ? 0 : std::ssize(split_names(layout.attribute));
  require_channels_first(order, where);
  layout.times = hdf5_time_axis(dataset, where);
  layout.grid = hdf5_grid(file, dataset, path);
}

enum class Look { kOutline, kWhole };

ArrayLayout look_into(const std::string& path, const std::string& dataset, const std::string& attribute, Look look) {
  ArrayLayout layout;
  layout.name = dataset;
  layout.file_bytes = existing_file_bytes(path);
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  const Hid opened = hdf5_open_dataset(file.get(), path, dataset);
  const Hid type(H5Dget_type(opened.get()), &H5Tclose);
  const Hid space(H5Dget_space(opened.get()), &H5Sclose);
  const std::string where = str(path, ": dataset '", dataset, "'");
  const auto stored = hdf5_stored_type(type.get());
  if (!stored) {
    throw Error(ErrorClass::kBadData, str(where, " holds values of type ", hdf5_type_name(type.get())),
                "a dataset of numbers is needed");
  }
  layout.type = stored->type;
  layout.shape = hdf5_shape(space.get());
  if (hdf5_value_bytes(layout.shape, layout.type) < 0) {
    throw Error(ErrorClass::kBadData,
                str(where, " has more values than can be counted, of shape (", join(layout.shape), ")"),
                "the file is damaged: copy or make it again");
  }
  if (look == Look::kWhole) {
    locate(path, file.get(), opened.get(), where, type.get(), *stored, layout);
  }
  if (!attribute.empty()) {
    layout.attribute = hdf5_text_attribute(opened.get(), attribute);
    if (layout.attribute.empty()) {
      layout.attribute = hdf5_text_attribute(file.get(), attribute);
    }
  }
  if (attribute == kChannels) {
    describe_fields(path, file.get(), opened.get(), where, layout);
  }
  return layout;
}

}  // namespace

ArrayLayout inspect_dataset(const std::string& path, const std::string& dataset, const std::string& attribute) {
  return look_into(path, dataset, attribute, Look::kWhole);
}

ArrayLayout outline_dataset(const std::string& path, const std::string& dataset, const std::string& attribute) {
  return look_into(path, dataset, attribute, Look::kOutline);
}

bool has_hdf5_object(const std::string& path, const std::string& name) {
  existing_file_bytes(path);  // throws the error of a file that is not there
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  const bool is_there = H5Lexists(file.get(), name.c_str(), H5P_DEFAULT) > 0;
  H5Eclear2(H5E_DEFAULT);
  return is_there;
}

namespace {

// What lies in other files is not opened before somebody asks for it: it may be anything.
herr_t note_root_name(hid_t, const char* name, const H5L_info_t* info, void* names) {
  if (info->type != H5L_TYPE_EXTERNAL) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  }
  return 0;
}

// Where the object is a dataset of numbers with as many dims as one field has.
std::optional<FieldVariable> variable_of(hid_t file, const std::string& name) {
  const Hid object(H5Oopen(file, name.c_str(), H5P_DEFAULT), &H5Oclose);
  if (!object || H5Iget_type(object.get()) != H5I_DATASET) {
    return std::nullopt;
  }
  const Hid type(H5Dget_type(object.get()), &H5Tclose);
  const Hid space(H5Dget_space(object.get()), &H5Sclose);
  FieldVariable variable;
  variable.name = name;
  variable.shape = hdf5_shape(space.get());
  constexpr size_t kFewestDims = 2;
  if (!hdf5_stored_type(type.get()) || variable.shape.size() < kFewestDims) {
    return std::nullopt;
  }
  variable.dim_names = hdf5_dimension_names(object.get());
  variable.told = hdf5_dim_kinds(object.get());
  std::string channels = hdf5_text_attribute(object.get(), "channels");
  if (channels.empty() && variable.shape.size() == kFieldDims) {
    channels = hdf5_scale_texts(object.get(), 1);
  }
  variable.channels = names_in(channels);
  if (variable.shape.size() == kFieldDims && std::ssize(variable.channels) == variable.shape[1]) {
    variable.told[1] = DimKind::kChannel;
  } else {
    variable.channels.clear();
  }
  variable.dims = field_dims(variable.shape, variable.told);
  if (const size_t level = dim_of(variable.dims, DimKind::kLevel); level < variable.dims.size()) {
    StoredTimes scale = hdf5_scale_values(object.get(), level);
    variable.levels = levels_in_hpa(std::move(scale.values), scale.units);
  }
  // Planes that nothing names cannot be asked for.
  const bool has_planes = std::any_of(variable.dims.begin(), variable.dims.end(), [](DimKind kind) {
    return kind == DimKind::kLevel || kind == DimKind::kChannel;
  });
  const bool can_be_asked_for = !has_planes || !variable.levels.empty() || !variable.channels.empty();
  if (!can_be_asked_for) {
    variable.dims.clear();
  }
  return variable;
}

std::optional<double> number_attribute(hid_t dataset, const char* name, const std::string& where) {
  if (H5Aexists(dataset, name) <= 0) {
    return std::nullopt;
  }
  const Hid attribute(H5Aopen(dataset, name, H5P_DEFAULT), &H5Aclose);
  const Hid type(H5Aget_type(attribute.get()), &H5Tclose);
  const Hid space(H5Aget_space(attribute.get()), &H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  double value = 0.0;
  if ((kind != H5T_INTEGER && kind != H5T_FLOAT) || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    throw Error(ErrorClass::kBadData, str(where, ": the attribute ", name, " is not one number"),
                "scale_factor, add_offset, _FillValue and missing_value are numbers by CF's rules");
  }
  return value;
}

Packing packing_of(hid_t dataset, at::ScalarType type, const std::string& where) {
  return checked_packing({.scale = number_attribute(dataset, "scale_factor", where),
                          .offset = number_attribute(dataset, "add_offset", where),
                          .fill = number_attribute(dataset, "_FillValue", where),
                          .missing = number_attribute(dataset, "missing_value", where)},
                         type, where);
}

}  // namespace

std::vector<FieldVariable> hdf5_field_variables(const std::string& path) {
  existing_file_bytes(path);  // throws the error of a file that is not there
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  std::vector<std::string> names;
  hsize_t index = 0;
  hdf5_check(H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_INC, &index, &note_root_name, &names), ErrorClass::kBadData,
             str("list what is in ", path));
  std::vector<FieldVariable> variables;
  for (const std::string& name : names) {
    if (auto variable = variable_of(file.get(), name)) {
      variables.push_back(std::move(*variable));
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return variables;
}

ArrayLayout inspect_hdf5_variable(const std::string& path, const FieldVariable& variable, bool is_whole) {
  ArrayLayout layout =
      is_whole ? inspect_dataset(path, variable.name, "units") : outline_dataset(path, variable.name, "units");
  const std::string where = str(path, ": dataset '", variable.name, "'");
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  const Hid dataset = hdf5_open_dataset(file.get(), path, variable.name);
  layout.dims = variable.dims;
  layout.packing = packing_of(dataset.get(), layout.type, where);
  layout.times = hdf5_time_axis(dataset.get(), where);
  layout.grid = hdf5_grid(file.get(), dataset.get(), path,
                          {dim_of(layout.dims, DimKind::kLatitude), dim_of(layout.dims, DimKind::kLongitude)});
  return layout;
}

StoredTimes hdf5_times(const std::string& path, const std::string& dataset, size_t dim) {
  const Hdf5CrashGuard guard(path);
  const Hid file = hdf5_open_file(path);
  return hdf5_scale_values(hdf5_open_dataset(file.get(), path, dataset).get(), dim);
}

}  // namespace vit_hybrid::data
