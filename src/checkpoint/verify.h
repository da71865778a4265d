// Checksums of a whole checkpoint, checked by one process.
#pragma once

#include <cstdint>
#include <string>

#include "src/checkpoint/checkpoint_reader.h"

namespace vit_hybrid::train {

/// "file: dataset 'parameters/...'", for messages.
std::string place_of(const CheckpointReader& checkpoint, const CheckpointTensor& tensor);

/// Reads every tensor and compares its checksum. Error(kBadData) names the first whose checksum is another.
void verify_checkpoint(const CheckpointReader& checkpoint);

/// Reads one tensor, checksum compared.
at::Tensor read_verified(const CheckpointReader& checkpoint, const CheckpointTensor& tensor);

}  // namespace vit_hybrid::train
