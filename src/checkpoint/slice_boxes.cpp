// Flat ranges as boxes: recursion over the dims, then intersection with the boxes of the slice.
#include "src/checkpoint/slice_boxes.h"

#include <algorithm>
#include <optional>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using tensor::BoxMapping;
using tensor::Shape;

// Adds the boxes of `range`, which lies in the sub-array of the dims from `dim` on at the corner `corner`.
void add_boxes(const Shape& shape, size_t dim, Shape corner, Range range, std::vector<BoxMapping>& out) {
  if (range.begin >= range.end) {
    return;
  }
  BoxMapping box{corner, corner, Shape(shape.size(), 1)};
  if (dim == shape.size()) {
    out.push_back(std::move(box));
    return;
  }
  int64_t row = 1;  // elements of one step in `dim`
  for (size_t d = dim + 1; d < shape.size(); ++d) {
    row *= shape[d];
    box.size[d] = shape[d];
  }
  const auto part_of_row = [&](int64_t index, Range part) {
    corner[dim] = index;
    add_boxes(shape, dim + 1, corner, {part.begin - index * row, part.end - index * row}, out);
  };
  const int64_t first_whole = (range.begin + row - 1) / row;
  const int64_t end_whole = range.end / row;
  if (first_whole > end_whole) {  // within one row
    part_of_row(end_whole, range);
    return;
  }
  if (range.begin < first_whole * row) {
    part_of_row(first_whole - 1, {range.begin, first_whole * row});
  }
  if (first_whole < end_whole) {
    box.global_offset[dim] = box.local_offset[dim] = first_whole;
    box.size[dim] = end_whole - first_whole;
    out.push_back(box);
  }
  if (end_whole * row < range.end) {
    part_of_row(end_whole, {end_whole * row, range.end});
  }
}

// The part of `box` (of the local slice) that lies in `mapping`.
std::optional<BoxMapping> intersection(const BoxMapping& box, const BoxMapping& mapping) {
  BoxMapping common = box;
  for (size_t d = 0; d < box.size.size(); ++d) {
    const int64_t begin = std::max(box.local_offset[d], mapping.local_offset[d]);
    const int64_t end = std::min(box.local_offset[d] + box.size[d], mapping.local_offset[d] + mapping.size[d]);
    if (begin >= end) {
      return std::nullopt;
    }
    common.local_offset[d] = begin;
    common.global_offset[d] = mapping.global_offset[d] + begin - mapping.local_offset[d];
    common.size[d] = end - begin;
  }
  return common;
}

}  // namespace

std::vector<BoxMapping> boxes_of_range(const Shape& shape, Range range) {
  VH_ASSERT(range.begin >= 0 && range.end <= tensor::num_elements(shape), str(range.begin, " to ", range.end));
  std::vector<BoxMapping> boxes;
  add_boxes(shape, 0, Shape(shape.size(), 0), range, boxes);
  return boxes;
}

std::vector<BoxMapping> boxes_of_range(const tensor::ParameterSpec& spec, Range range) {
  std::vector<BoxMapping> out;
  for (const BoxMapping& box : boxes_of_range(spec.local_shape, range)) {
    for (const BoxMapping& mapping : spec.boxes) {
      if (auto common = intersection(box, mapping)) {
        out.push_back(std::move(*common));
      }
    }
  }
  return out;
}

}  // namespace vit_hybrid::train
