// HDF5 files that a user names one by one or by their folders.
#pragma once

#include <string>
#include <vector>

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// The files of `words`: a file is itself, a folder the files in it with names of HDF5 (has_hdf5_name()) in order of
/// names (not those in folders below it). Looked up by rank 0 for all. Collective over `group`; errors are agreed:
/// Error(kMissingInput) for what is not there and a folder without such files.
std::vector<std::string> list_hdf5_inputs(const comm::MpiGroup& group, const std::vector<std::string>& words);

/// The texts of rank `root` on all ranks; empty ones and line breaks in them are kept. Collective over `group`.
std::vector<std::string> broadcast_lines(const comm::MpiGroup& group, const std::vector<std::string>& lines,
                                         int root = 0);

}  // namespace vit_hybrid::data
