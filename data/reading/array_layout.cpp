// Sizes of arrays, and layouts as bytes for other ranks.
#include "data/reading/array_layout.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// Calls use(value) for each value of a layout, in a fixed order.
template <class Layout, class Use>
void for_each_value(Layout& layout, const Use& use) {
  use(layout.name);
  use(layout.shape);
  use(layout.type);
  use(layout.storage);
  use(layout.opaque_because);
  use(layout.is_virtual);
  use(layout.missing_filters);
  use(layout.unwritten);
  use(layout.file_bytes);
  use(layout.offset);
  use(layout.chunk);
  use(layout.chunk_offsets);
  use(layout.chunk_bytes);
  use(layout.chunk_masks);
  use(layout.filters);
  use(layout.times.kind);
  use(layout.times.first);
  use(layout.times.last);
  use(layout.times.calendar);
  use(layout.times.interval);
  use(layout.times.gaps);
  use(layout.times.simulation);
  use(layout.times.digest);
  use(layout.missing);
  use(layout.unknown);
  use(layout.attribute);
  use(layout.grid.latitudes);
  use(layout.grid.longitudes);
  use(layout.chunk_files.prefix);
  use(layout.chunk_files.separator);
  use(layout.chunk_files.shard);
  use(layout.chunk_files.index_at_end);
  use(layout.chunk_files.index_has_checksum);
  use(layout.chunk_files.is_swapped);
  use(layout.chunk_files.has_fill);
  use(layout.chunk_files.fill);
  use(layout.chunk_files.samples);
  use(layout.dims);
  use(layout.constant);
  use(layout.packing.scale);
  use(layout.packing.offset);
  use(layout.packing.has_fill);
  use(layout.packing.fill);
}

Json to_json(const ArrayLayout& layout) {
  Json packed = Json::array();
  for_each_value(layout, [&](const auto& value) { packed.push_back(value); });
  Json runs = Json::array(), arrays = Json::array();
  for (const ChannelRun& run : layout.runs) {
    runs.push_back({run.array, run.channel, run.plane, run.count});
  }
  std::transform(layout.arrays.begin(), layout.arrays.end(), std::back_inserter(arrays), &to_json);
  packed.push_back(std::move(runs));
  for (const auto& rows : {layout.chosen, layout.usable}) {
    packed.push_back(rows ? Json{rows->begin, rows->end} : Json::array());
  }
  packed.push_back(std::move(arrays));
  return packed;
}

ArrayLayout from_json(const Json& packed) {
  ArrayLayout layout;
  size_t i = 0;
  for_each_value(layout, [&](auto& value) { packed.at(i++).get_to(value); });
  for (const Json& run : packed.at(i++)) {
    layout.runs.push_back({run.at(0), run.at(1), run.at(2), run.at(3)});
  }
  for (auto* const rows : {&layout.chosen, &layout.usable}) {
    if (const Json& bounds = packed.at(i++); !bounds.empty()) {
      *rows = Range{bounds.at(0), bounds.at(1)};
    }
  }
  const Json& arrays = packed.at(i);
  std::transform(arrays.begin(), arrays.end(), std::back_inserter(layout.arrays), &from_json);
  return layout;
}

}  // namespace

void require_filters(const ArrayLayout& layout, const std::string& where) {
  if (!layout.missing_filters.empty()) {
    throw Error(
        ErrorClass::kBadData,
        str(where, " is stored with the filter ", layout.missing_filters,
            ", which the HDF5 library of this program does not have"),
        "name the folder of the filter's plugin in HDF5_PLUGIN_PATH, or make the file anew without it where the "
        "filter is known: `vit_hybrid data repack FILE --out FOLDER`, `h5repack -f NONE` or `h5repack -f GZIP=1`");
  }
}

void require_readable(const ArrayLayout& layout, const std::string& where) {
  require_filters(layout, where);
  if (!layout.unwritten.empty()) {
    const bool is_store = layout.storage == ArrayLayout::Storage::kChunkFiles;
    throw Error(ErrorClass::kBadData, str(where, " was not wholly written: ", layout.unwritten),
                is_store
                    ? "finish the store, or choose dates of which all is there (--train-dates, --valid-dates; --dates "
                      "of data stats)"
                    : "HDF5 would make values up in its place: finish the file or make it again");
  }
}

int64_t ArrayLayout::row_bytes() const {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (size_t d = 1; d < shape.size(); ++d) {
    bytes *= shape[d];
  }
  return bytes;
}

// Rounded up without a sum, which need not fit: a damaged file may have any extents.
int64_t ArrayLayout::chunks_along(size_t dim) const {
  return shape[dim] / chunk[dim] + (shape[dim] % chunk[dim] != 0 ? 1 : 0);
}

int64_t ArrayLayout::chunks_per_row() const {
  int64_t count = 1;
  for (size_t d = 1; d < chunk.size(); ++d) {
    count *= chunks_along(d);
  }
  return count;
}

std::vector<const ArrayLayout*> ArrayLayout::stored_arrays() const {
  std::vector<const ArrayLayout*> stored;
  std::transform(arrays.begin(), arrays.end(), std::back_inserter(stored), [](const ArrayLayout& a) { return &a; });
  return storage == Storage::kJoined ? stored : std::vector<const ArrayLayout*>{this};
}

const ArrayLayout& ArrayLayout::array_of(int64_t channel) const {
  const auto holds = [&](const ChannelRun& run) { return channel >= run.channel && channel < run.channel + run.count; };
  const auto run = std::find_if(runs.begin(), runs.end(), holds);
  return run == runs.end() ? *this : arrays[static_cast<size_t>(run->array)];
}

bool ArrayLayout::is_constant(int64_t channel) const {
  return std::any_of(runs.begin(), runs.end(), [&](const ChannelRun& run) {
    const std::vector<int64_t>& planes = arrays[static_cast<size_t>(run.array)].constant;
    return channel >= run.channel && channel < run.channel + run.count &&
           std::find(planes.begin(), planes.end(), run.plane + channel - run.channel) != planes.end();
  });
}

int64_t ArrayLayout::num_lacking() const {
  const int64_t there = std::accumulate(runs.begin(), runs.end(), int64_t{0},
                                        [](int64_t sum, const ChannelRun& run) { return sum + run.count; });
  return storage == Storage::kJoined ? shape[1] - there : 0;
}

std::string pack_layouts(const std::vector<ArrayLayout>& layouts) {
  Json packed = Json::array();
  std::transform(layouts.begin(), layouts.end(), std::back_inserter(packed), &to_json);
  const auto bytes = Json::to_cbor(packed);  // unlike JSON's text it holds every text and number
  return {bytes.begin(), bytes.end()};
}

std::vector<ArrayLayout> unpack_layouts(const std::string& bytes) {
  const Json packed = Json::from_cbor(bytes, true, false);
  VH_ASSERT(packed.is_array(), "packed layouts that are none");
  std::vector<ArrayLayout> layouts;
  std::transform(packed.begin(), packed.end(), std::back_inserter(layouts), &from_json);
  return layouts;
}

}  // namespace vit_hybrid::data
