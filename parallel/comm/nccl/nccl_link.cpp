// Connection, polling, the abort of all communicators when the job fails, and the pool of what is used again.
//
// A rank that finds an error says it, aborts its communicators under the lock that every call of NCCL takes, and then
// the job. ncclRemoteError is what a rank finds whose peer has gone (LostPeerError): the peer knows why, so this rank
// waits some seconds for the job to end before it claims to speak; a job of several nodes has one message too.
// tests/parallel/comm/nccl has a fake of NCCL that connects, splits and fails as this one does.
#include "parallel/comm/nccl/nccl_link.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <set>
#include <thread>
#include <vector>

#include "parallel/comm/failure.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/recorded_operations.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/timer.h"

namespace vit_hybrid::comm {

namespace {

constexpr std::chrono::microseconds kPollingPause{100};
constexpr std::chrono::milliseconds kPatienceForCalls{500};

// Of this process. Never destroyed: the job may fail while static objects are.
struct Registry {
  std::timed_mutex mutex;  // see NcclComm::enter()
  std::set<ncclComm_t> comms;
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

// Kernels that wait for a rank which will not come would keep the process from ending. In a group, because the abort of
// one communicator waits for its kernels, which may stand behind those of another. It also waits for the end of graphs
// with its operations, which does not come: it has stopped the kernels by then, and is left alone (run_before_abort()).
void abort_all() {
  std::unique_lock lock(registry().mutex, kPatienceForCalls);
  if (!lock.owns_lock()) return;  // a call hangs, and would be left with freed memory
  NcclGroup group;
  for (ncclComm_t comm : registry().comms) {
    group.add(ncclCommAbort(comm));
  }
  group.end();
  lock.release();  // and keeps it: no call of NCCL after this
}

OperationNote connection_note(const std::string& axis, const char* what) {
  return {axis, what, 0, 0, run_position()};
}

void check_made(ncclComm_t comm, const std::string& axis, const char* call) {
  if (comm != nullptr) return;
  throw Error(ErrorClass::kIo, vit_hybrid::str("axis '", axis, "': ", call, " succeeded and made no communicator"),
              "this version of NCCL behaves as none that is known: NCCL_DEBUG=INFO shows its steps");
}

// With other ranks than those of the group, operations would write beyond their tensors.
void check_place(const NcclComm& comm, const std::string& axis, const MpiGroup& group) {
  VH_ASSERT(comm.rank() == group.rank() && comm.size() == group.size(),
            vit_hybrid::str("axis '", axis, "': NCCL made rank ", comm.rank(), " of ", comm.size(), " of rank ",
                            group.rank(), " of ", group.size()));
}

// `most_blocks`: 0 for NCCL's own choice.
ncclConfig_t config_with(bool blocks, int most_blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocks ? 1 : 0;
  if (most_blocks > 0) {
    config.minCTAs = 1;
    config.maxCTAs = most_blocks;
  }
  return config;
}

// What NCCL has found, if that is an error, for the watchdog's thread.
std::optional<DeviceStatus> failure_of(const NcclComm& comm) {
  // The watchdog must not wait for a thread that hangs in NCCL: its blocked scope tells of it.
  const auto error = comm.error_unless_busy();
  if (!error || *error == ncclSuccess || *error == ncclInProgress) return std::nullopt;
  return DeviceStatus{DeviceStatus::Kind::kFailed, nccl_error_text(*error, comm.get()),
                      *error == ncclRemoteError ? Cause::kLostPeer : Cause::kOwn};
}

// Of the first operations: as small as there is, and as large as those of a step; each no larger than `most`.
std::vector<size_t> warm_up_sizes(int64_t most) {
  std::vector<size_t> sizes = {sizeof(float)};
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20, static_cast<size_t>(most)}) {
    if (bytes <= static_cast<size_t>(most) && bytes > sizes.back()) sizes.push_back(bytes);
  }
  return sizes;
}

}  // namespace

