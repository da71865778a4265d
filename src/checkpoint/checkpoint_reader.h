// CheckpointReader: a checkpoint opened for reading, by one process or by all ranks of a group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "data/loading/tensor_pool.h"
#include "data/reading/posix_file.h"
#include "src/base/error.h"
#include "src/checkpoint/format.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::train {

/// A checkpoint of an older or newer program: it is whole, but not for this one. Of class kBadData.
class OtherFormatError : public Error {
 public:
  using Error::Error;
};

/// One dataset of a checkpoint.
struct CheckpointTensor {
  std::string path;  ///< "parameters/blocks.3.attn.qkv.weight"
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;
  std::string checksum;
  int64_t offset = 0;  ///< of its first value in the file
};

/// What HDF5 tells of the file, found by one rank and sent to the others.
struct CheckpointDescription {
  std::string path;
  int64_t file_bytes = 0;
  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;
};

/// Opens and describes; reads boxes of tensors at their place in the file by pread, so that no HDF5 or MPI call is made
/// after the constructor.
class CheckpointReader {
 public:
  /// On this process alone (main thread). `path` is the file, or a folder with `latest` in it. Error(kMissingInput),
  /// Error(kBadData) for a foreign, truncated or newer file.
  explicit CheckpointReader(const std::string& path);
  /// Rank 0 describes for all; errors are agreed. Collective over `group`.
  CheckpointReader(const comm::MpiGroup& group, const std::string& path);

  const std::string& path() const { return description_.path; }  ///< of the file, `latest` resolved
  const CheckpointInfo& info() const { return description_.info; }
  const std::vector<CheckpointTensor>& tensors() const {
    return description_.tensors;
  }  ///< in ascending order of paths
  /// Null if there is no such dataset.
  const CheckpointTensor* find(const std::string& dataset) const;
  /// Their canonical names, in ascending order.
  std::vector<std::string> parameter_names() const;
  /// False for a file of weights alone.
  bool has_optimizer() const;
  /// Names of what its optimizer keeps of each parameter ("exp_avg"), in ascending order.
  std::vector<std::string> optimizer_states() const;

  /// The box [start, start + size) of a dataset, host tensor of its type. Error(kBadData) where it is not there or
  /// the file ends before; Error(kIo).
  at::Tensor read(const std::string& dataset, std::span<const int64_t> start, std::span<const int64_t> size) const;
  /// The whole tensor.
  at::Tensor read(const std::string& dataset) const;

 private:
  CheckpointDescription description_;
  data::PosixFile file_;
  std::unique_ptr<data::TensorPool> pool_;  // fresh memory for every box would cost more than reading it
};

/// Error(kBadData) where `data`, a path, have other channels than the training of `checkpoint`, a path, whose data are
/// `trained`; in other units, or on another grid. Pure.
void require_trained_data(const TrainingData& trained, const std::string& checkpoint, const TrainingData& given,
                          const std::string& data);

/// What a checkpoint of an earlier format does not say, and what is used instead; nothing of one of this format.
std::optional<std::string> earlier_format_line(const CheckpointReader& checkpoint);

/// The file that `path` names: itself, for a file `latest` or `best` of a checkpoint folder what it names, for a folder
/// what its `latest` names. Error(kMissingInput), and for a `latest` or `best` that names none as named_by().
std::string resolve_checkpoint(const std::string& path);

/// The attributes of a file that holds `info`, and their checksum; what a CheckpointReader reads.
data::Hdf5Attributes info_attributes(const CheckpointInfo& info);

}  // namespace vit_hybrid::train
