// The order in which people read the tensors of a checkpoint: weights before moments, block 2 before block 10. Pure.
#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/checkpoint_reader.h"

namespace vit_hybrid::train {

/// Whether path `a` is read before `b`: parameters first, and numbers in names by their value.
bool reads_before(const std::string& a, const std::string& b);

/// The tensors of a checkpoint in this order.
std::vector<CheckpointTensor> in_reading_order(std::vector<CheckpointTensor> tensors);

/// Whether it is a parameter, no moment.
bool is_parameter(const CheckpointTensor& tensor);

}  // namespace vit_hybrid::train
