// SliceReader: the parameter slices of a rank out of a checkpoint; the ranks of a model verify together what they read.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_spec.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/checksums.h"

namespace vit_hybrid::train {

/// Each rank reads the boxes of its slices alone. Elements that several ranks hold are counted by the lowest of them,
/// so the sums of all ranks are those of whole tensors.
class SliceReader {
 public:
  /// `names`: parameters of the checkpoint, the same on all ranks, that are read; `specs`: what this rank holds, those
  /// and perhaps others. Tensors are moved on `device` between the ranks. All outlive the reader. Collective over
  /// `model` (tensor x pipeline).
  SliceReader(const CheckpointReader& checkpoint, const std::vector<std::string>& names,
              const std::vector<tensor::ParameterSpec>& specs, comm::Communicator& model, c10::Device device);

  /// Whether a rank of the model holds a part of it.
  bool is_held(const std::string& name) const { return holders_.at(name) < model_.size(); }
  /// Fills the slice of one of the names, whose global shape is that of the checkpoint, cast to its type.
  void read(const tensor::ParameterSpec& spec, const at::Tensor& slice);
  /// Error(kBadData), on all ranks, names the first parameter whose checksum is another than it was when it was
  /// written. Once all is read. Collective over `model`.
  void verify();

 private:
  void find_holders(const std::vector<tensor::ParameterSpec>& specs);

  const CheckpointReader& checkpoint_;
  comm::Communicator& model_;
  c10::Device device_;
  Checksums checksums_;  // by name, as the next
  std::map<std::string, int>
      holders_;  // the lowest rank that holds a part of it; the size of the model where none does
};

}  // namespace vit_hybrid::train
