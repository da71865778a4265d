// NcclComm: an owned communicator of NCCL: how it is connected within a time limit, its errors, and its end.
#pragma once

#include <nccl.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

/// NCCL's text for an error, with what it knows besides.
std::string nccl_error_text(ncclResult_t result, ncclComm_t comm);

/// Throws if `result` is an error; `call` names the function: LostPeerError where another rank is gone, memory_error()
/// where the device has no memory left, else Error(kIo).
void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);

/// Calls of NCCL that begin together. Inside, ncclInProgress is no more than ncclSuccess.
class NcclGroup {
 public:
  NcclGroup() { add(ncclGroupStart()); }
  void add(ncclResult_t result) {
    if (result_ == ncclSuccess && result != ncclInProgress) result_ = result;
  }
  /// The first error, else what came of the whole. Called once, whatever happened.
  ncclResult_t end() {
    const ncclResult_t ended = ncclGroupEnd();
    return result_ == ncclSuccess ? ended : result_;
  }

 private:
  ncclResult_t result_ = ncclSuccess;
};

/// Connecting takes the limit at most: then Error(kIo) names the axis. Operations are started in the calling thread.
///
/// A group is first connected without blocking, which is the only way to give up. In such a communicator every later
/// operation would be started by a thread made for it; so the one that is used is split off it, and blocks.
///
/// What a call returns says nothing of a communicator that does not block: ncclCommSplit() returns ncclSuccess, and
/// goes on in a thread. Only the communicator's state does, which finish() waits for.
class NcclComm {
 public:
  /// The ranks of `group`, from an id that is broadcast over it. Only to be split. Collective over `group`.
  static std::shared_ptr<NcclComm> connect(const std::string& axis, const MpiGroup& group, double limit_seconds);
  /// The ranks of `parent`, which connect() made, that give the same color (at least 0), in the order of `key`; null
  /// without a color. Collective over `parent`.
  static std::shared_ptr<NcclComm> split(const std::string& axis, const NcclComm& parent, std::optional<int> color,
                                         int key);

  NcclComm(std::string axis, ncclComm_t comm, double limit_seconds);
  /// Destroys it, except while an exception unwinds: then report_and_abort() has it aborted.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  ncclComm_t get() const { return comm_; }
  int rank() const;
  int size() const;

  /// Held around calls of NCCL. Once the job fails, all communicators are aborted under it, and it is not had again.
  static std::unique_lock<std::timed_mutex> enter();
  /// Returns when what `call` has begun is started, perhaps by a thread of NCCL. Throws as check_nccl() where `result`
  /// or what came of it is an error, and Error(kIo) where nothing comes of it within the limit. Not inside enter() or a
  /// group.
  void finish(ncclResult_t result, const char* call) const;
  /// What NCCL has found since: ncclSuccess, ncclInProgress, or an error.
  ncclResult_t error() const;
  /// The same, without waiting: nothing while another thread is inside NCCL.
  std::optional<ncclResult_t> error_unless_busy() const;

 private:
  ncclResult_t ask() const;

  std::string axis_;
  ncclComm_t comm_;
  double limit_seconds_;
};

}  // namespace vit_hybrid::comm
