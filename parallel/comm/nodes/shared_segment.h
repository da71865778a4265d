// SharedSegment: memory that the ranks of a node share, and the slots in it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

/// One region of equal size for each rank of a group whose processes share memory; regions are
/// zeroed and aligned to cache lines. Not part of ATen's memory, but where the group has one rank, whose memory nobody
/// shares.
class SharedSegment {
 public:
  /// Collective over `node`, which must lie on one node.
  SharedSegment(const MpiGroup& node, int64_t bytes_per_rank);
  /// Collective, except while an exception unwinds or after MpiSession::finalize().
  ~SharedSegment();
  SharedSegment(SharedSegment&&) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;

  /// Region of `rank`, as mapped in this process.
  std::byte* region(int rank) const;

 private:
  struct Window;
  std::unique_ptr<Window> window_;
};

/// Bytes free where MPI libraries keep shared memory (/dev/shm); the largest number if not known.
int64_t free_shared_memory();

/// Each rank has kNumSlots slots and four counters. In round n every rank puts a block into a slot n % kNumSlots, its
/// own or its place in another one (entered), may reduce its share of all blocks there (reduced), the round's leader
/// may exchange what came of it with other nodes (led), and every rank takes what it needs from the slots (left). Slots
/// are free again when all ranks have left the round that used them. Counters only grow, each is written by its own
/// rank, and nothing here blocks.
class SharedSlots {
 public:
  static constexpr int kNumSlots = 4;

  /// Slots of `slot_bytes` (a multiple of 64, at least 8 for each rank). Collective over `group`, which must lie on one
  /// node.
  SharedSlots(const MpiGroup& group, int64_t slot_bytes);

  /// Bytes of shared memory of one rank.
  static int64_t bytes_per_rank(int64_t slot_bytes);

  int rank() const { return rank_; }
  int size() const { return size_; }
  int64_t slot_bytes() const { return slot_bytes_; }

  /// First round that no operation has used yet; operations take theirs in the same order everywhere.
  uint64_t next_round() const { return next_round_; }
  void take_rounds(int64_t rounds) { next_round_ += static_cast<uint64_t>(rounds); }

  /// Slot of `rank` in `round`.
  char* slot(int rank, uint64_t round) const;

  /// True if the slots of `round` may be filled.
  bool may_enter(uint64_t round) const;
  /// The own block is in its slot. `signature` says for which operation; it must be the same on all ranks.
  void enter(uint64_t round, uint64_t signature);
  bool all_entered(uint64_t round) const;
  void mark_reduced(uint64_t round);
  bool all_reduced(uint64_t round) const;
  /// The rank that speaks for the others in `round`: they take turns.
  int leader(uint64_t round) const { return leader(round, size_); }
  /// The same of another node, which has so many ranks.
  static int leader(uint64_t round, int num_ranks) {
    return static_cast<int>(round % static_cast<uint64_t>(num_ranks));
  }
  /// By the leader of `round`, and of its earlier ones.
  void mark_led(uint64_t round);
  bool is_led(uint64_t round) const;
  /// The slots of `round` are no longer needed here.
  void leave(uint64_t round);

  /// Signature of `rank` in `round`, after it has entered.
  uint64_t signature(int rank, uint64_t round) const;
  /// Ranks that keep `round` from being led or left: that have not entered it or, if all have and they must `reduce`,
  /// not reduced their share; else those that keep its slots from being used again.
  std::vector<int> missing(uint64_t round, bool reduce) const;

 private:
  struct Control;
  using Counter = std::atomic<uint64_t> Control::*;
  bool all_at_least(Counter counter, uint64_t value) const;
  std::vector<int> below(Counter counter, uint64_t value) const;

  int rank_;
  int size_;
  int64_t slot_bytes_;
  SharedSegment segment_;
  std::vector<Control*> controls_;
  uint64_t next_round_ = 0;
};

}  // namespace vit_hybrid::comm
