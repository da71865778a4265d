// The board of a node: a file in memory, found by the job's name, and gone once everybody has mapped it.
#include "parallel/comm/node_board.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/host.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr int kCapacity = 4096;
constexpr size_t kHeaderBytes = 4096;
constexpr int kMostTries = 300;
constexpr std::chrono::milliseconds kPauseBetweenTries{10};

static_assert(sizeof(BoardHeader) <= kHeaderBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics must work between processes");

// Of this process alone. Never destroyed, as the board of the node: threads look at it until the end.
struct PrivateBoard {
  BoardSlot slot;
  BoardHeader header;
  Board board{&header, &slot, 1, 0};

  PrivateBoard() { header.joined = 1; }
};

PrivateBoard& private_board() {
  static PrivateBoard* const instance = new PrivateBoard;
  return *instance;
}

std::atomic<const Board*> g_board{nullptr};

struct BoardFile {
  std::mutex mutex;
  std::string path;  // "" once it is gone
};

BoardFile& board_file() {
  static BoardFile* const instance = new BoardFile;
  return *instance;
}

uint64_t random_id() {
  std::random_device device;
  return uint64_t{device()} << 32 | device() | 1;
}

uint64_t hash(std::string_view text, uint64_t start = 0xcbf29ce484222325) {
  uint64_t value = start;
  for (const char c : text)
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

std::string hex(uint64_t value) {
  std::ostringstream out;
  out << std::hex << value;
  return out.str();
}

// Containers may share memory, but not the ids of processes. 0: not known.
uint64_t process_space() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool is_gone(int pid, int64_t start, uint64_t space) {
  return space == process_space() && process_stat(pid).start != start;
}

std::string find_job_name() {
  if (const auto pmix = own_variable("PMIX_NAMESPACE")) return "pmix " + *pmix;
  const auto step = own_variable("SLURM_STEP_ID");
  return step ? "slurm " + own_variable("SLURM_JOB_ID").value_or("") + "." + *step : "";
}

// The launcher's name of the job; "" where it gives none. As own_launch(), it is first asked for before MPI_Init.
const std::string& job_name() {
  static const std::string* const name = new std::string(find_job_name());
  return *name;
}

// What the processes of one launch on one node have in common, and no others. Those that a script starts have other
// parents.
std::string job_key() {
  const std::string& name = job_name();
  return str(geteuid(), " ", host_name(), " ",
             name.empty() ? str("parent ", getppid(), ".", process_stat(getppid()).start) : name);
}

size_t board_bytes() {
  return kHeaderBytes + kCapacity * sizeof(BoardSlot);
}

// A mapped file; null where it cannot be had.
std::byte* map(int fd) {
  void* const at = mmap(nullptr, board_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

// Somebody on it has died: it is of an earlier job of the same name, or this job is about to end.
bool is_stale(const Board& found) {
  for (int i = 0; i < std::min(found.header->joined.load(), found.capacity); ++i) {
    const BoardSlot& slot = found.slots[i];
    if (slot.state.get() == BoardSlot::State::kEnded) return true;
    if (is_gone(slot.pid.get(), slot.start.get(), slot.process_space.get())) return true;
  }
  return false;
}

// Takes a slot; the caller has the file to itself. Memory that is not there is found here, where it is no SIGBUS.
std::optional<Board> take_slot(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return std::nullopt;
  if (status.st_size == 0 && ftruncate(fd, static_cast<off_t>(board_bytes())) != 0) return std::nullopt;
  // Also where it is not new: who made it may not have had the memory.
  if (posix_fallocate(fd, 0, kHeaderBytes) != 0) return std::nullopt;
  std::byte* const memory = map(fd);
  if (memory == nullptr) return std::nullopt;
  auto* const header = reinterpret_cast<BoardHeader*>(memory);
  auto* const slots = reinterpret_cast<BoardSlot*>(memory + kHeaderBytes);
  if (header->id.load() == 0) (new (header) BoardHeader)->id = random_id();
  const int own = header->joined.load();
  const auto begin = static_cast<off_t>(kHeaderBytes + static_cast<size_t>(own) * sizeof(BoardSlot));
  if (own >= kCapacity || posix_fallocate(fd, begin, sizeof(BoardSlot)) != 0) {
    munmap(memory, board_bytes());
    return std::nullopt;
  }
  return Board{header, slots, kCapacity, own};
}

// From here on the own slot is that of `taken`.
void move_to(const Board& taken) {
  BoardSlot& slot = *new (&taken.slots[taken.own]) BoardSlot;
  slot = own_slot();
  slot.state.set(BoardSlot::State::kRunning);
  taken.header->joined.store(taken.own + 1);
  detail::own_slot = &slot;
  g_board = new Board(taken);  // a watchdog may look at the old one: it stays
}

enum class StaleBoard { kReplace, kKeep };

// Joins the board at `path`, which is made where there is none. Does not wait for a process that has been stopped.
bool join_board_at(const std::string& path, StaleBoard stale) {
  for (int i = 0; i < kMostTries; ++i) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (fd < 0) return false;
    bool again = flock(fd, LOCK_EX | LOCK_NB) != 0;
    struct stat status {};
    const bool is_ours = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid();
    again = again || status.st_nlink == 0;
    std::optional<Board> taken;
    if (is_ours && !again) taken = take_slot(fd);
    if (taken && stale == StaleBoard::kReplace && is_stale(*taken)) {
      unlink(path.c_str());
      munmap(taken->header, board_bytes());
      taken.reset();
      again = true;
    }
    if (taken) {
      const std::lock_guard lock(board_file().mutex);
      if (!board_file().path.empty()) unlink(board_file().path.c_str());
      board_file().path = path;
      move_to(*taken);
    } else if (is_ours && !again && status.st_size == 0) {
      unlink(path.c_str());  // made here, without room for it
    }
    flock(fd, LOCK_UN);  // closing does not: the mapping keeps the file open
    close(fd);
    if (taken) return true;
    if (!is_ours || !again) return false;
    std::this_thread::sleep_for(kPauseBetweenTries);
  }
  return false;
}

constexpr std::array<const char*, 2> kFolders = {"/dev/shm", "/tmp"};

std::string file_prefix() {
  return str("vit_hybrid-", geteuid(), "-");
}

std::string file_name(const char* folder, uint64_t number) {
  return str(folder, "/", file_prefix(), hex(number));
}

// Whether nobody is left of those on the board in this file, of which any part may be missing: it is not mapped.
bool is_abandoned(int fd) {
  const auto read_at = [fd](size_t offset, auto& value) {
    return pread(fd, &value, sizeof value, static_cast<off_t>(offset)) == sizeof value;
  };
  int32_t joined = 0;
  if (!read_at(offsetof(BoardHeader, joined), joined)) return false;  // not one yet
  for (int i = 0; i < std::min(joined, kCapacity); ++i) {
    const size_t slot = kHeaderBytes + static_cast<size_t>(i) * sizeof(BoardSlot);
    int32_t pid = 0;
    int64_t start = 0;
    uint64_t space = 0;
    if (!read_at(slot + offsetof(BoardSlot, pid), pid) || !read_at(slot + offsetof(BoardSlot, start), start) ||
        !read_at(slot + offsetof(BoardSlot, process_space), space) || !is_gone(pid, start, space))
      return false;
  }
  return true;
}

// Boards whose processes were killed before they had met.
void remove_abandoned(const char* folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(file_prefix())) continue;
    const int fd = open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    struct stat status {};
    const bool is_ours = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid();
    if (is_ours && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_abandoned(fd)) unlink(entry->path().c_str());
    close(fd);
  }
}

bool is_shared_by(const MpiGroup& node) {
  const auto id = static_cast<int64_t>(board().header->id.load() & 0x7fffffffffffffff);
  const bool is_one = node.min(id) == node.max(id);
  return node.min(is_one && board().header->joined.load() == node.size() ? 1 : 0) == 1;
}

}  // namespace

