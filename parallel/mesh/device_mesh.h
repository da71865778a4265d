// ParallelDims: the degrees of parallelism, the order of the ranks, where each stands; DeviceMesh: the communicators of
// this rank, one for each group.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::mesh {

/// An axis of the mesh. One that is added here, and in the table of device_mesh.cpp, is known everywhere.
enum class Axis { kData, kTensor, kPipeline };
inline constexpr int kNumAxes = 3;
inline constexpr std::array<Axis, kNumAxes> kAxes = {Axis::kData, Axis::kTensor, Axis::kPipeline};

/// Its name in options and in --order: "dp".
std::string_view axis_option(Axis axis);
/// Its name in messages: "data".
std::string_view axis_name(Axis axis);

/// What a rank is in: the group of each axis, of the ranks that differ from it in this coordinate only, and, where the
/// data axis is cut into parts of consecutive ranks for ZeRO-1, its part, and the ranks with its place in the others.
enum class Group { kData, kTensor, kPipeline, kShard, kReplica };
inline constexpr int kNumGroups = 5;
inline constexpr std::array<Group, kNumGroups> kGroups = {Group::kData, Group::kTensor, Group::kPipeline, Group::kShard,
                                                          Group::kReplica};

/// In lines for people: "dp", "shard".
std::string_view group_option(Group group);
/// In messages, records and traces: "data", "shard".
std::string_view group_name(Group group);
/// The group of that name, which is the axis of its communicator; nothing for others ("world").
std::optional<Group> group_named(std::string_view name);

/// One number for each axis: degrees, or the coordinate of a rank.
using Coordinate = std::array<int, kNumAxes>;
inline int& on(Coordinate& coordinate, Axis axis) {
  return coordinate[static_cast<size_t>(axis)];
}
inline int on(const Coordinate& coordinate, Axis axis) {
  return coordinate[static_cast<size_t>(axis)];
}

inline constexpr std::array<std::string_view, 6> kOrders = {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp",
                                                            "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"};
inline constexpr const char* kDefaultOrder = "tp-dp-pp";

/// The mesh as numbers: a degree for each axis, and the order in which the axes count through the ranks. A pure value.
class ParallelDims {
 public:
  /// One rank.
  ParallelDims() : ParallelDims(1, 1, 1) {}
  /// `order` names every axis once, the fastest first: in "tp-dp-pp" ranks 0 and 1 differ in tp. `shard` ranks, which
  /// divide dp, are a part of the data axis. Throws Error(kUsage) for another order or a degree below 1.
  ParallelDims(int dp, int tp, int pp, const std::string& order = kDefaultOrder, int shard = 1);

  int degree(Axis axis) const { return on(degrees_, axis); }
  int data() const { return degree(Axis::kData); }
  int tensor() const { return degree(Axis::kTensor); }
  int pipeline() const { return degree(Axis::kPipeline); }
  /// Number of ranks.
  int size() const;
  /// Ranks of a part of the data axis.
  int shard() const { return shard_; }
  /// Whether the parts are other groups than the whole axis and its single ranks.
  bool cuts_data() const { return shard_ > 1 && shard_ < data(); }
  /// The axes, fastest first.
  const std::array<Axis, kNumAxes>& order() const { return order_; }

  Coordinate coordinate(int rank) const;
  int rank(const Coordinate& coordinate) const;
  /// The ranks that differ from `rank` in these axes only, in ascending order: the group of `rank` over `axes`.
  std::vector<int> group(int rank, const std::vector<Axis>& axes) const;
  /// The same of one group; `rank` alone for kShard and kReplica where cuts_data() is false.
  std::vector<int> members(int rank, Group group) const;

  /// "dp 4 x tp 2 x pp 2".
  std::string text() const;
  bool operator==(const ParallelDims&) const = default;

 private:
  Coordinate degrees_{};
  std::array<Axis, kNumAxes> order_{};
  int shard_ = 1;
};

/// The runs among `members`, ascending ranks of the world, that are in one of the world's `blocks` each.
std::vector<int> blocks_of(const std::vector<int>& members, const std::vector<int>& blocks);

/// The largest sum of host tensors over each kind of group; without elements where there is none that is long.
using LongestSums = std::array<comm::LongestSum, kNumGroups>;
/// Bytes of its own memory (MemoryClass::kCommunication) that `rank` comes to hold for the groups of a mesh of host
/// ranks, or for a GPU's control messages. `options` have the world's nodes and, unless they are these, blocks. Pure.
int64_t own_bytes_of_groups(const ParallelDims& dims, int rank, c10::DeviceType device,
                            const comm::TransportOptions& options, const LongestSums& longest);

/// How many ranks of its group on its node, itself among them, `rank` shares gradients and parameters with, in a mesh
/// of host ranks with such `options`. Pure.
int num_sharing_ranks(const ParallelDims& dims, int rank, Group group, const comm::TransportOptions& options);

/// Who is in which group. A group of one is a group like any other, so that no layer asks whether it is distributed.
/// The rank in the group of an axis is the coordinate on it; ranks of other groups follow the world's.
class DeviceMesh {
 public:
  /// Builds all groups in one fixed order: model, world, data, tensor, pipeline, and where the data axis is cut shard
  /// and replica. `world` must have dims.size() ranks. On a CUDA device, the device of this rank must be `device`.
  /// `options.most_blocks` holds for the groups of the data axis, whose operations run beside products;
  /// `options.sum_blocks` are the world's, and what is a block of it is one of each group. Collective over `world`.
  DeviceMesh(const ParallelDims& dims, const comm::MpiGroup& world, c10::Device device,
             const comm::TransportOptions& options = {});

  /// Those of parts of the data axis are there where dims().cuts_data() alone.
  comm::Communicator& group(Group group) { return *groups_[static_cast<size_t>(group)]; }
  /// The ranks with the same slice of the model.
  comm::Communicator& data() { return group(Group::kData); }
  /// The ranks that split the layers' weights among them.
  comm::Communicator& tensor() { return group(Group::kTensor); }
  /// The stages, rank 0 being the first.
  comm::Communicator& pipeline() { return group(Group::kPipeline); }
  comm::Communicator& world() { return *world_; }
  /// All ranks, for small control messages in host memory; world() itself where tensors are host tensors.
  comm::Communicator& host_world() { return host_world_ != nullptr ? *host_world_ : *world_; }
  /// The ranks that together hold one replica of the model, tensor x pipeline: weights are checked over it while they
  /// are read.
  const comm::MpiGroup& model() const { return model_; }

  const ParallelDims& dims() const { return dims_; }
  int rank() const { return rank_; }
  int size() const { return dims_.size(); }
  /// Runs of the world's ranks, of which sums over host tensors are put together (TransportOptions::sum_blocks).
  const std::vector<int>& sum_blocks() const { return sum_blocks_; }
  /// How many ranks of the world each node has, in their order.
  const std::vector<int>& nodes() const { return nodes_; }
  const Coordinate& coordinate() const { return coordinate_; }
  c10::Device device() const { return device_; }

 private:
  ParallelDims dims_;
  int rank_;
  Coordinate coordinate_;
  c10::Device device_;
  std::vector<int> nodes_;
  std::vector<int> sum_blocks_;
  comm::MpiGroup model_;
  // In the order of construction; the world, from which the others are split, goes last.
  std::unique_ptr<comm::Communicator> world_;
  std::unique_ptr<comm::Communicator> host_world_;
  std::array<std::unique_ptr<comm::Communicator>, kNumGroups> groups_;
};

}  // namespace vit_hybrid::mesh
