// Readers of rows through HDF5: each rank for itself, or all ranks of a group together (MPI-IO); and small datasets
// read whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/reading/posix_file.h"
#include "data/reading/row_reader.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// Any layout but joined ones; main thread only.
std::unique_ptr<RowReader> make_independent_row_reader(std::vector<RowFile> files);

/// Any layout but joined ones; read() is collective over `group` (which outlives the reader), also for ranks that want
/// no rows or boxes. Errors are agreed.
std::unique_ptr<RowReader> make_collective_row_reader(const comm::MpiGroup& group, std::vector<RowFile> files,
                                                      MpiIoHints hints = {});

/// All values of a small dataset, on this rank alone, by HDF5 (main thread).
at::Tensor read_whole_dataset(const std::string& path, const std::string& dataset);

/// The largest of a list of integers, read a few MiB at a time, on this rank alone (main thread); -1 of an empty list,
/// nothing of a dataset that is no list of integers. Error(kBadData), Error(kIo).
std::optional<int64_t> largest_integer(const std::string& path, const std::string& dataset);

}  // namespace vit_hybrid::data
