// The board of a node: what the main thread of each process tells of itself, in memory that all processes share.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/launcher.h"
#include "parallel/comm/operation.h"

namespace vit_hybrid::comm {

class MpiGroup;

/// A short text that others read while it may change: then they see a mixture, which the next look mends.
template <size_t num_words>
class BoardText {
 public:
  BoardText& operator=(const BoardText& other) {
    set(other.get());
    return *this;
  }
  void set(std::string_view text) {
    std::array<uint64_t, num_words> words{};
    std::memcpy(words.data(), text.data(), std::min(text.size(), num_words * sizeof(uint64_t) - 1));
    for (size_t i = 0; i < num_words; ++i)
      words_[i].store(words[i], std::memory_order_relaxed);
  }
  std::string get() const {
    std::array<char, num_words * sizeof(uint64_t)> chars{};
    for (size_t i = 0; i < num_words; ++i) {
      const uint64_t word = words_[i].load(std::memory_order_relaxed);
      std::memcpy(&chars[i * sizeof word], &word, sizeof word);
    }
    return {chars.data(), strnlen(chars.data(), chars.size())};
  }

 private:
  std::array<std::atomic<uint64_t>, num_words> words_{};
};

/// A number with one writer.
template <class T>
class BoardNumber {
 public:
  BoardNumber& operator=(const BoardNumber& other) {
    set(other.get());
    return *this;
  }
  T get() const { return value_.load(std::memory_order_relaxed); }
  void set(T value) { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{};
};

/// How a main thread waits: in a loop of ours, whose looks prove that it runs; in a call of a library; or not at all,
/// but an operation is in flight on its device.
enum class WaitManner : int32_t { kNone, kLooking, kBlind, kDevice };

/// An operation that a process waits for.
struct BoardWait {
  static constexpr size_t kMostAwaited = 8;

  BoardNumber<WaitManner> manner;  ///< kNone: nothing now; the rest is of the last one
  BoardText<6> operation;
  BoardText<3> axis;
  BoardNumber<int64_t> bytes;
  BoardNumber<uint64_t> sequence;
  BoardNumber<uint64_t> group;
  BoardNumber<uint64_t> turn;
  BoardNumber<int32_t> num_awaited;
  std::array<BoardNumber<int32_t>, kMostAwaited> awaited;  ///< world ranks, where it is known whom it waits for

  void show(const OperationNote& note, WaitManner how);
  void show_awaited(const std::vector<int>& world_ranks);
  std::vector<int> awaited_ranks() const;
  /// Its name, at `position`.
  std::string text(const RunPosition& position) const;
};

/// A group of which the process is a member, and how many of its collectives it has begun.
struct BoardTurn {
  BoardNumber<uint64_t> group;  ///< 0: free
  BoardNumber<uint64_t> turn;
  BoardNumber<uint64_t> made;         ///< of the name of the last one, the same for all of that name
  BoardNumber<uint64_t> made_before;  ///< and of the one before
  BoardNumber<uint64_t> axis;         ///< of its name, the same in all groups of the axis; 0: none
  BoardNumber<int32_t> size;
};

/// Of one process. Each number has one writer: the main thread, or for `in_flight` the watchdog's.
struct BoardSlot {
  static constexpr size_t kMostGroups = 64;
  enum class State : int32_t { kFree, kRunning, kEnded };

  alignas(64) BoardNumber<State> state;
  BoardNumber<int32_t> pid;
  BoardNumber<int64_t> start;           ///< of the process, in ticks since the boot
  BoardNumber<uint64_t> process_space;  ///< in which `pid` is its name; 0: not known
  BoardNumber<int32_t> rank;            ///< in the world
  /// How often the main thread has come further, and how often it has looked while it waited.
  alignas(64) BoardNumber<uint64_t> moves;
  BoardNumber<uint64_t> looks;
  BoardNumber<int64_t> step;
  BoardText<4> phase;
  BoardWait wait;
  BoardWait in_flight;
  std::array<BoardTurn, kMostGroups> groups;

