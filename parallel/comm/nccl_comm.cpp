// NcclComm: connection, polling, and the abort of all communicators when the job fails.
#include "parallel/comm/nccl_comm.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "parallel/comm/failure.h"
#include "parallel/comm/operation_slot.h"
#include "src/base/error.h"
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

// Kernels that wait for a rank which will not come would keep the process from ending.
void abort_all() {
  std::unique_lock lock(registry().mutex, kPatienceForCalls);
  if (!lock.owns_lock()) return;  // a call hangs, and would be left with freed memory
  for (ncclComm_t comm : registry().comms) {
    ncclCommAbort(comm);
  }
  lock.release();  // and keeps it: no call of NCCL after this
}

OperationNote connection_note(const std::string& axis, const char* what) {
  return {axis, what, 0, 0, run_position()};
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
  throw Error(ErrorClass::kIo, vit_hybrid::str(call, " failed: ", nccl_error_text(result, comm)),
              "run again with NCCL_DEBUG=WARN to see NCCL's own messages");
}

std::shared_ptr<NcclComm> NcclComm::connect(const std::string& axis, const MpiGroup& group, double limit_seconds) {
  const OperationNote note = connection_note(axis, "connection by NCCL");
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (group.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  group.broadcast(&id, sizeof id, 0);
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
  auto made = std::make_shared<NcclComm>(axis, comm, limit_seconds);
  made->finish(result, "ncclCommInitRankConfig");
  return made;
}

std::shared_ptr<NcclComm> NcclComm::split(const std::string& axis, const NcclComm& parent, std::optional<int> color,
                                          int key) {
  const OperationNote note = connection_note(axis, "split by NCCL");
  const BlockedScope blocked(note);
  ncclConfig_t config = config_with(/*blocks=*/true);
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclSuccess;
  {
    const auto inside = enter();
    result = ncclCommSplit(parent.comm_, color.value_or(NCCL_SPLIT_NOCOLOR), key, &comm, &config);
  }
  parent.finish(result, "ncclCommSplit");  // until then `comm` is null
  return comm == nullptr ? nullptr : std::make_shared<NcclComm>(axis, comm, parent.limit_seconds_);
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
  int rank = 0;
  check_nccl(ncclCommUserRank(comm_, &rank), "ncclCommUserRank", comm_);
  return rank;
}

int NcclComm::size() const {
  int size = 0;
  check_nccl(ncclCommCount(comm_, &size), "ncclCommCount", comm_);
  return size;
}

std::unique_lock<std::timed_mutex> NcclComm::enter() {
  return std::unique_lock(registry().mutex);
}

void NcclComm::finish(ncclResult_t result, const char* call) const {
  const Timer timer;
  while (result == ncclInProgress) {
    std::this_thread::sleep_for(kPollingPause);
    result = error();
    if (result == ncclInProgress && timer.seconds() > limit_seconds_) {
      throw Error(ErrorClass::kIo,
                  vit_hybrid::str("axis '", axis_, "': ", call, " has waited ", limit_seconds_,
                                  " s for the other ranks, the limit (--timeout)"),
                  "a rank is stuck or gone, or the ranks cannot reach each other: NCCL_DEBUG=INFO shows the addresses, "
                  "NCCL_SOCKET_IFNAME names the network to use");
    }
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
