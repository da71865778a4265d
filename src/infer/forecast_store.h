// ForecastStore: a Zarr store of a forecast, there as a whole or not at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "data/zarr/zarr_writer.h"
#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::train {

/// Whether `path` is the name of one.
bool is_store_name(const std::string& path);

/// Error(kCannotCreate) where `path` is there and `overwrite` is not given, is no store of a forecast, or has more in
/// it than such a store: nothing else is replaced.
void refuse_existing_store(const std::string& path, bool overwrite);

/// Written under a temporary name beside `path`, which finish() replaces.
class ForecastStore {
 public:
  /// What a killed forecast left under the temporary name goes. This process is alone in `self`. Error(kBadData) for an
  /// array whose name is another's, or no plain name of a file; those of ZarrWriter.
  ForecastStore(const comm::MpiGroup& self, std::string path, std::vector<data::ZarrArray> arrays,
                const data::Hdf5Attributes& attributes);
  /// Without finish(): leaves no store behind, and an old one as it was.
  ~ForecastStore();
  ForecastStore(const ForecastStore&) = delete;
  ForecastStore& operator=(const ForecastStore&) = delete;

  const data::ZarrWriter& writer() const { return *writer_; }
  /// All is on the storage and the store has its name; with `overwrite` the old one has it until then, where the file
  /// system can exchange names. Error(kCannotCreate) for what came there meanwhile; Error(kIo).
  void finish(bool overwrite);

 private:
  std::string path_;
  std::string temporary_;
  std::optional<data::ZarrWriter> writer_;
};

/// Attributes as Zarr has them.
data::ZarrJson zarr_attributes(const data::Hdf5Attributes& attributes);

}  // namespace vit_hybrid::train