namespace detail {
std::atomic<BoardSlot*> own_slot{&private_board().slot};
thread_local bool is_main_thread = false;
}  // namespace detail

void BoardWait::show(const OperationNote& note, WaitManner how) {
  operation.set(note.operation);
  axis.set(note.axis);
  bytes.set(note.bytes);
  sequence.set(note.sequence);
  group.set(note.group);
  turn.set(note.turn);
  num_awaited.set(0);
  manner.set(how);
}

void BoardWait::show_awaited(const std::vector<int>& world_ranks) {
  const size_t count = std::min(world_ranks.size(), kMostAwaited);
  for (size_t i = 0; i < count; ++i)
    awaited[i].set(world_ranks[i]);
  num_awaited.set(static_cast<int32_t>(count));
}

std::vector<int> BoardWait::awaited_ranks() const {
  std::vector<int> ranks;
  for (int i = 0; i < num_awaited.get(); ++i)
    ranks.push_back(awaited[static_cast<size_t>(i)].get());
  return ranks;
}

std::string BoardWait::text(const RunPosition& position) const {
  const std::string name = operation.get();
  if (name.empty()) return {};
  return OperationNote{axis.get(), name, bytes.get(), sequence.get(), position}.text();
}

const Board& board() {
  const Board* const joined = g_board.load();
  return joined != nullptr ? *joined : private_board().board;
}

void show_position(const RunPosition& position) {
  if (!is_main_thread()) return;
  BoardSlot& slot = own_slot();
  slot.move();
  slot.step.set(position.step);
  slot.phase.set(position.phase);
}

