// The arrays of a Zarr store that hold fields, an array a quantity.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/datasets/field_catalogue.h"
#include "data/zarr/zarr_metadata.h"

namespace vit_hybrid::data {

/// The files of an array's chunks, or of its shards.
struct ZarrChunkFiles {
  int64_t all = 0;    ///< where all are stored
  int64_t found = 0;  ///< in the folder
  int64_t bytes = 0;  ///< of those
};

/// On one rank alone, one thread at a time.
class ZarrFields {
 public:
  /// Errors as read_zarr_store()'s.
  explicit ZarrFields(const std::string& folder);

  /// The arrays of at least two dims, in order of names; those that hold no fields have no FieldVariable::dims.
  std::vector<FieldVariable> variables() const;

  /// The layout of one of them (kChunkFiles) with its dims, packing, unit (ArrayLayout::attribute), times and grid;
  /// of `dates` (rows_of_dates()), or of all rows where they are empty; `is_whole`: and whether the chunks of these are
  /// stored: where only some beyond the dates are not, no row beyond them is usable. Error(kBadData) where its values
  /// cannot be read, by the reason that the metadata give, for coordinates that are none, and for attributes that are
  /// not CF's.
  ArrayLayout inspect(const FieldVariable& variable, bool is_whole, const AskedDates& dates = {}) const;

  /// The coordinate of the rows of the array of this name, or of another dim; empty where it has none.
  StoredTimes times_of(const std::string& name, size_t dim = 0) const;

  /// All arrays, also those of one dim and those that are refused.
  const std::vector<ZarrArray>& arrays() const { return store_.arrays; }
  /// Of an array that is not refused: where its values lie, without dims, packing and coordinates.
  ArrayLayout layout(const ZarrArray& array) const;
  /// Of an array that is not refused, of at least one dim.
  ZarrChunkFiles chunk_files(const ZarrArray& array) const;
  /// All values of an array of one dim that is not refused, unpacked. Error(kBadData) where chunks are not there,
  /// unless fill values in their place go on evenly, as those of a coordinate.
  const std::vector<double>& values_of(const ZarrArray& array) const;

 private:
  void unfold();
  const std::vector<double>& points_of_cells(const std::string& name, int64_t cells) const;
  std::vector<double> grid_points(const std::string& name, const char* units, const std::vector<int64_t>& shape,
                                  size_t dim) const;
  const ZarrArray* find(const std::string& name) const;
  const ZarrArray* named_as(const ZarrArray& array, size_t dim) const;
  const ZarrArray* coordinate(const ZarrArray& array, size_t dim) const;
  std::vector<DimKind> told_of(const ZarrArray& array) const;
  void require_coordinates(const ZarrArray& array, const std::string& where) const;
  std::vector<double> read_values(const ZarrArray& array) const;
  std::string where(const ZarrArray& array) const;

  std::string folder_;
  ZarrStore store_;
  std::vector<std::string> channels_;                          // of the array kFlatArray, once it is unfolded
  std::vector<std::string> missing_dates_;                     // of which it has no values
  std::vector<int64_t> constant_;                              // those of its channels that do not change with time
  std::vector<ZarrArray> points_;                              // and its latitudes and longitudes, in no file
  mutable std::map<std::string, std::vector<double>> values_;  // of coordinates, which many arrays have; by name
};

}  // namespace vit_hybrid::data
