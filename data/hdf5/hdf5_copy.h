// Copies of HDF5 objects with all that they hold: by HDF5 where that is right, else value by value.
//
// H5Ocopy writes the fill value of a variable-length type as the address that it had in the old file, and sets
// references to nothing. Datasets of such types are made anew and copied value by value, and what was copied is read
// back and compared by what it means (hdf5_compare.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_attributes.h"
#include "data/hdf5/hdf5_open.h"

namespace vit_hybrid::data {

/// Whether values of the type are, somewhere in them, places in the file: texts and lists of variable length, and
/// references.
bool hdf5_refers_to_its_file(hid_t type);

/// Whether the values lie in other files: of virtual datasets and of those with external storage. They are found by
/// paths that need not hold for another file.
bool hdf5_has_values_elsewhere(hid_t dataset);

/// Sees `number` values of a dataset, from `values` on; `memory` is their dataspace, `selected` where they are in the
/// dataset.
using Hdf5BlockOfValues = std::function<void(hid_t memory, hid_t selected, char* values, size_t number)>;

/// Whether the dataset has one place for all of its values, which HDF5 makes when the first is written, and has not
/// yet.
bool hdf5_is_never_written(hid_t dataset);

/// Reads the values of `dataset` that are stored, as `type` says them in memory, in blocks of a few MiB, or of whole
/// chunks where those are larger. Variable-length values are freed after each block. Error(kIo): "cannot <doing>: ...".
void hdf5_for_each_block(hid_t dataset, hid_t type, const std::string& doing, const Hdf5BlockOfValues& function);

/// Makes `name` (with groups before it) in the file `to` a dataset as `from` is, with its fill value and without its
/// attributes. Returns whether it has its values already; else hdf5_copy_values() gives it them. Error(kIo).
[[nodiscard]] bool hdf5_copy_dataset(hid_t from, hid_t to, const std::string& name, const std::string& doing);

/// Writes the values of `from` into `to`, which hdf5_copy_dataset() made. References keep their bytes, which mean
/// nothing in another file, unless `change` makes them anew. Error(kIo).
void hdf5_copy_values(hid_t from, hid_t to, const std::string& doing, const Hdf5ValueChange& change = {});

/// The dataset that is made anew.
struct Hdf5Rewrite {
  std::string dataset;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> chunk;  ///< empty: contiguous
  int64_t alignment = 4096;    ///< of the first byte of the dataset, or of each of its chunks
};

/// Makes the file `to` with all groups, links, attributes and datasets of `from`; the storage of the one dataset is
/// allocated and not written. References (dimension scales) are made to point into the new file, and datasets whose
/// values lie in other files (virtual ones, external storage) become real ones: what they are made of must be there,
/// and be numbers. On this rank alone (main thread), by HDF5's default driver. Error(kBadData), Error(kCannotCreate),
/// Error(kIo).
void copy_hdf5_structure(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite);

/// Opens both files anew and compares all but the values of the one dataset: links, kinds of objects, attributes, and
/// types, shapes, fill values and values of datasets, variable-length ones by content, references by the names of what
/// they refer to. Error(kIo) names what differs or cannot be read. On this rank alone (main thread).
void verify_hdf5_copy(const std::string& from, const std::string& to, const Hdf5Rewrite& rewrite);

}  // namespace vit_hybrid::data
