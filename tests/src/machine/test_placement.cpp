// The placement of ranks on made-up nodes: what is right goes unmentioned, and each mistake has its line.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "src/base/host.h"
#include "src/base/text.h"
#include "src/machine/placement.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using testing::contains;

namespace {

using Numbers = std::vector<int>;
using Kind = PlacementRemark::Kind;

constexpr int kCores = 288;
constexpr int kSockets = 2;
constexpr int kMemories = 8;

Numbers range(int begin, int end) {
  Numbers numbers(static_cast<size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text << "\n";
}

// The files of a node with 2 x 144 cores of 2 hardware threads, core c having processors c and c + 288, and 4 NUMA
// nodes a socket.
NodeTopology big_node() {
  static const NodeTopology topology = [] {
    const testing::ScratchFolder folder;
    const std::string root = folder.path();
    write(root + "/cpu/online", str("0-", 2 * kCores - 1));
    for (int number = 0; number < 2 * kCores; ++number) {
      const int core = number % kCores;
      const std::string at = str(root, "/cpu/cpu", number, "/topology/");
      write(at + "thread_siblings_list", str(core, ",", core + kCores));
      write(at + "physical_package_id", str(core / (kCores / kSockets)));
    }
    write(root + "/node/online", str("0-", kMemories - 1));
    write(root + "/node/has_memory", str("0-", kMemories - 1));
    for (int node = 0; node < kMemories; ++node) {
      const int first = node * kCores / kMemories;
      const int last = first + kCores / kMemories - 1;
      write(str(root, "/node/node", node, "/cpulist"), str(first, "-", last, ",", first + kCores, "-", last + kCores));
    }
    return read_topology(root);
  }();
  return topology;
}

RankPlacement on_big_node(const Numbers& processors, int threads, const Numbers& memories = range(0, kMemories)) {
  RankPlacement place = place_rank(big_node(), processors, memories, threads);
  place.host = "n1";
  place.node_cores = kCores;
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

TEST_CASE("placement: the kernel's lists of numbers") {
  CHECK(parse_number_list("0-3,8") == Numbers{0, 1, 2, 3, 8});
  CHECK(parse_number_list("").empty());
  CHECK(number_list({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  CHECK(number_list({}).empty());
}

TEST_CASE("placement: cores, sockets and memories of a node are read") {
  const NodeTopology node = big_node();
  CHECK(node.processors.size() == 2 * kCores);
  CHECK(node.processors.at(300).core == 12);
  CHECK(node.processors.at(300).socket == 0);
  CHECK(node.processors.at(287).socket == 1);
  CHECK(node.processors.at(36).memory == 1);
  CHECK(node.memories == range(0, kMemories));
  CHECK(node.cores_of({5, 293, 6, 4000}) == Numbers{5, 6});
  const RankPlacement place = on_big_node(range(140, 152), 12);
  CHECK(place.sockets == Numbers{0, 1});
  CHECK(place.near_memories == Numbers{3, 4});
}

TEST_CASE("placement: a node without such files is a node that could not be checked") {
  const NodeTopology nothing = read_topology("/nowhere");
  CHECK(nothing.processors.empty());
  RankPlacement place = place_rank(nothing, {0, 1}, {}, 2);
  place.host = "n1";
  CHECK(contains(only_remark({place}, Kind::kNote), "not checked (rank 0): "));
}

TEST_CASE("placement: this machine can be read") {
  const NodeTopology here = read_topology();
  REQUIRE(!here.processors.empty());
  const Numbers cores = here.cores_of(allowed_processors());
  CHECK(!cores.empty());
  const Numbers job = here.cores_of(job_processors(here));
  CHECK(std::includes(job.begin(), job.end(), cores.begin(), cores.end()));
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
}

TEST_CASE("placement: many ranks on a laptop are told once, without a warning") {
  NodeTopology laptop;
  laptop.processors = {{0, {0, 0, 0}}, {1, {1, 0, 0}}};
  laptop.memories = {0};
  RankPlacement place = place_rank(laptop, {0, 1}, {0}, 1);
  place.host = "laptop";
  place.node_cores = 2;
  const std::string text = only_remark(std::vector(16, place), Kind::kNote);
  CHECK(contains(text, "more ranks than cores (ranks 0-15): 16 threads on 2 cores of laptop, in turns"));
  CHECK(placement_remarks(std::vector(2, place)).empty());
  place.threads = 4;
  CHECK(contains(only_remark({place}, Kind::kWarning), "4 threads on 2 cores each; give --threads 2"));
}
