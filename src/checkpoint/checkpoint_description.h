// CheckpointDescription: what HDF5 tells of a checkpoint's file, found by one rank and sent to the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "src/checkpoint/checkpoint_reader.h"

namespace vit_hybrid::train {

struct CheckpointDescription {
  std::string path;  ///< of the file, `latest` resolved
  int64_t file_bytes = 0;
  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;  ///< in ascending order of paths
};

/// Opens the file with HDF5 (main thread), on this rank alone. Errors as CheckpointReader's.
CheckpointDescription describe_checkpoint(const std::string& path);

/// As bytes for other ranks of the same program, and back.
std::string pack_checkpoint(const CheckpointDescription& description);
CheckpointDescription unpack_checkpoint(const std::string& bytes);

/// The attributes of a file that holds `info`, and their checksum; what describe_checkpoint() reads.
data::Hdf5Attributes info_attributes(const CheckpointInfo& info);

}  // namespace vit_hybrid::train
