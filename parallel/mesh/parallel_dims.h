// ParallelDims: the degrees of parallelism and the order of the ranks; where each rank stands.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace vit_hybrid::mesh {

/// An axis of the mesh. One that is added here, and in the table of parallel_dims.cpp, is known everywhere.
enum class Axis { kData, kTensor, kPipeline };
inline constexpr int kNumAxes = 3;
inline constexpr std::array<Axis, kNumAxes> kAxes = {Axis::kData, Axis::kTensor, Axis::kPipeline};

/// Its name in options and in --order: "dp".
std::string_view axis_option(Axis axis);
/// Its name in messages: "data".
std::string_view axis_name(Axis axis);

/// One number for each axis: degrees, or the coordinate of a rank.
using Coordinate = std::array<int, kNumAxes>;
inline int& on(Coordinate& coordinate, Axis axis) {
  return coordinate[static_cast<size_t>(axis)];
}
inline int on(const Coordinate& coordinate, Axis axis) {
  return coordinate[static_cast<size_t>(axis)];
}

inline constexpr const char* kDefaultOrder = "tp-dp-pp";

/// The mesh as numbers: a degree for each axis, and the order in which the axes count through the ranks. A pure value.
class ParallelDims {
 public:
  /// One rank.
  ParallelDims() : ParallelDims(1, 1, 1) {}
  /// `order` names every axis once, the fastest first: in "tp-dp-pp" ranks 0 and 1 differ in tp. Throws Error(kUsage)
  /// for another order or a degree below 1.
  ParallelDims(int dp, int tp, int pp, const std::string& order = kDefaultOrder);

  int degree(Axis axis) const { return on(degrees_, axis); }
  int data() const { return degree(Axis::kData); }
  int tensor() const { return degree(Axis::kTensor); }
  int pipeline() const { return degree(Axis::kPipeline); }
  /// Number of ranks.
  int size() const;
  /// The axes, fastest first.
  const std::array<Axis, kNumAxes>& order() const { return order_; }

  Coordinate coordinate(int rank) const;
  int rank(const Coordinate& coordinate) const;
  /// The ranks that differ from `rank` in these axes only, in ascending order: the group of `rank` over `axes`.
  std::vector<int> group(int rank, const std::vector<Axis>& axes) const;

  /// "dp 4 x tp 2 x pp 2".
  std::string text() const;
  bool operator==(const ParallelDims&) const = default;

 private:
  Coordinate degrees_{};
  std::array<Axis, kNumAxes> order_{};
};

}  // namespace vit_hybrid::mesh
