// Hdf5Writer: a new HDF5 file of contiguous datasets, created by all ranks of a group together and filled by each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

using Hdf5Value = std::variant<std::string, int64_t, double, std::vector<double>>;
using Hdf5Attributes = std::vector<std::pair<std::string, Hdf5Value>>;

/// A dataset to create. Types of numbers: float32, float64, uint8, int32, int64 (kFloat, kDouble, kByte, kInt, kLong).
struct Hdf5DatasetSpec {
  std::string name;  ///< groups before a '/' are made
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;
  Hdf5Attributes attributes = {};
  /// A list of texts instead of numbers: `shape` is their number, and they are written when the dataset is made. Not of
  /// a file with a seal.
  std::vector<std::string> texts = {};
};

/// A text attribute of a dataset that is known at the end only.
struct Hdf5Text {
  std::string dataset;
  std::string attribute;
  std::string value;
};

/// Whether a file has a seal before what HDF5 writes (HDF5's user block, which all its programs skip), by which a
/// reader finds damage of HDF5's own structures before HDF5 falls over them: see file_seal.h. Of the values it says
/// nothing.
enum class Hdf5Seal { kNone, kMetadata };

/// Writes one file under temporary_name(path) and gives it its name in finish(). Rank 0 alone makes it with HDF5, on
/// its main thread; the values are written by pwrite where HDF5 has put their datasets, by any rank. A writer that is
/// destroyed before finish() leaves no file under `path` (an unfinished one may stay under the temporary name).
class Hdf5Writer {
 public:
  /// Collective over `group`, with the same arguments on all ranks. The datasets' storage is allocated at once and not
  /// filled: every element must be written by some rank. Error(kCannotCreate) on all ranks if it fails on one.
  Hdf5Writer(const comm::MpiGroup& group, std::string path, std::vector<Hdf5DatasetSpec> datasets,
             const Hdf5Attributes& attributes = {}, Hdf5Seal seal = Hdf5Seal::kNone);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Writes the box of the dataset that begins at `start` and has the shape of `values` (a host tensor of the dataset's
  /// type and number of dims). Local to the rank. Boxes of different ranks must not overlap. This and flush() make no
  /// MPI and no HDF5 call and may run on one other thread. Error(kIo).
  void write(const std::string& dataset, std::span<const int64_t> start, const at::Tensor& values);
  /// Waits until what this rank wrote is on the storage. Local. Error(kIo).
  void flush();
  /// Collective over the group: gives the datasets' attributes in `texts` (the same on all ranks) these values, which
  /// have the length of those of the constructor; flushes, closes and renames; status agreed. Afterwards every rank can
  /// open `path`.
  void finish(const std::vector<Hdf5Text>& texts = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vit_hybrid::data
