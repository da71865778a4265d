// Codecs of chunks (DEFLATE, Zstandard, LZ4, Blosc) in the framings of HDF5's filters and of Zarr, and CRC-32C.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace vit_hybrid::data {

/// HDF5's numbers of its filters, and below 0 what only Zarr has.
enum class ChunkFilter : int64_t {
  kDeflate = 1,  ///< zlib's framing or gzip's
  kShuffle = 2,
  kFletcher32 = 3,
  kBlosc = 32001,
  kLz4Hdf5 = 32004,
  kZstd = 32015,
  kLz4 = -1,
  kCrc32c = -2,  ///< behind what was there before it
};

// Each decodes all of `stored` to the `space` bytes at `to` and returns how many bytes that gave. Error(kBadData),
// without a file's name, for bytes that the codec cannot have written or that decode to more than `space`; then what
// lies in `space` is undefined. No bytes, however made, lead outside of `stored` and `space`. For any thread.

/// A zlib stream (RFC 1950), or members of gzip (RFC 1952) one behind the other.
int64_t inflate(std::span<const char> stored, char* to, int64_t space);

/// Zstandard's frames (RFC 8878) one behind the other; they need not tell their content's size.
int64_t decompress_zstd(std::span<const char> stored, char* to, int64_t space);

/// An LZ4 block behind its decoded size, 4 bytes little-endian, as Zarr's codec 'lz4' (numcodecs) stores it.
int64_t decompress_lz4(std::span<const char> stored, char* to, int64_t space);

/// LZ4 blocks as HDF5's filter 32004 stores them, numbers big-endian: 8 bytes for the decoded size, 4 for that of a
/// block; then each block behind 4 bytes for its stored size, which is the decoded one where it is stored as it was.
int64_t decompress_lz4_hdf5(std::span<const char> stored, char* to, int64_t space);

/// A frame of Blosc 1, as Zarr's codec 'blosc' and HDF5's filter 32001 store it.
int64_t decompress_blosc(std::span<const char> stored, char* to, int64_t space);

/// Puts `count` bytes of what is stored, from `offset` on, to `to`.
using ReadStored = std::function<void(int64_t offset, char* to, int64_t count)>;

/// Told of bytes [first, first + count) once they are decoded; each byte once, runs of 8 bytes not cut. It may change
/// them. May be empty.
using Decoded = std::function<void(int64_t first, int64_t count)>;

/// The same of a frame that is read while it is decoded, so that each block is in the cache from its reading until
/// `decoded` has seen it. `stored` is room for all of the frame, and is written. What `read` and `decoded` throw
/// passes.
int64_t decompress_blosc(const ReadStored& read, std::span<char> stored, char* to, int64_t space,
                         const Decoded& decoded);

/// The checksum CRC-32C (Castagnoli's polynomial; RFC 3720, appendix B.4).
uint32_t crc32c(std::span<const char> bytes);

}  // namespace vit_hybrid::data
