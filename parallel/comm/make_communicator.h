// make_communicator(): which back end moves the bytes of a group, and the one of a group of one.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/communicator_base.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/instruction_sets.h"

namespace vit_hybrid::comm {

/// How collectives of host tensors travel. kAuto: the ranks of a node meet in shared memory, and one of them speaks
/// with other nodes; by messages of every rank where too little of it is free, or where the group spans nodes and
/// `sum_blocks` are not they. kSharedMemory is for groups on one node.
enum class HostPath { kAuto, kMessages, kSharedMemory };

/// The same on all ranks of a group.
struct TransportOptions {
  HostPath host_path = HostPath::kAuto;
  /// Longer messages are sent in pieces (MPI counts are ints); a multiple of 8.
  int64_t max_message_bytes = int64_t{1} << 30;
  /// Size of one of the slots of a rank in shared memory, through which collectives go in rounds; a multiple of 64. On
  /// one node they are to stay in its caches.
  int64_t slot_bytes = int64_t{128} << 10;
  /// Of a group that spans nodes, where a round has messages, which only move on when a rank looks after them (once an
  /// operation of a layer): as much as TCP carries meanwhile. Halved, down to the former, where memory is short.
  int64_t slot_bytes_between_nodes = int64_t{2} << 20;
  /// What ranks put into each other's slots goes past the caches, to memory. Cores that share no cache get a line that
  /// another has just written five times slower than from memory; others get it somewhat faster.
  bool slots_past_caches = is_amd_processor();
  /// More nodes exchange the parts of a sum in two steps (NodeSteps).
  int most_nodes_in_one_step = 15;
  /// The blocks of every sum on host back ends, as runs of consecutive ranks: values are added in rank order inside of
  /// a block, and those of the blocks by a balanced tree (reduce_in_blocks). Empty: the nodes.
  std::vector<int> sum_blocks;
  /// How many consecutive ranks each node has, as it is, or as a test on one machine pretends; empty: the ranks find
  /// out.
  std::vector<int> nodes;
  /// How long NCCL may take to connect a group.
  double connection_seconds = 600.0;
  /// Size of the largest of NCCL's first operations, by which it connects the ranks of a group for all sizes up to it.
  int64_t warm_up_bytes = int64_t{25} << 20;
  /// Most blocks (CTAs) of a GPU that NCCL takes for the group; 0: as many as it likes.
  int most_blocks = 0;
  /// Whether NCCL connects neighbours on the ring of ranks for exchange() at the start; other pairs, and all of them
  /// otherwise, when they first meet.
  bool connects_neighbours = true;
};

/// The longest all_reduce or reduce_scatter of host tensors that a group makes.
struct LongestSum {
  bool scatters = false;  ///< a reduce_scatter
  int64_t elements = 0;   ///< of the larger tensor
  int64_t element_bytes = 1;
};

/// Bytes of a process's own memory (MemoryClass::kCommunication) that `rank` comes to hold for collectives of host
/// tensors of a group of two and more ranks: its slots where it is alone on its node, and what other nodes send it in
/// the rounds that it leads. `options` have the group's nodes and, unless they are these, blocks; shared memory is
/// taken to be there. Pure.
int64_t host_group_bytes(int rank, const TransportOptions& options, const LongestSum& longest);

/// How many ranks of its node, itself among them, `rank` of such a group has in common what share() is told of. Pure.
int num_sharing_ranks(int rank, const TransportOptions& options);

/// Warns, once and on rank 0, where tensors of shareable_zeros() that were to be shared are not, on any rank: which,
/// and why; unshared() says it on all of them. Collective.
void warn_of_unshared(const MpiGroup& world);

class SelfCommunicator final : public CommunicatorBase {
 public:
  SelfCommunicator(std::string axis, at::DeviceType device_type)
      : CommunicatorBase(std::move(axis), 0, 1, device_type, nullptr) {}

  std::string back_end() const override { return "self"; }

 private:
  Started start_all_reduce(const at::Tensor& /*tensor*/, ReduceOp /*op*/, const Work::State* /*first*/) override {
    return nullptr;
  }
  Started start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp /*op*/) override {
    copy_values(output, input);
    return nullptr;
  }
  Started start_all_gather(const at::Tensor& output, const at::Tensor& input) override {
    copy_values(output, input);
    return nullptr;
  }
  Started start_broadcast(const at::Tensor& /*tensor*/, int /*root*/) override { return nullptr; }
  Started start_exchange(std::vector<Transfer> transfers) override {
    VH_ASSERT(transfers.empty(), "a group of one has no other ranks");
    return nullptr;
  }
  Started start_barrier() override { return nullptr; }
};

/// Communicator of `group` (which it keeps) for tensors on `device`: self for a group of one, MPI
/// for host tensors, NCCL for CUDA tensors. `world` is the communicator of a larger group for the
/// same device, of which NCCL splits the new one off; null makes one from scratch. Throws
/// Error(kUsage) for a CUDA device in a program built without it. Collective over `world` if given,
/// else over `group`.
std::unique_ptr<Communicator> make_communicator(const std::string& axis, MpiGroup group, c10::Device device,
                                                Communicator* world = nullptr, const TransportOptions& options = {});

/// Version of NCCL ("2.28.9"), or "" in a program without it.
std::string nccl_version();

}  // namespace vit_hybrid::comm