void join_board(const std::optional<Launch>& launch) {
  detail::is_main_thread = true;
  job_name();
  BoardSlot& slot = own_slot();
  slot.pid.set(getpid());
  slot.start.set(process_stat(getpid()).start);
  slot.process_space.set(process_space());
  slot.rank.set(launch ? launch->rank : 0);
  slot.step.set(-1);
  slot.groups[0].size.set(launch ? launch->num_ranks : 1);
  slot.groups[0].group.set(kLaunchGroup);
  slot.state.set(BoardSlot::State::kRunning);
  if (!launch || launch->num_ranks == 1) return;
  const uint64_t number = hash(job_key());
  for (const char* const folder : kFolders) {
    if (!join_board_at(file_name(folder, number), StaleBoard::kReplace)) continue;
    if (board().own == 0) remove_abandoned(folder);
    return;
  }
}

bool is_board_of_launch() {
  return board().header->id != 0 && (!job_name().empty() || board().header->joined > 1);
}

void meet_on_board(const MpiGroup& node, int world_rank) {
  own_slot().rank.set(world_rank);
  if (node.size() == 1) return remove_board_file();
  if (!is_shared_by(node)) {
    remove_board_file();
    uint64_t number = random_id();
    node.broadcast(&number, sizeof number, 0);
    bool is_met = false;
    for (const char* const folder : kFolders) {
      if (!is_met) is_met = node.min(join_board_at(file_name(folder, number), StaleBoard::kKeep) ? 1 : 0) == 1;
    }
    std::optional<Error> error;
    if (!is_met) {
      error = Error(ErrorClass::kCannotCreate, "the processes of a node can share no memory: neither /dev/shm nor /tmp",
                    "make room in one of them");
    }
    agree(node, error);
  }
  node.barrier();
  remove_board_file();
}

bool claim_board(int world_rank) {
  int32_t speaker = 0;
  return board().header->claim.compare_exchange_strong(speaker, world_rank + 1) || speaker == world_rank + 1;
}

bool board_has_come_to(uint64_t launch_turn) {
  const Board& all = board();
  const int num_processes = std::min(all.header->joined.load(), all.capacity);
  return std::all_of(all.slots, all.slots + num_processes, [&](const BoardSlot& slot) {
    return slot.groups[0].turn.get() >= launch_turn || slot.state.get() == BoardSlot::State::kEnded ||
           is_gone(slot.pid.get(), slot.start.get(), slot.process_space.get());
  });
}

void leave_board() {
  own_slot().state.set(BoardSlot::State::kEnded);
}

void remove_board_file() {
  const std::lock_guard lock(board_file().mutex);
  if (board_file().path.empty()) return;
  unlink(board_file().path.c_str());
  board_file().path.clear();
}

WatchedGroup::WatchedGroup(std::vector<int> world_ranks) : world_ranks_(std::move(world_ranks)) {
  if (world_ranks_.size() < 2) return;
  auto& turns = own_slot().groups;
  const auto* const free =
      std::find_if(turns.begin() + 1, turns.end(), [](const BoardTurn& turn) { return turn.group.get() == 0; });
  const std::string_view bytes(reinterpret_cast<const char*>(world_ranks_.data()), world_ranks_.size() * sizeof(int));
  static std::map<uint64_t, uint64_t>* const made = new std::map<uint64_t, uint64_t>;
  const uint64_t members = hash(bytes);
  const uint64_t number = ++(*made)[members];  // of the groups of these ranks
  if (free == turns.end()) return;
  id_ = hash(hex(number), members) | 2;  // neither 0 nor kLaunchGroup
  index_ = static_cast<size_t>(free - turns.begin());
  turns[index_].turn.set(0);
  turns[index_].made.set(0);
  turns[index_].axis.set(0);
  turns[index_].size.set(static_cast<int32_t>(world_ranks_.size()));
  turns[index_].group.set(id_);
}

WatchedGroup::~WatchedGroup() {
  if (id_ != 0) own_slot().groups[index_].group.set(0);
}

void WatchedGroup::set_axis(const std::string& name) {
  if (id_ != 0) own_slot().groups[index_].axis.set(hash(name));
}

std::vector<int> WatchedGroup::to_world(std::vector<int> ranks) const {
  for (int& rank : ranks)
    rank = world_rank(rank);
  return ranks;
}

uint64_t WatchedGroup::next_turn(std::string_view operation) {
  ++turn_;
  if (id_ == 0) return turn_;
  BoardTurn& shown = own_slot().groups[index_];
  shown.made_before.set(shown.made.get());
  shown.made.set(hash(operation));
  shown.turn.set(turn_);
  return turn_;
}

OperationNote launch_note(const char* operation, uint64_t turn) {
  own_slot().groups[0].turn.set(turn);
  OperationNote note{"", operation, 0, 0, run_position()};
  note.group = kLaunchGroup;
  note.turn = turn;
  return note;
}

}  // namespace vit_hybrid::comm
