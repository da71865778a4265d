// Fields of channels that are asked for by name: what the dims of arrays count, and where the channels lie.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/channel_search.h"
#include "data/reading/array_layout.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::data {

/// Of an array's dims: those that have no name and no unit are (time, latitude, longitude) and (time, level, latitude,
/// longitude) by their place where none has one, dims of one index kSingle; the first one may be unknown and is time.
/// Empty where the array cannot hold fields: it has not one latitude and one longitude, time is not first, or another
/// dim is more than one level or channel. Pure.
std::vector<DimKind> field_dims(const std::vector<int64_t>& shape, std::vector<DimKind> told);

/// The same of an array of one field for all times: (latitude, longitude) in either order, alone or behind a time, of
/// which the first row is meant; other dims have one index. Empty where it has levels or channels, too. Pure.
std::vector<DimKind> static_dims(const std::vector<int64_t>& shape, const std::vector<DimKind>& told);

/// The attributes of CF's packed values, as far as an array has them.
struct PackingAttributes {
  std::optional<double> scale = {};    ///< scale_factor
  std::optional<double> offset = {};   ///< add_offset
  std::optional<double> fill = {};     ///< _FillValue
  std::optional<double> missing = {};  ///< missing_value
};

/// Of values stored as `type`. Error(kBadData), naming `where`, for a scale that is 0 or not finite, an offset that is
/// not finite, and two values that say that another is missing and differ. Pure.
Packing checked_packing(const PackingAttributes& attributes, at::ScalarType type, const std::string& where);

/// Pressures in hPa from those in other units: in Pa by these, or where there are none and one is above 1,100. Pure.
std::vector<double> levels_in_hpa(std::vector<double> levels, const std::string& units);

/// The fields (time, channel, latitude, longitude) of these channels, as far as they are there: `inspect` describes an
/// array of the file with its times and grid. float32 where the arrays are of several types, or packed. Error(kBadData)
/// where arrays differ in their times, their points, or are no numbers.
ArrayLayout join_arrays(std::span<const ChannelPlace> channels, std::span<const FieldVariable> variables,
                        const std::function<ArrayLayout(const FieldVariable&)>& inspect, const std::string& where);

/// The times of the rows of an array of a file or Zarr store. On this rank alone (main thread).
StoredTimes stored_times(const std::string& path, const std::string& array);

enum class Inspection { kOutline, kWhole };

/// What `query` names in a file or Zarr store, on this rank alone (main thread): of a dataset `inspect_dataset(path,
/// dataset, "channels")` or `outline_dataset`, of channels join_arrays() with their names as the attribute. A file that
/// may lack channels, and has none of them, is described by its times alone; one whose times are all beyond the dates
/// likewise, and nothing else of it is looked at. Errors as of these and find_channels().
ArrayLayout inspect_fields(const std::string& path, const FieldQuery& query,
                           MissingChannels missing = MissingChannels::kRefuse,
                           Inspection inspection = Inspection::kWhole);

/// Takes the files away that have no usable row of the dates that were asked for. Error(kBadData) where no file has a
/// row of them. Pure.
void leave_out_other_dates(std::vector<RowFile>& files, const AskedDates& dates);

/// Files that hold different channels of the same dates, described as above, as one each: RowFile::path is that of the
/// first channel, ArrayLayout::file that of others. A file of these dates without any of the channels is left out.
/// Error(kBadData) where a channel is nowhere or twice at some dates, where no file has a variable that
/// FieldQuery::variables names, and as join_arrays()'s. On this rank alone.
std::vector<RowFile> join_files(std::vector<RowFile> files, const FieldQuery& query);

/// The outline of the first of them that has some of the dates. `paths` as list_weather_files() gives them; no more are
/// opened than needed.
RowFile outline_first_fields(const std::vector<std::string>& paths, const FieldQuery& query);

/// The arrays of static fields, in the order of `names`, each of the first of the files or Zarr stores that has it,
/// with their static_dims(), packing, unit (ArrayLayout::attribute) and grid; which chunks a store has is not looked
/// at. On this rank alone (main thread). Errors as find_static_field()'s, and those of what cannot be read.
std::vector<RowFile> inspect_static_fields(const std::vector<std::string>& paths, const std::vector<std::string>& names,
                                           const FieldQuery& query);

}  // namespace vit_hybrid::data
