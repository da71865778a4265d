// The placement of ranks on made-up nodes: what is right goes unmentioned, and each mistake has its line.
#include <doctest/doctest.h>
#include <hwloc.h>

#include <algorithm>
#include <numeric>

#include "src/base/host.h"
#include "src/base/text.h"
#include "src/machine/placement.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using testing::contains;

namespace {

using Numbers = std::vector<int>;
using Kind = PlacementRemark::Kind;

constexpr int kCores = 288;
constexpr int kMemories = 8;

Numbers range(int begin, int end) {
  Numbers numbers(static_cast<size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// A node by hwloc's short description, on which the job may use the listed processors alone.
NodeTopology made_up(const std::string& description, const std::string& allowed = "") {
  hwloc_topology_t topology = nullptr;
  REQUIRE(hwloc_topology_init(&topology) == 0);
  const NodeTopology out(topology, hwloc_topology_destroy);
  REQUIRE(hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0);
  REQUIRE(hwloc_topology_set_synthetic(topology, description.c_str()) == 0);
  REQUIRE(hwloc_topology_load(topology) == 0);
  if (!allowed.empty()) {
    hwloc_bitmap_t processors = hwloc_bitmap_alloc();
    hwloc_bitmap_list_sscanf(processors, allowed.c_str());
    CHECK(hwloc_topology_allow(topology, processors, nullptr, HWLOC_ALLOW_FLAG_CUSTOM) == 0);
    hwloc_bitmap_free(processors);
  }
  return load_topology(topology_xml(out));  // as it comes to the other ranks of a node
}

// 2 x 144 cores of 2 hardware threads, core c having processors c and c + 288, and 4 NUMA nodes a socket.
const NodeTopology& big_node() {
  static const NodeTopology topology = made_up("pack:2 numa:4 core:36 pu:2(indexes=2*288:1*2)");
  return topology;
}

RankPlacement on_big_node(const Numbers& processors, int threads, const Numbers& memories = range(0, kMemories)) {
  RankPlacement place = place_rank(big_node(), processors, memories, threads);
  place.host = "n1";
  return place;
}

// `count` ranks, each on the next `width` cores.
std::vector<RankPlacement> in_blocks(int count, int width, int threads) {
  std::vector<RankPlacement> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.push_back(on_big_node(range(rank * width, (rank + 1) * width), threads));
  }
  return ranks;
}

std::string only_remark(const std::vector<RankPlacement>& ranks, Kind kind) {
  const auto remarks = placement_remarks(ranks);
  REQUIRE(remarks.size() == 1);
  CHECK(remarks[0].kind == kind);
  return remarks[0].text;
}

}  // namespace

TEST_CASE("placement: cores, sockets and memories of a node") {
  const RankPlacement place = on_big_node(range(140, 152), 12);
  CHECK(place.cores == range(140, 152));
  CHECK(place.node_cores == kCores);
  CHECK(place.num_sockets == 2);
  CHECK(place.near_memories == Numbers{3, 4});
  // Hardware threads of a core count once; what is not online is left out.
  CHECK(on_big_node({300}, 1).cores == Numbers{12});
  CHECK(on_big_node({5, 293, 6, 4000}, 1).cores == Numbers{5, 6});
  CHECK(on_big_node({300}, 1).num_sockets == 1);
  CHECK(on_big_node({36, 37 + kCores}, 1).near_memories == Numbers{1});
}

TEST_CASE("placement: nodes of which less is known") {
  // Processors alone, as virtual machines have them: each is a core.
  const RankPlacement bare = place_rank(made_up("pu:4"), {1, 3}, {0}, 2);
  CHECK(bare.cores == Numbers{1, 3});
  CHECK(bare.node_cores == 4);
  CHECK(bare.num_sockets <= 1);
  CHECK(placement_remarks({bare}).empty());
  // NUMA nodes without memory: none is near, and so none is far.
  const RankPlacement empty = place_rank(made_up("pack:2 [numa(memory=0)] core:2 pu:1"), {0, 1}, {1}, 2);
  CHECK(empty.near_memories.empty());
  CHECK(placement_remarks({empty}).empty());
}

TEST_CASE("placement: the job may use the processors of its control group") {
  const NodeTopology part = made_up("pack:2 core:4 pu:2", "0-5");  // three cores of the first socket
  CHECK(place_rank(part, {0, 1, 2, 3, 4, 5}, {}, 3).node_cores == 3);
  RankPlacement place = place_rank(part, {2, 3}, {}, 1);
  CHECK(place.cores == Numbers{2});
  place.host = "n1";
  CHECK(contains(only_remark({place, place}, Kind::kWarning), "2 threads on 1 core of n1, while 2 of its 3 are free"));
}

TEST_CASE("placement: a node that hwloc knows nothing of could not be checked") {
  RankPlacement place = place_rank(load_topology("<topology"), {0, 1}, {}, 2);
  place.host = "n1";
  CHECK(only_remark({place}, Kind::kNote) == "not checked (rank 0): no cores in /sys/devices/system of n1");
  CHECK(topology_xml(nullptr).empty());
}

TEST_CASE("placement: this machine can be read") {
  const NodeTopology here = load_topology();
  REQUIRE(here != nullptr);
  const RankPlacement place = place_rank(here, allowed_processors(), {}, 1);
  CHECK(!place.cores.empty());
  CHECK(place.node_cores >= static_cast<int>(place.cores.size()));
}

TEST_CASE("placement: a rank a chiplet is right, with and without hardware threads") {
  CHECK(placement_remarks(in_blocks(24, 12, 12)).empty());
  auto ranks = in_blocks(24, 12, 12);
  for (int rank = 0; rank < 24; ++rank) {
    Numbers both = range(12 * rank, 12 * rank + 12);
    const Numbers second = range(kCores + 12 * rank, kCores + 12 * rank + 12);
    both.insert(both.end(), second.begin(), second.end());
    ranks[static_cast<size_t>(rank)] = on_big_node(both, 12);
  }
  CHECK(placement_remarks(ranks).empty());
}

TEST_CASE("placement: ranks on the same cores while others are free") {
  const std::string all = only_remark(std::vector(24, on_big_node(range(0, 12), 12)), Kind::kWarning);
  CHECK(contains(all, "same cores (ranks 0-23): 288 threads on 12 cores of n1, while 276 of its 288 are free"));
  CHECK(contains(all, "srun --cpus-per-task=12 --cpu-bind=cores"));
  CHECK(contains(all, "mpirun --map-by slot:PE=12 --bind-to core"));
  // Partly, and by the other hardware threads of the same cores.
  auto ranks = in_blocks(4, 12, 12);
  ranks[1] = on_big_node(range(6, 18), 12);
  ranks[3] = on_big_node(range(24 + kCores, 36 + kCores), 12);
  const std::string some = only_remark(ranks, Kind::kWarning);
  CHECK(contains(some, "same cores (ranks 0-3): 24 threads on 18 cores of n1, while 258 of its 288 are free"));
}

TEST_CASE("placement: the same cores of another node are other cores") {
  auto ranks = in_blocks(2, 12, 12);
  ranks[1] = ranks[0];
  ranks[1].node = 1;
  CHECK(placement_remarks(ranks).empty());
}

TEST_CASE("placement: threads over two sockets") {
  const std::string unbound = only_remark(std::vector(24, on_big_node(range(0, kCores), 12)), Kind::kWarning);
  CHECK(contains(unbound, "several sockets (ranks 0-23): they may run on 2 of them"));
  CHECK(contains(unbound, "srun --cpus-per-task=12 --cpu-bind=cores"));
  const std::string wide = only_remark({on_big_node(range(138, 150), 12)}, Kind::kWarning);
  CHECK(contains(wide, "several sockets (rank 0)"));
}

TEST_CASE("placement: more threads than cores, of one rank and of all") {
  const std::string own = only_remark(in_blocks(24, 1, 12), Kind::kWarning);
  CHECK(contains(own, "in a rank (ranks 0-23): 12 threads on 1 core each; give --threads 1, or bind"));
  const std::string full = only_remark(std::vector(24, on_big_node(range(0, kCores), 24)), Kind::kWarning);
  CHECK(contains(full, "more threads than cores (ranks 0-23): 576 threads on 288 cores of n1; give --threads 12"));
}

TEST_CASE("placement: cores that ranks have in common are shared out evenly") {
  CHECK(shared_out_threads(in_blocks(24, 12, 1)) == std::vector(24, 12));
  CHECK(shared_out_threads(std::vector(24, on_big_node(range(0, kCores), 1))) == std::vector(24, 12));
  // Bound to sockets in turn, as Open MPI does with more than two ranks: 3 ranks on the first, 2 on the second.
  std::vector<RankPlacement> ranks;
  for (int rank = 0; rank < 5; ++rank) {
    const int socket = rank % 2;
    ranks.push_back(on_big_node(range(socket * kCores / 2, (socket + 1) * kCores / 2), 1));
  }
  CHECK(shared_out_threads(ranks) == Numbers{48, 72, 48, 72, 48});
  // Partly the same; narrow ones beside a wide one; more ranks than cores; not known.
  CHECK(shared_out_threads({on_big_node(range(0, 12), 1), on_big_node(range(6, 18), 1)}) == Numbers{9, 9});
  CHECK(shared_out_threads({on_big_node(range(0, 12), 1), on_big_node(range(6, 7), 1)}) == Numbers{6, 1});
  CHECK(shared_out_threads(std::vector(3, on_big_node(range(0, 2), 1))) == Numbers{1, 1, 1});
  CHECK(shared_out_threads({RankPlacement()}) == Numbers{1});
}

TEST_CASE("placement: advice is only to bind what the node has cores for") {
  const std::string text = only_remark(std::vector(36, on_big_node(range(0, kCores / 2), 12)), Kind::kWarning);
  CHECK(contains(text, "more threads than cores (ranks 0-35): 432 threads on 144 cores of n1; give --threads 4"));
}

TEST_CASE("placement: cores that nobody uses are told where nobody asked for so few threads") {
  auto ranks = in_blocks(2, 1, 1);  // as Open MPI binds two ranks
  CHECK(placement_remarks(ranks).empty());
  for (RankPlacement& rank : ranks) {
    rank.is_automatic = true;
  }
  const std::string text = only_remark(ranks, Kind::kNote);
  CHECK(contains(text, "idle cores (ranks 0-1): 286 of the 288 cores of n1 are not used"));
  CHECK(contains(text, "--map-by slot:PE=144 --bind-to core"));
  ranks = in_blocks(24, 12, 12);
  for (RankPlacement& rank : ranks) {
    rank.is_automatic = true;
  }
  CHECK(placement_remarks(ranks).empty());
}

TEST_CASE("placement: memory elsewhere") {
  CHECK(placement_remarks({on_big_node(range(0, 12), 12, {0})}).empty());
  CHECK(placement_remarks({on_big_node(range(0, 12), 12, {})}).empty());  // not known
  const std::string far = only_remark({on_big_node(range(0, 12), 12, {4, 5})}, Kind::kWarning);
  CHECK(
      contains(far, "(rank 0): it comes from NUMA node 4-5, and the cores are those of 0; give srun --mem-bind=local"));
  const std::string partly = only_remark({on_big_node(range(30, 42), 12, {0})}, Kind::kWarning);
  CHECK(contains(partly, "those of 0-1;"));
  // Of two memories near to the same cores (a fast and a large one) either will do.
  const NodeTopology node = made_up("pack:2 [numa(memory=1GB)] [numa(memory=4GB)] core:2 pu:1");
  CHECK(placement_remarks({place_rank(node, {0, 1}, {0}, 2)}).empty());
  CHECK(placement_remarks({place_rank(node, {0, 1}, {1}, 2)}).empty());
  CHECK(contains(only_remark({place_rank(node, {0, 1}, {2}, 2)}, Kind::kWarning), "the cores are those of 0-1;"));
}

TEST_CASE("placement: many ranks on a laptop are told once, without a warning") {
  RankPlacement place = place_rank(made_up("core:2 pu:1"), {0, 1}, {0}, 1);
  place.host = "laptop";
  const std::string text = only_remark(std::vector(16, place), Kind::kNote);
  CHECK(contains(text, "more ranks than cores (ranks 0-15): 16 threads on 2 cores of laptop, in turns"));
  CHECK(placement_remarks(std::vector(2, place)).empty());
  place.threads = 4;
  CHECK(contains(only_remark({place}, Kind::kWarning), "4 threads on 2 cores each; give --threads 2"));
}
