// MpiGroup: ownership of an MPI communicator, the order of the ranks, and small blocking control messages.
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/mpi/mpi_handle.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
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
  CollectiveScope scope(*group.watched(), kControlAxis, operation, bytes);
  complete(scope.blocked(), call, start);
}

// The same for a message to or from `peer`.
template <class Start>
void wait_for_message(const MpiGroup& group, const char* operation, int64_t bytes, int peer, const char* call,
                      Start start) {
  VH_ASSERT(bytes >= 0 && bytes <= kMaxControlBytes, str("a control message of ", bytes, " bytes"));
  const OperationNote note{kControlAxis, operation, bytes, 0, run_position(), group.watched()->id()};
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
  const CollectiveScope scope(*group.watched(), kControlAxis, kBuilding);
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

// Texts of ranks, one behind the other.
class Texts {
 public:
  explicit Texts(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) {
      sizes_.push_back(static_cast<int>(size));
      starts_.push_back(static_cast<int>(total_));
      total_ += size;
      VH_ASSERT(total_ <= std::numeric_limits<int>::max(), str("texts of ", total_, " bytes"));
    }
  }

  int64_t total() const { return total_; }
  const int* sizes() const { return sizes_.data(); }
  const int* starts() const { return starts_.data(); }
  std::vector<std::string> parts_of(const std::string& all) const {
    std::vector<std::string> parts;
    for (size_t i = 0; i < sizes_.size(); ++i)
      parts.push_back(all.substr(static_cast<size_t>(starts_[i]), static_cast<size_t>(sizes_[i])));
    return parts;
  }

 private:
  std::vector<int> sizes_;
  std::vector<int> starts_;
  int64_t total_ = 0;
};

// Nodes are known by their lowest ranks, and ranks are numbered node by node: so what is found at first is kept.
struct NodeOrder {
  int node = -1;            // of this process: the lowest rank of the world that is on it
  std::vector<int> places;  // rank in the world of each rank of MPI_COMM_WORLD; empty: the same
};
std::optional<NodeOrder> g_order;

// Where each rank of the launcher goes, when `node_of` has the lowest of its node for each.
std::vector<int> places_node_by_node(const std::vector<int64_t>& node_of) {
  std::vector<int> ranks(node_of.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return node_of[static_cast<size_t>(a)] < node_of[static_cast<size_t>(b)]; });
  std::vector<int> places(ranks.size());
  for (size_t place = 0; place < ranks.size(); ++place)
    places[static_cast<size_t>(ranks[place])] = static_cast<int>(place);
  return places;
}

// The cores that the ranks of a node may use together, against the number of the ranks.
void choose_manner_of_waiting(const MpiGroup& node) {
  const CollectiveScope scope(*node.watched(), kControlAxis, "counting of cores");
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
  if (g_order && !g_order->places.empty()) {
    for (int& rank : out)
      rank = g_order->places[static_cast<size_t>(rank)];
  }
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
    const OperationNote note{kControlAxis, kBuilding, 0, 0, run_position()};
    const BlockedScope blocked(note);
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  }
  MpiGroup launched(own(comm));
  if (!g_order) {
    const MpiGroup node = launched.split_by_node();
    choose_manner_of_waiting(node);
    int lowest = launched.rank();
    node.broadcast(&lowest, sizeof lowest, 0);
    const std::vector<int64_t> node_of = launched.all_gather(lowest);
    NodeOrder order;
    if (!std::is_sorted(node_of.begin(), node_of.end())) order.places = places_node_by_node(node_of);
    order.node = order.places.empty() ? lowest : order.places[static_cast<size_t>(lowest)];
    g_order = std::move(order);
  }
  if (g_order->places.empty()) return launched;
  const int place = g_order->places[static_cast<size_t>(launched.rank())];
  return build(launched, "MPI_Comm_split",
               [&](MPI_Comm* ordered) { return MPI_Comm_split(mpi_comm(launched), 0, place, ordered); });
}

