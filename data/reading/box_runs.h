// Boxes inside row-major arrays, as runs of elements that lie together in both of two arrays.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace vit_hybrid::data {

/// A box of elements inside an array: the array's shape and the box's first corner in it.
struct BoxPlace {
  std::vector<int64_t> shape;
  std::vector<int64_t> start;
};

/// A box of shape `box` lies in the arrays `a` and `b` (row-major, equal number of dims). Calls `run(first element in
/// a, first element in b, number)` for the longest runs that are contiguous in both; never for an empty box.
void for_each_run(std::span<const int64_t> box, const BoxPlace& a, const BoxPlace& b,
                  const std::function<void(int64_t, int64_t, int64_t)>& run);

/// Bytes of an array of items of `item` bytes, of a shape that a file gives. Nothing where an extent is negative, or
/// some of the extents other than 0 multiply to more than 63 bits hold: strides of such a shape overflow even where it
/// has no elements.
std::optional<int64_t> bytes_of_shape(std::span<const int64_t> shape, int64_t item);

/// Number of elements of a shape.
int64_t num_elements(std::span<const int64_t> shape);

}  // namespace vit_hybrid::data