  /// Comes before the change that it tells of: whoever has seen that change then sees this too in moves_since().
  void move() {
    moves.set(moves.get() + 1);
    std::atomic_thread_fence(std::memory_order_release);
  }
  uint64_t moves_since() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return moves.get();
  }
  void look() { looks.set(looks.get() + 1); }
};

/// What all processes of the node share besides their slots.
struct BoardHeader {
  std::atomic<uint64_t> id{0};         ///< random: two boards differ in it
  std::atomic<int32_t> joined{0};      ///< slots in use
  std::atomic<int32_t> claim{0};       ///< of the one message of a failure: 1 + the world rank that may speak
  std::atomic<int32_t> asker{0};       ///< 1 + slot of the process that asks the other nodes
  std::atomic<uint64_t> questions{0};  ///< from nodes of lower numbers
  std::atomic<int32_t> told{0};        ///< the message is out, or another node tells it
};

/// A board that this process has joined, or one of its own.
struct Board {
  BoardHeader* header;
  BoardSlot* slots;
  int capacity;
  int own;  ///< index of the own slot
};

/// The board of this process; of its own until it has joined one. From any thread.
const Board& board();

namespace detail {
extern std::atomic<BoardSlot*> own_slot;
extern thread_local bool is_main_thread;
}  // namespace detail

inline BoardSlot& own_slot() {
  return *detail::own_slot.load(std::memory_order_relaxed);
}
/// Whether the caller is the thread that has joined the board.
inline bool is_main_thread() {
  return detail::is_main_thread;
}

/// Where the run is, if the caller is the main thread.
void show_position(const RunPosition& position);

/// The first thing that a process does: it makes the calling thread the main thread, and joins the board that the
/// processes of this launch share on this node, which is found by the launcher's name of the job. Where there is none
/// (no launcher that is known, no shared memory) it stays alone until meet_on_board().
void join_board(const std::optional<Launch>& launch);

/// Whether who has not joined the board has not come to its start: not where processes of the launch may have found
/// another one.
bool is_board_of_launch();

/// From here on all processes of `node` share one board, whose file is gone; `world_rank` is the caller's. Error(kIo),
/// agreed, where they can share no memory. Collective over `node`.
void meet_on_board(const MpiGroup& node, int world_rank);

/// Whether `world_rank` may speak for those of this board: the first that asks, as often as it asks. From any thread.
bool claim_board(int world_rank);

/// Whether all processes of this board have come to that turn of kLaunchGroup, have left it, or are gone.
bool board_has_come_to(uint64_t launch_turn);

/// The process waits for nobody any more, and nobody for it.
void leave_board();

/// Removes the board's file, if it still has one: at the end of a job that fails early. From any thread.
void remove_board_file();

/// A group as the watchdogs know it: by an id that is the same on all of its ranks, without a message. Groups of one
/// rank, and those for which the slot has no room, are not listed.
class WatchedGroup {
 public:
  /// To be made by all ranks of the group, groups of equal ranks in the same order.
  explicit WatchedGroup(std::vector<int> world_ranks);
  ~WatchedGroup();
  WatchedGroup(const WatchedGroup&) = delete;
  WatchedGroup& operator=(const WatchedGroup&) = delete;

  uint64_t id() const { return id_; }
  /// It is the group of a communicator of that axis.
  void set_axis(const std::string& name);
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  std::vector<int> to_world(std::vector<int> ranks) const;
  /// Begins a collective: its number, from 1.
  uint64_t next_turn(std::string_view operation);

 private:
  std::vector<int> world_ranks_;
  uint64_t id_ = 0;
  size_t index_ = 0;
  uint64_t turn_ = 0;
};

/// The group of all processes between start and end of MPI, whose turns are MPI_Init, MPI_Finalize and what is behind
/// it.
inline constexpr uint64_t kLaunchGroup = 1;
inline constexpr uint64_t kInitTurn = 1;
inline constexpr uint64_t kFinalizeTurn = 2;
inline constexpr uint64_t kEndTurn = 3;
/// Note of a turn of kLaunchGroup, which it begins.
OperationNote launch_note(const char* operation, uint64_t turn);

}  // namespace vit_hybrid::comm
