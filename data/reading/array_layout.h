// ArrayLayout: where the values of an array lie in its file: type, shape, chunks, coordinates; and how several arrays
// make fields.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// How numbers are kept in an array of a variable (CF conventions, sections 2.5.1 and 8.1): value = stored * scale +
/// offset, of doubles; what is stored as `fill` is missing.
struct Packing {
  double scale = 1.0;
  double offset = 0.0;
  bool has_fill = false;
  double fill = 0.0;
  bool is_identity() const { return *this == Packing(); }
  bool operator==(const Packing&) const = default;
};

/// Channels of a field that are planes of one array, one after the other.
struct ChannelRun {
  int64_t array = 0;    ///< in ArrayLayout::arrays
  int64_t channel = 0;  ///< the first one, in the field
  int64_t plane = 0;    ///< the first one's, along the array's levels or channels; 0 where it has neither
  int64_t count = 1;
  bool operator==(const ChannelRun&) const = default;
};

/// Of an array each of whose chunks, or shards of chunks, is a file of its own in the folder RowFile::path (Zarr).
struct ChunkFiles {
  std::string prefix;          ///< of their paths in the folder, which end with the indices: "geopotential/c/"
  std::string separator;       ///< of indices: "." or "/"
  std::vector<int64_t> shard;  ///< shape of what one file holds, whole chunks; empty: one chunk
  bool index_at_end = true;    ///< of a shard; else at its begin: offset and bytes (64 bits) of each chunk
  bool index_has_checksum = true;
  bool is_swapped = false;  ///< the values have the order of bytes that this machine has not
  bool has_fill = false;    ///< chunks that are not stored hold `fill`; else nobody knows their values
  double fill = 0.0;
  std::vector<std::string> samples;  ///< files that are compared between ranks; the first one is of the metadata
  bool operator==(const ChunkFiles&) const = default;
};

/// The first dim of this kind; as many as there are dims where none is.
inline size_t dim_of(const std::vector<DimKind>& dims, DimKind kind) {
  return static_cast<size_t>(std::find(dims.begin(), dims.end(), kind) - dims.begin());
}

/// Described once by one rank, and sent to the others (pack_layouts()): nobody else needs to open the file with
/// HDF5.
struct ArrayLayout {
  enum class Storage {
    kContiguous,  ///< one run of bytes
    kChunked,     ///< whole chunks at their offsets
    kFiltered,    ///< chunks at their offsets, which decode_chunk() makes into values
    kChunkFiles,  ///< the same, or as they are without filters, in files of their own
    kOpaque,      ///< only HDF5 can read it: filtered otherwise, converted, virtual, not wholly allocated, ...
    kJoined,      ///< fields (time, channel, latitude, longitude) that are planes of several arrays
  };
  std::string name;  ///< of the dataset; of what is joined those of the arrays
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;  ///< of the values once in memory
  Storage storage = Storage::kOpaque;
  std::string opaque_because;   ///< why only HDF5 can read it: "filter szip", "big-endian values"
  bool is_virtual = false;      ///< made of parts of other files: not for MPI-IO
  std::string missing_filters;  ///< those that this HDF5 lacks, where it is needed: "lzf (32000)"; empty: none
  std::string unwritten;  ///< what HDF5 would make up fill values for: "2 of 24 chunks (from row 5)"; empty: nothing
  int64_t file_bytes = 0;
  int64_t offset = 0;                  ///< kContiguous: of the first value
  std::vector<int64_t> chunk;          ///< shape of a chunk, where the dataset is chunked; of kJoined of all together
  std::vector<int64_t> chunk_offsets;  ///< kChunked, kFiltered: of each chunk, in row-major order of the chunks' grid
  std::vector<int64_t> chunk_bytes;    ///< kFiltered: of each chunk in the file
  std::vector<int64_t> chunk_masks;    ///< kFiltered: bit i: filter i was not applied to the chunk
  std::vector<int64_t> filters;        ///< kFiltered, kChunkFiles: ChunkFilter in the order of writing
  TimeAxis times;                      ///< of the rows, where channels were asked for
  std::optional<Range> chosen = {};    ///< rows of the dates that were asked for; nothing: all
  std::optional<Range> usable = {};    ///< these, and rows beyond them that may be read, too; nothing: the same
  std::vector<int64_t> missing = {};   ///< rows that the file says it has no values of
  std::vector<std::string> unknown;    ///< names of FieldQuery::variables that none of the file's variables has
  std::string attribute;               ///< value of the text attribute asked for, or empty
  Grid grid;                           ///< asked for with the channels, as the file gives it
  ChunkFiles chunk_files;              ///< kChunkFiles
  std::string file;                    ///< of an array of kJoined: where it lies; empty: in RowFile::path
  std::vector<DimKind> dims;           ///< likewise
  Packing packing;                     ///< likewise
  std::vector<int64_t> constant;       ///< likewise: planes that the file says do not change with time
  std::vector<ArrayLayout> arrays;     ///< kJoined
  std::vector<ChannelRun> runs;        ///< kJoined: in the order of the channels

  int64_t num_rows() const { return shape.empty() ? 1 : shape.front(); }
  Range chosen_rows() const { return chosen.value_or(Range{0, num_rows()}); }
  Range usable_rows() const { return usable.value_or(chosen_rows()); }
  bool is_of_other_dates() const { return usable && usable->empty(); }
  /// Bytes in memory of one index of the first dim.
  int64_t row_bytes() const;
  int64_t chunks_along(size_t dim) const;
  bool operator==(const ArrayLayout&) const = default;
  /// Chunks that one row touches.
  int64_t chunks_per_row() const;
  /// What is stored: the arrays of kJoined, else this one.
  std::vector<const ArrayLayout*> stored_arrays() const;
  /// What `channel` of a field lies in.
  const ArrayLayout& array_of(int64_t channel) const;
  /// Whether the file says that `channel` of a field does not change with time.
  bool is_constant(int64_t channel) const;
  /// Of kJoined: channels that lie nowhere.
  int64_t num_lacking() const;
};

/// Error(kBadData) where HDF5 lacks a filter of the dataset, with the remedy; `where` names the dataset.
void require_filters(const ArrayLayout& layout, const std::string& where);

/// Error(kBadData) where not all values can be read: require_filters(), and values that were never written.
void require_readable(const ArrayLayout& layout, const std::string& where);

/// Layouts as one sequence of bytes and back, to be sent to other ranks of the same program. Error(kInternal) if the
/// bytes are no such sequence.
std::string pack_layouts(const std::vector<ArrayLayout>& layouts);
std::vector<ArrayLayout> unpack_layouts(const std::string& bytes);

}  // namespace vit_hybrid::data