std::string nccl_error_text(ncclResult_t result, ncclComm_t comm) {
  const char* const detail = ncclGetLastError(comm);
  const std::string text = ncclGetErrorString(result);
  return detail == nullptr || *detail == '\0' ? text : vit_hybrid::str(text, ": ", detail);
}

void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string text = vit_hybrid::str(call, " failed: ", nccl_error_text(result, comm));
  if (result == ncclUnhandledCudaError && tells_of_memory(text)) throw memory_error(text);
  const std::string hint = "run again with NCCL_DEBUG=WARN to see NCCL's own messages";
  if (result == ncclRemoteError) throw LostPeerError(ErrorClass::kIo, text, hint);
  throw Error(ErrorClass::kIo, text, hint);
}

std::shared_ptr<NcclComm> NcclComm::connect(const std::string& axis, const MpiGroup& group, double limit_seconds) {
  OperationNote note = connection_note(axis, "connection by NCCL");
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (group.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  group.broadcast(&id, sizeof id, 0);
  note.group = group.watched()->id();
  note.turn = group.watched()->next_turn(note.operation);
  const BlockedScope blocked(note);
  ncclConfig_t config = config_with(/*blocks=*/false, 1);  // nothing is sent over it: as little memory as there can be
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclSuccess;
  {
    const auto inside = enter();
    result = ncclCommInitRankConfig(&comm, group.size(), id, group.rank(), &config);
  }
  check_nccl(result, "ncclCommInitRankConfig");
  check_made(comm, axis, "ncclCommInitRankConfig");
  auto made = std::make_shared<NcclComm>(axis, comm, limit_seconds);  // it is there at once, and not yet to be used
  made->finish(result, "ncclCommInitRankConfig");
  return made;
}

std::shared_ptr<NcclComm> NcclComm::split(const std::string& axis, const NcclComm& parent, std::optional<int> color,
                                          int key, int most_blocks) {
  const OperationNote note = connection_note(axis, "split by NCCL");
  const BlockedScope blocked(note);
  ncclConfig_t config = config_with(/*blocks=*/true, most_blocks);
  auto place = std::make_unique<ncclComm_t>(nullptr);
  ncclResult_t result = ncclSuccess;
  {
    const auto inside = enter();
    result = ncclCommSplit(parent.comm_, color.value_or(NCCL_SPLIT_NOCOLOR), key, place.get(), &config);
  }
  // A thread of NCCL writes there before the parent is through; also after the wait is given up, which leaks it.
  ncclComm_t* const lent = place.release();
  parent.finish(result, "ncclCommSplit");
  place.reset(lent);
  if (!color) return nullptr;
  check_made(*place, axis, "ncclCommSplit");
  return std::make_shared<NcclComm>(axis, *place, parent.limit_seconds_);
}

NcclComm::NcclComm(std::string axis, ncclComm_t comm, double limit_seconds)
    : axis_(std::move(axis)), comm_(comm), limit_seconds_(limit_seconds) {
  const auto inside = enter();
  registry().comms.insert(comm_);
  set_before_abort(&abort_all);
}

NcclComm::~NcclComm() {
  if (std::uncaught_exceptions() > 0) return;
  const auto inside = enter();
  registry().comms.erase(comm_);
  ncclCommDestroy(comm_);
}

int NcclComm::rank() const {
  const auto inside = enter();
  int rank = 0;
  check_nccl(ncclCommUserRank(comm_, &rank), "ncclCommUserRank", comm_);
  return rank;
}

int NcclComm::size() const {
  const auto inside = enter();
  int size = 0;
  check_nccl(ncclCommCount(comm_, &size), "ncclCommCount", comm_);
  return size;
}

std::unique_lock<std::timed_mutex> NcclComm::enter() {
  return std::unique_lock(registry().mutex);
}

void NcclComm::finish(ncclResult_t result, const char* call) const {
  check_nccl(result, call, comm_);
  const Timer timer;
  while ((result = error()) == ncclInProgress) {
    if (timer.seconds() > limit_seconds_) {
      throw Error(ErrorClass::kIo,
                  vit_hybrid::str("axis '", axis_, "': ", call, " has waited ", limit_seconds_,
                                  " s for the other ranks, the limit (--timeout)"),
                  "a rank is stuck or gone, or the ranks cannot reach each other: NCCL_DEBUG=INFO shows the addresses, "
                  "NCCL_SOCKET_IFNAME names the network to use");
    }
    std::this_thread::sleep_for(kPollingPause);
  }
  check_nccl(result, call, comm_);
}

ncclResult_t NcclComm::error() const {
  const auto inside = enter();
  return ask();
}

std::optional<ncclResult_t> NcclComm::error_unless_busy() const {
  const std::unique_lock inside(registry().mutex, std::try_to_lock);
  return inside.owns_lock() ? std::optional(ask()) : std::nullopt;
}

ncclResult_t NcclComm::ask() const {
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &error);
  return asked == ncclSuccess ? error : asked;
}

