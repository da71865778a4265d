// TransportOptions: how a communicator moves bytes; the results do not depend on them.
#pragma once

#include <cstdint>

namespace vit_hybrid::comm {

/// How collectives of host tensors travel. kAuto: shared memory where all ranks of the group are on
/// one node and enough of it is free, else messages.
enum class HostPath { kAuto, kMessages, kSharedMemory };

/// The same on all ranks of a group.
struct TransportOptions {
  HostPath host_path = HostPath::kAuto;
  /// Longer messages are sent in pieces (MPI counts are ints); a multiple of 8.
  int64_t max_message_bytes = int64_t{1} << 30;
  /// Memory in which a rank receives what it reduces; bounds the bytes in flight.
  int64_t staging_bytes = int64_t{4} << 20;
  /// Size of one of the slots of a rank in shared memory; a multiple of 64.
  int64_t slot_bytes = int64_t{128} << 10;
  /// How long NCCL may take to connect a group.
  double connection_seconds = 600.0;
  /// Whether NCCL connects neighbours on the ring of ranks for exchange() at the start; other pairs, and all of them
  /// otherwise, when they first meet.
  bool connects_neighbours = true;
};

}  // namespace vit_hybrid::comm
