// Slices of parameters out of a checkpoint's global tensors, and a model's state made of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/parameter_spec.h"
#include "src/base/partition.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/format.h"

namespace vit_hybrid::train {

/// The elements [range.begin, range.end) of a row-major array of `shape` as disjoint boxes in ascending order, at most
/// two for each dim: part of a row, whole rows, part of a row. global_offset and local_offset are both the box's
/// corner.
std::vector<tensor::BoxMapping> boxes_of_range(const tensor::Shape& shape, Range range);

/// The same for a flat range of the local slice of `spec`, cut by its boxes: where the elements lie in the slice and in
/// the global tensor.
std::vector<tensor::BoxMapping> boxes_of_range(const tensor::ParameterSpec& spec, Range range);

/// Each rank reads the boxes of its slices alone. Elements that several ranks hold are counted by the lowest of them,
/// so the sums of all ranks are those of whole tensors.
class SliceReader {
 public:
  /// `names`: parameters of the checkpoint, the same on all ranks, that are read; `specs`: what this rank holds, those
  /// and perhaps others. All outlive the reader. Collective over `model` (tensor x pipeline).
  SliceReader(const CheckpointReader& checkpoint, const std::vector<std::string>& names,
              const std::vector<tensor::ParameterSpec>& specs, const comm::MpiGroup& model);

  /// Whether a rank of the model holds a part of it.
  bool is_held(const std::string& name) const { return holders_.at(name) < model_.size(); }
  /// Fills the slice of one of the names, whose global shape is that of the checkpoint, cast to its type.
  void read(const tensor::ParameterSpec& spec, const at::Tensor& slice);
  /// Error(kBadData), on all ranks, names the first parameter whose checksum is another than it was when it was
  /// written. Once all is read. Collective over `model`.
  void verify();

 private:
  const CheckpointReader& checkpoint_;
  const comm::MpiGroup& model_;
  Checksums checksums_;  // by name, as the next
  std::map<std::string, int>
      holders_;  // the lowest rank that holds a part of it; the size of the model where none does
};

/// Writes every parameter slice of this rank, which are those of `specs`, from the checkpoint. The checksums of what
/// the ranks of `model` (tensor x pipeline) read together are verified. Where shapes do not fit, Error(kUsage) names
/// tensor, shape and the model options that differ. Collective over `model`.
void load_parameters(const CheckpointReader& checkpoint, const std::vector<tensor::ParameterSpec>& specs,
                     tensor::ParameterWriter& parameters, const comm::MpiGroup& model);

}  // namespace vit_hybrid::train