std::shared_ptr<NcclLink> NcclLink::create(const std::string& axis, const MpiGroup& group, c10::Device device,
                                           const TransportOptions& options) {
  const c10::DeviceGuard guard(device);
  auto root = NcclComm::connect(axis, group, options.connection_seconds);
  auto comm = NcclComm::split(axis, *root, 0, group.rank(), options.most_blocks);
  check_place(*comm, axis, group);
  auto link = std::make_shared<NcclLink>(axis, std::move(comm), std::move(root), device);
  link->warm_up(options);
  return link;
}

std::shared_ptr<NcclLink> NcclLink::split(const std::string& axis, const NcclLink& parent, const MpiGroup& group,
                                          const TransportOptions& options) {
  const c10::DeviceGuard guard(parent.device());
  VH_ASSERT(parent.root_ != nullptr, vit_hybrid::str("axis '", axis, "' is split off one that was split off itself"));
  // A group is known by the rank in the parent of its first member.
  int color = parent.comm().rank();
  group.broadcast(&color, sizeof color, 0);
  auto comm = NcclComm::split(axis, *parent.root_, group.size() == 1 ? std::nullopt : std::optional(color),
                              group.rank(), options.most_blocks);
  if (comm == nullptr) return nullptr;
  check_place(*comm, axis, group);
  auto link = std::make_shared<NcclLink>(axis, std::move(comm), nullptr, parent.device());
  link->warm_up(options);
  return link;
}

NcclLink::NcclLink(std::string axis, std::shared_ptr<NcclComm> comm, std::shared_ptr<NcclComm> root, c10::Device device)
    : axis_(std::move(axis)),
      comm_(std::move(comm)),
      root_(std::move(root)),
      device_(device),
      stream_(DeviceStream::of_pool(device)),
      events_([] { return std::make_shared<DeviceEvent>(); }),
      timing_events_([] { return std::make_shared<DeviceEvent>(DeviceEvent::Timing::kOn); }) {}

NcclLink::~NcclLink() {
  if (std::uncaught_exceptions() > 0) return;
  const c10::DeviceGuard guard(device_);
  stream_.synchronize();
}

void NcclLink::follow_caller() {
  check();
  if (RecordedOperations::collecting() == nullptr) forget_complete();
  ready_.record(DeviceStream::of_caller(device_));
  ready_.block(stream_);
}

// An event that is recorded into a graph is nothing to ask: it joins streams, and is recorded anew when it is lent
// again.
std::shared_ptr<DeviceEvent> NcclLink::put_in_slot(const OperationNote& note, const DeviceStream& stream) {
  auto done = events_.take();
  done->record(stream);
  if (RecordedOperations::collecting() != nullptr) return done;
  in_flight_.push_back({done, std::make_unique<DeviceOperation>(note, [comm = comm_, done, device = device_] {
                          const auto failure = failure_of(*comm);
                          return failure ? *failure : done->status(device);
                        })});
  return done;
}

