// Hdf5Layout: where the values of a dataset lie in its file: type, shape, chunks, coordinates.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"

namespace vit_hybrid::data {

/// Described once by one rank, and sent to the others (pack_layouts()): nobody else needs to open the file with
/// HDF5.
struct Hdf5Layout {
  enum class Storage {
    kContiguous,  ///< one run of bytes
    kChunked,     ///< whole chunks at their offsets
    kFiltered,    ///< chunks at their offsets, which decode_chunk() makes into values
    kOpaque,      ///< only HDF5 can read it: filtered otherwise, converted, virtual, not wholly allocated, ...
  };
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;  ///< of the values once in memory
  Storage storage = Storage::kOpaque;
  std::string opaque_because;   ///< why only HDF5 can read it: "filter szip", "big-endian values"
  bool is_virtual = false;      ///< made of parts of other files: not for MPI-IO
  std::string missing_filters;  ///< those of the dataset that this HDF5 lacks: "lzf (32000)"; empty: none
  std::string unwritten;  ///< what HDF5 would make up fill values for: "2 of 24 chunks (from row 5)"; empty: nothing
  int64_t file_bytes = 0;
  int64_t offset = 0;                  ///< kContiguous: of the first value
  std::vector<int64_t> chunk;          ///< shape of a chunk, where the dataset is chunked
  std::vector<int64_t> chunk_offsets;  ///< kChunked, kFiltered: of each chunk, in row-major order of the chunks' grid
  std::vector<int64_t> chunk_bytes;    ///< kFiltered: of each chunk in the file
  std::vector<int64_t> chunk_masks;    ///< kFiltered: bit i: filter i was not applied to the chunk
  std::vector<int64_t> filters;        ///< kFiltered: their numbers (ChunkFilter) in the order of writing
  TimeAxis times;                      ///< of the rows, where channels were asked for
  std::string attribute;               ///< value of the text attribute asked for, or empty
  Grid grid;                           ///< asked for with the channels, as the file gives it

  int64_t num_rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Bytes in memory of one index of the first dim.
  int64_t row_bytes() const;
  int64_t chunks_along(size_t dim) const;
  /// Chunks that one row touches.
  int64_t chunks_per_row() const;
  bool operator==(const Hdf5Layout&) const = default;
};

/// Error(kBadData) where HDF5 lacks a filter of the dataset, with the remedy; `where` names the dataset.
void require_filters(const Hdf5Layout& layout, const std::string& where);

/// Error(kBadData) where not all values can be read: require_filters(), and values that were never written.
void require_readable(const Hdf5Layout& layout, const std::string& where);

/// Describes `dataset` of the file, on this rank alone (main thread), with the text attribute of the dataset or file if
/// `attribute` is not empty and it is there; for "channels" also the texts of a dimension scale of dim 1, the grid and
/// the times. Error(kMissingInput) without the file, Error(kBadData) if it is no HDF5 file, is truncated or has no such
/// dataset of numbers (the hint names those it has), and where channels were asked for and require_channels_first()
/// refuses their order.
Hdf5Layout inspect_dataset(const std::string& path, const std::string& dataset, const std::string& attribute = {});

/// The same but for the storage, which takes seconds to look for in a file of very many chunks: shape, type and what
/// belongs to the attribute.
Hdf5Layout outline_dataset(const std::string& path, const std::string& dataset, const std::string& attribute = {});

/// Whether the file has an object of this name, by any way that HDF5 finds it: "/labels" and the name of a soft link
/// too. On this rank alone (main thread). Errors of the file as inspect_dataset()'s.
bool has_hdf5_object(const std::string& path, const std::string& name);

/// Layouts as one sequence of bytes and back, to be sent to other ranks of the same program. Error(kInternal) if the
/// bytes are no such sequence.
std::string pack_layouts(const std::vector<Hdf5Layout>& layouts);
std::vector<Hdf5Layout> unpack_layouts(const std::string& bytes);

}  // namespace vit_hybrid::data
