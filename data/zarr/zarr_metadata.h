// ZarrStore: the arrays of a Zarr store (v2, v3) in a local folder, by its metadata alone; ZarrArray: type, shape,
// chunks and codecs of one; ZarrField: a value of the JSON they are read from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/reading/codecs.h"

namespace vit_hybrid::data {

/// Sorted by key, unlike Json: with the linear search of that a damaged file of millions of keys takes days.
using ZarrJson = nlohmann::json;

/// The JSON of a text of any bytes, with Python's words NaN, Infinity and -Infinity, which JSON does not have, as texts
/// (as fill values have them). Error(kBadData), which names the path, where it is none or nests deeper than 64 levels.
ZarrJson parse_zarr_json(const std::string& text, const std::string& path);

/// A value, which outlives it, and its place for messages: "/data/era5.zarr/.zmetadata: 'z/.zarray': 'chunks'". All
/// functions throw Error(kBadData), which names the place, where the value is not as asked for.
class ZarrField {
 public:
  /// Of what lists hold in sound metadata: dims and codecs.
  static constexpr size_t kMostItems = 32;

  ZarrField(const ZarrJson& value, std::string place) : value_(value), place_(std::move(place)) {}

  [[noreturn]] void fail(const std::string& what) const;
  const ZarrJson& value() const { return value_; }
  const std::string& place() const { return place_; }

  const ZarrJson& object() const;
  std::string text() const;
  int64_t integer(int64_t least) const;
  /// Of a list of at most kMostItems.
  std::vector<ZarrField> items() const;
  std::vector<int64_t> integers(int64_t least) const;

  /// Whether this object has the key, with another value than null.
  bool has(const std::string& key) const;
  ZarrField operator[](const std::string& key) const;
  /// What an object need not have.
  std::string text_or(const std::string& key, const std::string& usual) const;
  ZarrJson object_or_empty(const std::string& key) const;

 private:
  const ZarrJson& value_;
  std::string place_;
};

/// One step from the values of a chunk to its stored bytes.
struct ZarrCodec {
  ChunkFilter filter = ChunkFilter::kDeflate;
  int64_t item_bytes = 1;  ///< of kShuffle
  bool operator==(const ZarrCodec&) const = default;
};

/// An array as its metadata tell of it.
struct ZarrArray {
  std::string name;                ///< with its groups: "era5/geopotential"
  std::string refused;             ///< why its values cannot be read: "codec 'numcodecs.delta'"; empty: they can be
  std::vector<int64_t> shape;      ///< at most 32 dims, of a number of bytes that 63 bits hold
  std::vector<int64_t> chunk;      ///< what codecs make at once, at most 512 MiB; chunks at the edges are whole, too
  std::vector<int64_t> shard;      ///< of a sharded array: what one file holds, whole chunks; else empty
  bool shard_index_at_end = true;  ///< else at the begin of a shard: offset and bytes (64 bits) of each chunk
  bool shard_index_has_checksum = true;  ///< 4 bytes of CRC-32C behind the index
  at::ScalarType type = at::kByte;       ///< of the values once in memory
  bool is_swapped = false;               ///< stored in the order of bytes that this machine has not
  std::vector<ZarrCodec> codecs;         ///< in the order of writing
  std::optional<double> fill_value;      ///< of chunks that are not stored; none: nobody knows their values
  std::vector<std::string> dims;         ///< names, empty texts where a dim has none; empty: no names are given
  ZarrJson attributes = ZarrJson::object();
  std::string key_prefix;    ///< of chunks: "c" or nothing
  char key_separator = '.';  ///< '.' or '/'

  /// Path in the store of the file of chunk (of a sharded array: shard) `index` of the grid: "geopotential/0.3.1",
  /// "geopotential/c/0/3/1". Pure.
  std::string chunk_path(std::span<const int64_t> index) const;
};

/// The numbers of a chunk's key, "3.0.1" or "3/0/1"; empty where it is anything else. Pure.
std::vector<int64_t> chunk_index(std::string_view key, char separator);

/// The array that a .zarray (v2), with what is in .zattrs, or a zarr.json (v3) describes. Error(kBadData) where they
/// contradict the format; what is sound but cannot be read here is `refused`. Pure.
ZarrArray zarr_array_v2(const std::string& name, const ZarrField& field, const ZarrJson& attributes);
ZarrArray zarr_array_v3(const std::string& name, const ZarrField& field);

struct ZarrStore {
  ZarrJson attributes = ZarrJson::object();  ///< of the root group
  std::vector<ZarrArray> arrays;             ///< of all groups, in ascending order of names
};

/// Whether the folder has a file of metadata of a Zarr group or array.
bool is_zarr_store(const std::string& folder);

/// Describes the arrays by the consolidated metadata of the root group where it has some (v3's before v2's), else by
/// those of each group and array. Reads no chunk, and no file through a symbolic link in the store: arrays behind one
/// are refused. Error(kMissingInput) without the folder, Error(kBadData) if it is no group, or metadata are damaged or
/// longer than 64 MiB; what is sound but cannot be read here is refused for that array alone.
ZarrStore read_zarr_store(const std::string& folder);

}  // namespace vit_hybrid::data
