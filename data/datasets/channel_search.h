// The channels of fields by their names: which variable of a file, and which level of it, each of them is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"

namespace vit_hybrid::data {

/// What of the files is to be read as fields.
struct FieldQuery {
  /// (time, channel, height, width), floating point: read whole where no channels are named.
  std::string dataset = "fields";
  /// Names of channels in the order that the model has them, with commas between them: "u10,t2m,z500,q:50:500". Each is
  /// that of a variable (time, latitude, longitude), of a channel that a dataset's own list names, or of a variable
  /// with levels and a level of it: "z500", "z:500", "z:500:850:1000" for several.
  std::string channels = {};
  /// What variables are called here, where that is none of the usual names: "z=phi,t=temp"; of several names of one
  /// the first that is there.
  std::string variables = {};
  AskedDates dates = {};  ///< of which rows are taken
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

/// One name for all that a channel may be called: "t2m" of "2t", "z500" of "z:500" and "geopotential500". Pure.
std::string canonical_channel(const std::string& name);

/// Whether two texts mean one unit: "m s-1", "m s**-1" and "m/s"; "1", "kg kg-1" and "(0 - 1)". Pure.
bool is_same_unit(const std::string& a, const std::string& b);

/// A channel that two lists of units, with commas between them, have in others.
struct OtherUnit {
  size_t channel;
  std::string first;
  std::string second;
};
/// The first one; nothing where lists are of other lengths, or do not know. Pure.
std::optional<OtherUnit> other_unit(const std::string& first, const std::string& second);

/// "it has t (4 levels), u10, fields (u10, z500)"; where no array holds fields, what there is instead. Pure.
std::string variables_text(std::span<const FieldVariable> variables);

/// A channel, and where it lies.
struct ChannelPlace {
  std::string name;  ///< "z500"; "u:10" where "u10" is another variable's name
  size_t variable = 0;
  int64_t plane = 0;  ///< along the variable's levels or channels
  bool is_there = true;
};

/// Of channels that a file does not have: kLeaveOut where another one may have them.
enum class MissingChannels { kRefuse, kLeaveOut };

/// The channels of a query among the variables of a file, `where`. A variable is known by its own name, that of
/// FieldQuery::variables, or the names that ERA5 has for it (u10, 10u, 10m_u_component_of_wind; z, geopotential).
/// Error(kBadData) for one that is not there, and for what FieldQuery::variables names and is not there, unless either
/// may be missing, with the nearest names; for a name that means two; for two channels of one name. Error(kUsage) for a
/// text that is no list of channels. Pure.
std::vector<ChannelPlace> find_channels(const std::string& channels, const FieldQuery& query,
                                        std::span<const FieldVariable> variables, const std::string& where,
                                        MissingChannels missing = MissingChannels::kRefuse);

/// Of the names in FieldQuery::variables those that none of the variables has, nor another name of the same channel.
/// Error(kUsage) for a text that is no list of pairs. Pure.
std::vector<std::string> unknown_own_names(const FieldQuery& query, std::span<const FieldVariable> variables);

/// Error(kBadData), with the nearest of the variables: `where` has none of this name, one of unknown_own_names().
[[noreturn]] void refuse_own_name(const std::string& name, const FieldQuery& query,
                                  std::span<const FieldVariable> variables, const std::string& where);

/// The number of the variable that holds the static field `name`, by the same names; among `variables`, of which only
/// those without levels can be meant. The geopotential (height) of the surface may be asked for, and found, as z too.
/// What of FieldQuery::variables is not there is of other files. Error(kBadData) where it is not there, with the
/// nearest name. Pure.
size_t find_static_field(const std::string& name, const FieldQuery& query, std::span<const FieldVariable> variables,
                         const std::string& where);

}  // namespace vit_hybrid::data
