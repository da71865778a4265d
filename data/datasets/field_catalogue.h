// The channels of fields by their names: which variable of a file, and which level of it, each of them is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/reading/array_layout.h"

namespace vit_hybrid::data {

/// What of the files is to be read as fields.
struct FieldQuery {
  /// (time, channel, height, width), floating point: read whole where no channels are named.
  std::string dataset = "fields";
  /// Names of channels in the order that the model has them, with commas between them: "u10,t2m,z500,q:50:500". Each is
  /// that of a variable (time, latitude, longitude), of a channel that a dataset's own list names, or of a variable
  /// with levels and a level of it: "z500", "z:500", "z:500:850:1000" for several.
  std::string channels = {};
  /// What variables are called here, where that is none of the usual names: "z=phi,t=temp".
  std::string variables = {};
  /// Of which dates rows are taken (rows_of_dates()); empty: all.
  std::string dates = {};
  /// The same as `channels` for files that have no `dataset`: those of a checkpoint.
  std::string channels_otherwise = {};
};

/// An array of a file that may hold channels.
struct FieldVariable {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::string> dim_names;  ///< empty texts where a dim has none
  std::vector<DimKind> dims;           ///< field_dims(); empty: it holds none
  std::vector<double> levels;          ///< hPa, along its dim of levels; empty without one
  std::vector<std::string> channels;   ///< names along its dim of channels; empty without one
  std::vector<DimKind> told = {};      ///< of each dim what its name and unit say
};

/// Of an array's dims: those that have no name and no unit are (time, latitude, longitude) and (time, level, latitude,
/// longitude) by their place where none has one, dims of one index kSingle; the first one may be unknown and is time.
/// Empty where the array cannot hold fields: it has not one latitude and one longitude, time is not first, or another
/// dim is more than one level or channel. Pure.
std::vector<DimKind> field_dims(const std::vector<int64_t>& shape, std::vector<DimKind> told);

/// The same of an array of one field for all times: (latitude, longitude) in either order, alone or behind a time, of
/// which the first row is meant; other dims have one index. Empty where it has levels or channels, too. Pure.
std::vector<DimKind> static_dims(const std::vector<int64_t>& shape, const std::vector<DimKind>& told);

/// One name for all that a channel may be called: "t2m" of "2t", "z500" of "z:500" and "geopotential500". Pure.
std::string canonical_channel(const std::string& name);

/// Whether two texts mean one unit: "m s-1", "m s**-1" and "m/s"; "1", "kg kg-1" and "(0 - 1)". Pure.
bool is_same_unit(const std::string& a, const std::string& b);

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

/// A channel, and where it lies.
struct ChannelPlace {
  std::string name;  ///< "z500"; "u:10" where "u10" is another variable's name
  size_t variable = 0;
  int64_t plane = 0;  ///< along the variable's levels or channels
};

/// The channels of a query among the variables of a file, `where`. A variable is known by its own name, that of
/// FieldQuery::variables, or the names that ERA5 has for it (u10, 10u, 10m_u_component_of_wind; z, geopotential).
/// Error(kBadData) for one that is not there, with the nearest names; for a name that means two; for two channels of
/// one name. Error(kUsage) for a text that is no list of channels. Pure.
std::vector<ChannelPlace> find_channels(const std::string& channels, const FieldQuery& query,
                                        std::span<const FieldVariable> variables, const std::string& where);

/// The number of the variable that holds the static field `name`, by the same names; among `variables`, of which only
/// those without levels can be meant. The geopotential (height) of the surface may be asked for, and found, as z too.
/// What of FieldQuery::variables is not there is of other files. Error(kBadData) where it is not there, with the
/// nearest name. Pure.
size_t find_static_field(const std::string& name, const FieldQuery& query, std::span<const FieldVariable> variables,
                         const std::string& where);

/// The fields (time, channel, latitude, longitude) of these channels: `inspect` describes an array of the file with its
/// times and grid. float32 where the arrays are of several types, or packed. Error(kBadData) where arrays differ in
/// their times, their points, or are no numbers.
ArrayLayout join_arrays(std::span<const ChannelPlace> channels, std::span<const FieldVariable> variables,
                        const std::function<ArrayLayout(const FieldVariable&)>& inspect, const std::string& where);

/// The times of the rows of an array of a file or Zarr store. On this rank alone (main thread).
StoredTimes stored_times(const std::string& path, const std::string& array);

enum class Inspection { kOutline, kWhole };

/// What `query` names in a file or Zarr store, on this rank alone (main thread): of a dataset `inspect_dataset(path,
/// dataset, "channels")` or `outline_dataset`, of channels join_arrays() with their names as the attribute. Errors as
/// of these and find_channels().
ArrayLayout inspect_fields(const std::string& path, const FieldQuery& query,
                           Inspection inspection = Inspection::kWhole);

/// The arrays of static fields of a file or Zarr store, in the order of `names`, with their static_dims(), packing,
/// unit (ArrayLayout::attribute) and grid; which chunks a store has is not looked at. On this rank alone (main thread).
/// Errors as find_static_field()'s, and those of what cannot be read.
std::vector<ArrayLayout> inspect_static_fields(const std::string& path, const std::vector<std::string>& names,
                                               const FieldQuery& query);

}  // namespace vit_hybrid::data