MpiGroup MpiGroup::alone() {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &comm), "MPI_Comm_dup");
  return MpiGroup(own(comm));
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

std::vector<int> MpiGroup::node_sizes() const {
  VH_ASSERT(g_order, "a group without MpiGroup::world()");
  const std::vector<int64_t> node_of = all_gather(g_order->node);
  VH_ASSERT(std::is_sorted(node_of.begin(), node_of.end()), "a group whose nodes are not consecutive ranks");
  std::vector<int> sizes;
  for (size_t rank = 0; rank < node_of.size(); ++rank) {
    if (rank == 0 || node_of[rank] != node_of[rank - 1]) sizes.push_back(0);
    ++sizes.back();
  }
  return sizes;
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

std::vector<std::string> MpiGroup::broadcast(const std::vector<std::string>& texts, int root) const {
  std::string sizes;
  for (const std::string& text : texts) {
    sizes += str(text.size(), "\n");
  }
  std::istringstream words(broadcast(std::move(sizes), root));
  const std::string joined = broadcast(join(texts, ""), root);
  std::vector<std::string> result;
  size_t begin = 0;
  for (size_t size = 0; words >> size; begin += size) {
    result.push_back(joined.substr(begin, size));
  }
  return result;
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
void MpiGroup::max(std::vector<double>& values) const {
  reduce(*this, values.data(), values.size(), MPI_DOUBLE, MPI_MAX);
}

std::vector<int64_t> MpiGroup::all_gather(int64_t value) const {
  std::vector<int64_t> values(static_cast<size_t>(size_));
  wait_for(*this, "all_gather", size_ * int64_t{sizeof value}, "MPI_Iallgather", [&](MPI_Request* request) {
    return MPI_Iallgather(&value, 1, MPI_INT64_T, values.data(), 1, MPI_INT64_T, handle_->comm, request);
  });
  return values;
}

std::vector<std::string> MpiGroup::all_gather(const std::string& text) const {
  const Texts texts(all_gather(static_cast<int64_t>(text.size())));
  std::string all(static_cast<size_t>(texts.total()), ' ');
  wait_for(*this, "all_gather", texts.total(), "MPI_Iallgatherv", [&](MPI_Request* request) {
    return MPI_Iallgatherv(text.data(), static_cast<int>(text.size()), MPI_BYTE, all.data(), texts.sizes(),
                           texts.starts(), MPI_BYTE, handle_->comm, request);
  });
  return texts.parts_of(all);
}

std::vector<std::string> MpiGroup::gather(const std::string& text) const {
  const auto own = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(rank_ == 0 ? static_cast<size_t>(size_) : 0);
  wait_for(*this, "gather", int64_t{sizeof own}, "MPI_Igather", [&](MPI_Request* request) {
    return MPI_Igather(&own, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, 0, handle_->comm, request);
  });
  const Texts texts(sizes);
  std::string all(static_cast<size_t>(texts.total()), ' ');
  wait_for(*this, "gather", rank_ == 0 ? texts.total() : own, "MPI_Igatherv", [&](MPI_Request* request) {
    return MPI_Igatherv(text.data(), static_cast<int>(own), MPI_BYTE, all.data(), texts.sizes(), texts.starts(),
                        MPI_BYTE, 0, handle_->comm, request);
  });
  return texts.parts_of(all);
}

int64_t MpiGroup::scatter(const std::vector<int64_t>& values) const {
  VH_ASSERT(rank_ != 0 || static_cast<int>(values.size()) == size_,
            str(values.size(), " values for ", size_, " ranks"));
  int64_t own = 0;
  wait_for(*this, "scatter", int64_t{sizeof own}, "MPI_Iscatter", [&](MPI_Request* request) {
    return MPI_Iscatter(values.data(), 1, MPI_INT64_T, &own, 1, MPI_INT64_T, 0, handle_->comm, request);
  });
  return own;
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