void NcclLink::replay(const OperationNote& note, const std::function<void()>& start) {
  const BlockedScope blocked(note);  // a device with much before it may take no more until others have come
  check();
  forget_complete();
  {
    const DeviceOperation starting(note, [comm = comm_] { return failure_of(*comm).value_or(DeviceStatus()); });
    start();
  }
  put_in_slot(note, DeviceStream::of_caller(device_));
}

void NcclLink::hold_caller(const DeviceEvent& done) {
  const auto caller = DeviceStream::of_caller(device_);
  if (RecordedOperations::collecting() != nullptr) return done.block(caller);
  if (done.query()) return;  // nothing stands still
  holds_.push_back({timing_events_.take(), timing_events_.take(), run_position().phase});
  holds_.back().before->record(caller);
  done.block(caller);
  holds_.back().after->record(caller);
}

void NcclLink::check() const {
  check_nccl(comm_->error(), "an earlier operation of NCCL", comm_->get());
}

void NcclLink::forget_complete() {
  while (!in_flight_.empty() && in_flight_.front().done->query())
    in_flight_.pop_front();
  while (!holds_.empty() && holds_.front().after->query()) {
    const Hold& hold = holds_.front();
    add_blocked_seconds(axis_, {hold.phase, hold.before->seconds_until(*hold.after)});
    holds_.pop_front();
  }
}

// NCCL connects the ranks, with memory of the device that LibTorch knows nothing of, when it first chooses an
// algorithm, which it does by operation and size: that would be in the middle of the first step.
void NcclLink::warm_up(const TransportOptions& options) {
  const OperationNote note{axis_, "first operation of NCCL", 0, 0, run_position()};
  const MemoryScope scope(MemoryClass::kCommunication);
  const c10::DeviceGuard guard(device_);
  const auto size = static_cast<size_t>(comm_->size());
  const auto part = [size](size_t bytes) { return std::max(size_t{1}, bytes / sizeof(float) / size); };
  const auto sizes = warm_up_sizes(options.warm_up_bytes);
  const auto most = static_cast<int64_t>(part(sizes.back()) * size);
  const at::Tensor values = at::zeros({most}, at::TensorOptions(at::kFloat).device(device_));
  for (const size_t bytes : sizes)
    run_collectives(note, values.data_ptr<float>(), part(bytes));
  if (options.connects_neighbours) run_exchange(note, values.data_ptr<float>());
  const BlockedScope blocked(note);
  stream_.synchronize();
  check();
}

// In place, with `part` values of each rank.
void NcclLink::run_collectives(const OperationNote& note, float* values, size_t part) {
  const size_t whole = part * static_cast<size_t>(comm_->size());
  float* const own = values + part * static_cast<size_t>(comm_->rank());
  launch(note, "ncclAllReduce", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(values, values, whole, ncclFloat, ncclSum, comm, stream);
  });
  launch(note, "ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(values, own, part, ncclFloat, ncclSum, comm, stream);
  });
  launch(note, "ncclAllGather", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(own, values, part, ncclFloat, comm, stream);
  });
  launch(note, "ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(values, values, whole, ncclFloat, 0, comm, stream);
  });
}

void NcclLink::run_exchange(const OperationNote& note, float* values) {
  const int rank = comm_->rank();
  const int size = comm_->size();
  launch(note, "ncclSend and ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
    NcclGroup group;
    for (const int peer : std::set<int>{(rank + 1) % size, (rank + size - 1) % size}) {
      group.add(ncclSend(values + rank, 1, ncclFloat, peer, comm, stream));
      group.add(ncclRecv(values + peer, 1, ncclFloat, peer, comm, stream));
    }
    return group.end();
  });
}

}  // namespace vit_hybrid::comm
