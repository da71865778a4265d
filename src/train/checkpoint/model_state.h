// Loading of weights into a model that exists, in any layout.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "src/train/checkpoint/checkpoint_reader.h"

namespace vit_hybrid::train {

/// Fills every parameter slice of this rank from the checkpoint (cast to the buffer's type) and raises the buffer's
/// version. The checksums of what the ranks of `model` (tensor x pipeline) read together are verified. Where shapes do
/// not fit, Error(kUsage) names tensor, shape and the model options that differ. Collective over `model`.
void load_parameters(const CheckpointReader& checkpoint, tensor::ParameterBuffer& buffer, comm::Communicator& model);

}  // namespace vit_hybrid::train
