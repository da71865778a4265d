// MpiGroup: ownership of an MPI communicator, and its small blocking control messages.
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/mpi/mpi_handle.h"

#include <sched.h>

#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include "parallel/comm/communicator.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr const char* kBuilding = "building of a group";
constexpr int64_t kMaxControlBytes = int64_t{1} << 30;

std::unique_ptr<MpiGroup::Handle> own(MPI_Comm comm) {
  // Errors come back as codes, so that they become one message of ours.
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  auto handle = std::make_unique<MpiGroup::Handle>();
  handle->comm = comm;
  return handle;
}

constexpr const char* kAxis = "control";

// Waits without keeping the core from other ranks (a blocking call of MPI may spin), and with progress for operations
// in flight. start(&request) starts a non-blocking call; `call` is its name.
template <class Start>
void complete(BlockedScope& blocked, const char* call, Start start) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(start(&request), call);
  int is_complete = 0;
  for (Waiting waiting; is_complete == 0; waiting.pause()) {
    blocked.look();
    check_mpi(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE), call);
    progress();
  }
}

// A collective call, as complete() takes it.
template <class Start>
void wait_for(const MpiGroup& group, const char* operation, int64_t bytes, const char* call, Start start) {
  CollectiveScope scope(*group.watched(), kAxis, operation, bytes);
  complete(scope.blocked(), call, start);
}

// The same for a message to or from `peer`.
template <class Start>
void wait_for_message(const MpiGroup& group, const char* operation, int64_t bytes, int peer, const char* call,
                      Start start) {
  VH_ASSERT(bytes >= 0 && bytes <= kMaxControlBytes, str("a control message of ", bytes, " bytes"));
  const OperationNote note{kAxis, operation, bytes, 0, run_position(), group.watched()->id()};
  BlockedScope blocked(note);
  blocked.awaits({group.watched()->world_rank(peer)});
  complete(blocked, call, start);
}

void meet(const MpiGroup& group, const char* operation) {
  wait_for(group, operation, 0, "MPI_Ibarrier",
           [&](MPI_Request* request) { return MPI_Ibarrier(mpi_comm(group), request); });
}

// make(&comm) makes a communicator of ranks of `group`; `call` is its name.
template <class Make>
MpiGroup build(const MpiGroup& group, const char* call, Make make) {
  meet(group, kBuilding);
  const CollectiveScope scope(*group.watched(), kAxis, kBuilding);
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(make(&comm), call);
  return MpiGroup(own(comm));
}

void reduce(const MpiGroup& group, void* values, size_t count, MPI_Datatype type, MPI_Op op) {
  wait_for(group, "agreement", static_cast<int64_t>(count * sizeof(int64_t)), "MPI_Iallreduce",
           [&](MPI_Request* request) {
             return MPI_Iallreduce(MPI_IN_PLACE, values, static_cast<int>(count), type, op, mpi_comm(group), request);
           });
}

int64_t reduce(const MpiGroup& group, int64_t value, MPI_Op op) {
  reduce(group, &value, 1, MPI_INT64_T, op);
  return value;
}

int g_node = -1;  // lowest world rank of the node, once known

// The cores that the ranks of a node may use together, against the number of the ranks.
void choose_manner_of_waiting(const MpiGroup& node) {
  const CollectiveScope scope(*node.watched(), kAxis, "counting of cores");
  cpu_set_t own;
  cpu_set_t all;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof own, &own);
  check_mpi(MPI_Allreduce(&own, &all, sizeof all, MPI_BYTE, MPI_BOR, mpi_comm(node)), "MPI_Allreduce");
  const bool crowded = CPU_COUNT(&all) > 0 && node.size() > CPU_COUNT(&all);
  Waiting::set_manner(crowded ? Waiting::Manner::kSleep : Waiting::Manner::kYield);
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorClass::kIo, str(call, " failed: ", std::string(text, length)),
              "see the network's and the MPI library's messages");
}

std::vector<int> world_ranks(MPI_Comm comm) {
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &members), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  int size = 0;
  check_mpi(MPI_Group_size(members, &size), "MPI_Group_size");
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<int> out(ranks.size());
  check_mpi(MPI_Group_translate_ranks(members, size, ranks.data(), world, out.data()), "MPI_Group_translate_ranks");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  return out;
}

bool may_release_mpi() noexcept {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0 && std::uncaught_exceptions() == 0;
}

