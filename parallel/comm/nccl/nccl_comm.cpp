// NcclComm: connection, polling, and the abort of all communicators when the job fails.
#include "parallel/comm/nccl/nccl_comm.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "parallel/comm/failure.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/operation_slot.h"
#include "src/base/error.h"
#include "src/base/memory_failure.h"
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
// one communicator waits for its kernels, which may stand behind those of another.
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

ncclConfig_t config_with(bool blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocks ? 1 : 0;
  return config;
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
  ncclConfig_t config = config_with(/*blocks=*/false);
  config.minCTAs = config.maxCTAs = 1;  // nothing is sent over it: as little memory as there can be
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
                                          int key) {
  const OperationNote note = connection_note(axis, "split by NCCL");
  const BlockedScope blocked(note);
  ncclConfig_t config = config_with(/*blocks=*/true);
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

}  // namespace vit_hybrid::comm
