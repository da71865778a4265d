// DeviceMesh: every rank's groups against an enumeration of all coordinates.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::testing {

namespace {

using comm::Communicator;
using comm::MpiGroup;
using mesh::Axis;
using mesh::DeviceMesh;
using mesh::Group;
using mesh::ParallelDims;

// dp, tp, pp.
using Degrees = std::array<int, 3>;

std::vector<Degrees> all_degrees(int ranks) {
  std::vector<Degrees> found;
  for (int dp = 1; dp <= ranks; ++dp) {
    for (int tp = 1; dp * tp <= ranks; ++tp) {
      if (ranks % (dp * tp) == 0) found.push_back({dp, tp, ranks / (dp * tp)});
    }
  }
  return found;
}

// Coordinate (dp, tp, pp) of a rank, counted digit by digit in the order given by its words.
Degrees coordinate_of(int rank, const Degrees& degrees, const std::string& order) {
  Degrees coordinate{};
  for (size_t word = 0; word < 3; ++word) {
    const std::string name = order.substr(word * 3, 2);
    const size_t axis = name == "dp" ? 0 : name == "tp" ? 1 : 2;
    coordinate[axis] = rank % degrees[axis];
    rank /= degrees[axis];
  }
  return coordinate;
}

// World ranks of the members, in the order of the group, by asking them.
std::vector<int64_t> members(Communicator& group, int world_rank) {
  const at::Tensor ranks = at::zeros({group.size()}, at::kLong);
  group.all_gather(ranks, at::full({1}, world_rank, at::kLong)).wait();
  return {ranks.data_ptr<int64_t>(), ranks.data_ptr<int64_t>() + group.size()};
}

std::vector<int64_t> members(const MpiGroup& group, int world_rank) {
  return group.all_gather(world_rank);
}

// Ranks whose coordinates equal this rank's but on `free` axes, ascending.
std::vector<int64_t> expected_members(int rank, const Degrees& degrees, const std::string& order,
                                      const std::vector<size_t>& free) {
  const Degrees own = coordinate_of(rank, degrees, order);
  std::vector<int64_t> found;
  for (int other = 0; other < degrees[0] * degrees[1] * degrees[2]; ++other) {
    const Degrees coordinate = coordinate_of(other, degrees, order);
    bool inside = true;
    for (size_t axis = 0; axis < 3; ++axis) {
      const bool is_free = std::find(free.begin(), free.end(), axis) != free.end();
      inside = inside && (is_free || coordinate[axis] == own[axis]);
    }
    if (inside) found.push_back(other);
  }
  return found;
}

void check_mesh(const MpiGroup& world, const Degrees& degrees, const std::string& order) {
  CAPTURE(degrees[0]);
  CAPTURE(degrees[1]);
  CAPTURE(degrees[2]);
  CAPTURE(order);
  DeviceMesh mesh(ParallelDims(degrees[0], degrees[1], degrees[2], order), world, at::kCPU);
  const int rank = world.rank();
  const Degrees own = coordinate_of(rank, degrees, order);
  CHECK(mesh.rank() == rank);
  CHECK(mesh.size() == world.size());
  CHECK(mesh.data().rank() == own[0]);
  CHECK(mesh.tensor().rank() == own[1]);
  CHECK(mesh.pipeline().rank() == own[2]);
  CHECK(members(mesh.data(), rank) == expected_members(rank, degrees, order, {0}));
  CHECK(members(mesh.tensor(), rank) == expected_members(rank, degrees, order, {1}));
  CHECK(members(mesh.pipeline(), rank) == expected_members(rank, degrees, order, {2}));
  CHECK(members(mesh.model(), rank) == expected_members(rank, degrees, order, {1, 2}));
  CHECK(members(mesh.world(), rank) == expected_members(rank, degrees, order, {0, 1, 2}));
  CHECK(&mesh.host_world() == &mesh.world());
}

}  // namespace

TEST_CASE("mesh: the groups of every rank, for all degrees of the world") {
  const MpiGroup world = MpiGroup::world();
  for (const Degrees& degrees : all_degrees(world.size()))
    check_mesh(world, degrees, "tp-dp-pp");
}

TEST_CASE("mesh: every order") {
  const MpiGroup world = MpiGroup::world();
  const std::vector<Degrees> all = all_degrees(world.size());
  // The most mixed degrees of the world: 2 x 2 x 2 of 8.
  Degrees degrees = all[0];
  for (const Degrees& d : all) {
    if (d[0] + d[1] + d[2] < degrees[0] + degrees[1] + degrees[2]) degrees = d;
  }
  for (const char* order : {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"}) {
    check_mesh(world, degrees, order);
  }
}

TEST_CASE("mesh: groups of the parts of a data axis are there where it is cut, with its members in their order") {
  const MpiGroup world = MpiGroup::world();
  const int rank = world.rank();
  for (int part = 1; part <= world.size(); ++part) {
    if (world.size() % part != 0) continue;
    CAPTURE(part);
    DeviceMesh mesh(ParallelDims(world.size(), 1, 1, "tp-dp-pp", part), world, at::kCPU);
    CHECK(mesh.data().size() == world.size());
    if (!mesh.dims().cuts_data()) continue;
    std::vector<int64_t> shard, replica;
    for (int other = 0; other < world.size(); ++other) {
      if (other / part == rank / part) shard.push_back(other);
      if (other % part == rank % part) replica.push_back(other);
    }
    CHECK(mesh.group(Group::kShard).axis() == "shard");
    CHECK(mesh.group(Group::kReplica).axis() == "replica");
    CHECK(members(mesh.group(Group::kShard), rank) == shard);
    CHECK(members(mesh.group(Group::kReplica), rank) == replica);
    CHECK(mesh.group(Group::kShard).rank() == rank % part);
    CHECK(mesh.group(Group::kReplica).rank() == rank / part);
  }
}

TEST_CASE("mesh: what a rank holds for groups over nodes before any long sum is what own_bytes_of_groups() says") {
  const MemoryTracker::Attachment attachment;
  const auto held = [] { return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kCommunication)]; };
  const comm::MpiGroup world = comm::MpiGroup::world();
  const int size = world.size();
  if (size % 4 != 0) return;
  for (const ParallelDims& dims :
       {ParallelDims(size / 2, 2, 1), ParallelDims(size, 1, 1, mesh::kDefaultOrder, 2), ParallelDims(size / 4, 2, 2)}) {
    for (const int per_node : {1, 2, size / 2, size}) {
      CAPTURE(dims.text());
      CAPTURE(per_node);
      comm::TransportOptions options;
      options.nodes.assign(static_cast<size_t>(size / per_node), per_node);
      const int64_t before = held();
      const DeviceMesh mesh(dims, world, at::kCPU, options);
      CHECK(held() - before == mesh::own_bytes_of_groups(dims, world.rank(), at::kCPU, options, {}));
    }
  }
}

TEST_CASE("mesh: names and back ends of the axes") {
  const MpiGroup world = MpiGroup::world();
  DeviceMesh mesh(ParallelDims(world.size(), 1, 1), world, at::kCPU);
  CHECK(mesh.data().axis() == "data");
  CHECK(mesh.tensor().axis() == "tensor");
  CHECK(mesh.pipeline().axis() == "pipeline");
  CHECK(mesh.world().axis() == "world");
  CHECK(mesh.tensor().back_end() == "self");
  CHECK(mesh.model().size() == 1);
  CHECK(mesh.data().back_end() == (world.size() == 1 ? "self" : "mpi, shared memory"));
}

}  // namespace vit_hybrid::testing