MpiGroup::MpiGroup(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {
  check_mpi(MPI_Comm_rank(handle_->comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(handle_->comm, &size_), "MPI_Comm_size");
  watched_ = std::make_shared<WatchedGroup>(world_ranks(handle_->comm));
}

MpiGroup::MpiGroup(MpiGroup&&) noexcept = default;

MpiGroup& MpiGroup::operator=(MpiGroup&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(watched_, other.watched_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  return *this;
}

MpiGroup::~MpiGroup() {
  if (handle_ != nullptr && may_release_mpi()) MPI_Comm_free(&handle_->comm);
}

MpiGroup MpiGroup::world() {
  // Calls that name no communicator (MPI_Testall) take the handler of one of these, depending on the MPI library.
  for (MPI_Comm predefined : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
    check_mpi(MPI_Comm_set_errhandler(predefined, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  MPI_Comm comm = MPI_COMM_NULL;
  {
    const OperationNote note{"control", kBuilding, 0, 0, run_position()};
    const BlockedScope blocked(note);
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  }
  MpiGroup group(own(comm));
  if (g_node < 0) {
    const MpiGroup node = group.split_by_node();
    choose_manner_of_waiting(node);
    g_node = group.rank();
    node.broadcast(&g_node, sizeof g_node, 0);
  }
  return group;
}

MpiGroup MpiGroup::duplicate() const {
  return build(*this, "MPI_Comm_dup", [&](MPI_Comm* comm) { return MPI_Comm_dup(handle_->comm, comm); });
}

MpiGroup MpiGroup::split(int color) const {
  VH_ASSERT(color >= 0, str("color ", color));
  return build(*this, "MPI_Comm_split",
               [&](MPI_Comm* comm) { return MPI_Comm_split(handle_->comm, color, rank_, comm); });
}

MpiGroup MpiGroup::split_by_node() const {
  return build(*this, "MPI_Comm_split_type", [&](MPI_Comm* comm) {
    return MPI_Comm_split_type(handle_->comm, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, comm);
  });
}

bool MpiGroup::is_on_one_node() const {
  VH_ASSERT(g_node >= 0, "a group without MpiGroup::world()");
  return min(g_node) == max(g_node);
}

void MpiGroup::barrier() const {
  meet(*this, "barrier");
}

void MpiGroup::broadcast(void* data, int64_t bytes, int root) const {
  VH_ASSERT(bytes >= 0 && bytes <= kMaxControlBytes, str("a control message of ", bytes, " bytes"));
  wait_for(*this, "broadcast", bytes, "MPI_Ibcast", [&](MPI_Request* request) {
    return MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, root, handle_->comm, request);
  });
}

std::string MpiGroup::broadcast(std::string text, int root) const {
  auto size = static_cast<int64_t>(text.size());
  broadcast(&size, sizeof size, root);
  text.resize(static_cast<size_t>(size));
  broadcast(text.data(), size, root);
  return text;
}

int64_t MpiGroup::min(int64_t value) const {
  return reduce(*this, value, MPI_MIN);
}
int64_t MpiGroup::max(int64_t value) const {
  return reduce(*this, value, MPI_MAX);
}
int64_t MpiGroup::sum(int64_t value) const {
  return reduce(*this, value, MPI_SUM);
}
void MpiGroup::min(std::vector<int64_t>& values) const {
  reduce(*this, values.data(), values.size(), MPI_INT64_T, MPI_MIN);
}
void MpiGroup::sum(std::vector<uint64_t>& values) const {
  reduce(*this, values.data(), values.size(), MPI_UINT64_T, MPI_SUM);
}
void MpiGroup::sum(std::vector<double>& values) const {
  reduce(*this, values.data(), values.size(), MPI_DOUBLE, MPI_SUM);
}

std::vector<int64_t> MpiGroup::all_gather(int64_t value) const {
  std::vector<int64_t> values(static_cast<size_t>(size_));
  wait_for(*this, "all_gather", size_ * int64_t{sizeof value}, "MPI_Iallgather", [&](MPI_Request* request) {
    return MPI_Iallgather(&value, 1, MPI_INT64_T, values.data(), 1, MPI_INT64_T, handle_->comm, request);
  });
  return values;
}

std::vector<std::string> MpiGroup::all_gather(const std::string& text) const {
  const std::vector<int64_t> sizes = all_gather(static_cast<int64_t>(text.size()));
  std::vector<int> counts;
  std::vector<int> starts;
  int64_t total = 0;
  for (const int64_t size : sizes) {
    counts.push_back(static_cast<int>(size));
    starts.push_back(static_cast<int>(total));
    total += size;
    VH_ASSERT(total <= std::numeric_limits<int>::max(), str("texts of ", total, " bytes"));
  }
  std::string all(static_cast<size_t>(total), ' ');
  wait_for(*this, "all_gather", total, "MPI_Iallgatherv", [&](MPI_Request* request) {
    return MPI_Iallgatherv(text.data(), static_cast<int>(text.size()), MPI_BYTE, all.data(), counts.data(),
                           starts.data(), MPI_BYTE, handle_->comm, request);
  });
  std::vector<std::string> texts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    texts.push_back(all.substr(static_cast<size_t>(starts[i]), static_cast<size_t>(counts[i])));
  }
  return texts;
}

void MpiGroup::send(const void* data, int64_t bytes, int to) const {
  wait_for_message(*this, "send", bytes, to, "MPI_Isend", [&](MPI_Request* request) {
    return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, 0, handle_->comm, request);
  });
}

void MpiGroup::receive(void* data, int64_t bytes, int from) const {
  wait_for_message(*this, "receive", bytes, from, "MPI_Irecv", [&](MPI_Request* request) {
    return MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, 0, handle_->comm, request);
  });
}

}  // namespace vit_hybrid::comm
