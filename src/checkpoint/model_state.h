// Loading of weights into a model that exists, in any layout.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_spec.h"
#include "parallel/tensor/parameter_writer.h"
#include "src/checkpoint/checkpoint_reader.h"

namespace vit_hybrid::train {

/// Writes every parameter slice of this rank, which are those of `specs`, from the checkpoint. The checksums of what
/// the ranks of `model` (tensor x pipeline) read together are verified. Where shapes do not fit, Error(kUsage) names
/// tensor, shape and the model options that differ. Collective over `model`.
void load_parameters(const CheckpointReader& checkpoint, const std::vector<tensor::ParameterSpec>& specs,
                     tensor::ParameterWriter& parameters, comm::Communicator& model, c10::Device device);

}  // namespace vit_hybrid::train
