// Flat ranges of a parameter slice as boxes of the global tensor. Pure.
#pragma once

#include <vector>

#include "parallel/tensor/parameter_spec.h"
#include "src/base/partition.h"

namespace vit_hybrid::train {

/// The elements [range.begin, range.end) of a row-major array of `shape` as disjoint boxes in ascending order, at most
/// two for each dim: part of a row, whole rows, part of a row. global_offset and local_offset are both the box's
/// corner.
std::vector<tensor::BoxMapping> boxes_of_range(const tensor::Shape& shape, Range range);

/// The same for a flat range of the local slice of `spec`, cut by its boxes: where the elements lie in the slice and in
/// the global tensor.
std::vector<tensor::BoxMapping> boxes_of_range(const tensor::ParameterSpec& spec, Range range);

}  // namespace vit_hybrid::train
