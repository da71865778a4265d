// Makes the descriptions of whole and of cut parameters.
#include "parallel/tensor/parameter_spec.h"

#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::tensor {

int64_t num_elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

ParameterSpec replicated(std::string name, Shape shape, Distribution initial, DecayGroup decay) {
  const Shape origin(shape.size(), 0);
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.global_shape = shape;
  spec.local_shape = shape;
  spec.boxes = {{origin, origin, std::move(shape)}};
  spec.replicated_over_tensor = true;
  spec.initial = initial;
  spec.decay = decay;
  return spec;
}

ParameterSpec sharded(std::string name, Shape shape, int dim, int64_t begin, int64_t end, int groups,
                      Distribution initial, DecayGroup decay) {
  VH_ASSERT(dim >= 0 && dim < static_cast<int>(shape.size()), str(name, ": dim ", dim));
  const auto axis = static_cast<size_t>(dim);
  VH_ASSERT(groups >= 1 && shape[axis] % groups == 0, str(name, ": extent ", shape[axis], " in ", groups, " groups"));
  const int64_t group_extent = shape[axis] / groups;
  VH_ASSERT(0 <= begin && begin <= end && end <= group_extent,
            str(name, ": rows ", begin, " to ", end, " of ", group_extent));
  const int64_t rows = end - begin;

  ParameterSpec spec;
  spec.name = std::move(name);
  spec.local_shape = shape;
  spec.local_shape[axis] = groups * rows;
  for (int group = 0; rows > 0 && group < groups; ++group) {
    BoxMapping box{Shape(shape.size(), 0), Shape(shape.size(), 0), shape};
    box.global_offset[axis] = group * group_extent + begin;
    box.local_offset[axis] = group * rows;
    box.size[axis] = rows;
    spec.boxes.push_back(std::move(box));
  }
  spec.global_shape = std::move(shape);
  spec.replicated_over_tensor = false;
  spec.initial = initial;
  spec.decay = decay;
  return spec;
}

}  // namespace vit_hybrid::tensor
