// ZarrWriter: a new Zarr store (v3, consolidated) of arrays in chunks under Zstandard, filled by all ranks of a group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/zarr/zarr_metadata.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// An array as ZarrWriter stores it: little-endian, under Zstandard, a file a chunk, chunks that are not stored NaN (of
/// integers 0). `dims` names the dims of `shape`.
ZarrArray zarr_array_to_write(const std::string& name, std::vector<int64_t> shape, std::vector<int64_t> chunk,
                              std::vector<std::string> dims, at::ScalarType type = at::kFloat,
                              ZarrJson attributes = ZarrJson::object());

/// The zarr.json of such an array, from which zarr_array_v3() makes the same array again. Pure.
ZarrJson zarr_json(const ZarrArray& array);

/// The file that makes a folder a store.
inline constexpr const char* kZarrMetadata = "zarr.json";

/// Whether a path in a store, "z/c/0/1/0/0", is that of a file that a writer of these arrays gives values: a chunk.
bool is_chunk_of(std::span<const ZarrArray> arrays, std::string_view path);
/// The same for the files of metadata: that of the store, and those of its arrays.
bool is_metadata_of(std::span<const ZarrArray> arrays, std::string_view path);

/// Whether the file `path` of the store `folder` is what a writer of these arrays leaves that was killed in finish():
/// the metadata of an array, or of the store under its temporary name, where the store has none.
bool is_unfinished_metadata(std::span<const ZarrArray> arrays, const std::string& folder, const std::string& path);

/// The path in the store `folder` of the first entry found that a writer of these arrays does not make: a file that is
/// neither a chunk nor metadata, unfinished ones too, or a symbolic link; empty where there is none.
/// Error(kCannotCreate) for a folder that cannot be listed.
std::string foreign_entry(std::span<const ZarrArray> arrays, const std::string& folder);

/// Chunks get their names at once, the metadata theirs in finish(), that of the store last: until then nobody takes the
/// folder for a store, nor any of its arrays for one.
class ZarrWriter {
 public:
  /// Makes the folder, and takes the metadata out of it that an older store of the same arrays has there. Collective
  /// over `group`, which outlives the writer, with the same arguments on all ranks; errors are agreed:
  /// Error(kCannotCreate).
  ZarrWriter(const comm::MpiGroup& group, std::string folder, std::vector<ZarrArray> arrays,
             ZarrJson attributes = ZarrJson::object());

  /// Writes the chunk `index` of the array: contiguous values on the host, of the array's type and its chunk's shape
  /// (those at the edges are whole, too). Local to the rank, for any thread; each chunk by one. Error(kCannotCreate),
  /// Error(kIo).
  void write(const std::string& array, std::span<const int64_t> index, const at::Tensor& values) const;

  /// The chunks are on the storage, then the metadata. Collective over the group; errors are agreed.
  void finish();

 private:
  const comm::MpiGroup& group_;
  std::string folder_;
  std::vector<ZarrArray> arrays_;
  ZarrJson attributes_;
};

}  // namespace vit_hybrid::data
