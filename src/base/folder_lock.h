// FolderLock: a folder that one job at a time writes to, by a lock file that is renewed, on the file systems of
// clusters.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace vit_hybrid {

/// A process, and the job that it belongs to, as a lock file names them.
struct LockHolder {
  std::string token;      ///< 32 random hexadecimal digits, of this lock alone
  std::string host;       ///< its name
  std::string kernel;     ///< boot id and namespace of process numbers: where both are ours, we can look at the process
  int64_t process = 0;    ///< its number
  int64_t start = 0;      ///< when it started, in clock ticks since the boot
  std::string job;        ///< "cluster/77" of Slurm, or empty
  int64_t restart = 0;    ///< how often Slurm has restarted that job
  double renewal = 20.0;  ///< seconds from one renewal of the lock to the next

  /// This process, with a new token.
  static LockHolder self(double renewal);
  /// "process 123 on n1, Slurm job 77"
  std::string text() const;
  /// Whether both are locks of one process.
  bool is_same_process(const LockHolder& other) const;
};

/// The lock file `run.lock` of a folder, held from take() to the end of the object's life.
///
/// The protocol needs link(2), rename(2) and the file system's own times, no flock. A lock file has its whole content
/// from the first moment: it is written under another name and linked to its own, which fails where the name is taken.
/// To supersede the lock with token T a process links its own to `run.lock.after.T`: of all who try, one succeeds, and
/// T never comes again. Who holds the folder is the end of that chain. The new holder then renames its file to
/// `run.lock`, and looks once more whether it stands there: who was stopped on the way, and superseded meanwhile, finds
/// out. The holder itself supersedes its lock before it removes it, so it never removes another's.
///
/// A thread renews the time of the file: steps, validations and saves have no border that is sure to come in time. It
/// makes no MPI and no HDF5 call. The age of a lock is the difference of two times of the same file system.
class FolderLock {
 public:
  /// What becomes of a caller whose predecessor may be alive or not.
  enum class Doubt { kRefuse, kWait };

  /// `what` names the folder in messages: "run folder". Does nothing yet.
  FolderLock(std::string folder, std::string what, double renewal);
  /// Removes the lock file where it is still this one's.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Whether a file of this name in a folder is that of a lock, one of before or one that is being made.
  static bool is_lock_file(const std::string& name);

  /// One attempt. True: the folder is this process's. False, with Doubt::kWait only: its holder does not renew, but may
  /// be alive; remark() says so, and the call is to be repeated until three renewals were missed. A lock is taken over
  /// at once from a process of this machine that has ended, from the same Slurm job before its restart, from `loser`,
  /// whose other folder was taken over (who has lost one has lost all), and after three missed renewals.
  /// Error(kCannotCreate) names a holder that is alive; Error(kCannotCreate), Error(kIo).
  bool try_take(Doubt doubt, const std::optional<LockHolder>& loser = std::nullopt);
  /// What there is to say of the last attempt: whom the folder was taken from, or who is waited for; may be empty.
  const std::string& remark() const { return remark_; }
  /// From whom it was taken over, if another job had its lock in it.
  const std::optional<LockHolder>& loser() const { return loser_; }
  /// 8 digits of the token.
  std::string mark() const { return self_.token.substr(0, 8); }

  /// Error(kCannotCreate) where the lock is another's now, or gone: then this process must not write here any more.
  /// Error(kIo). From any thread.
  void require() const;

 private:
  // A lock file that was found.
  struct Found {
    std::string file;
    LockHolder holder;
    timespec renewed{};
  };

  std::string path() const;
  std::string path_after(const std::string& token) const;
  std::string make_candidate();
  Found end_of_chain(const Found& first) const;
  std::optional<Found> find_lock() const;
  bool supersede(const Found& end, const std::string& candidate);
  bool decide(const Found& end, timespec now, Doubt doubt, const std::optional<LockHolder>& loser);
  [[noreturn]] void refuse(const Found& found, double age) const;
  void begin();
  void renew();
  void release();
  void sweep(timespec now) const;

  std::string folder_;
  std::string what_;
  LockHolder self_;
  int descriptor_ = -1;  // of the lock file while it is ours
  std::string remark_;
  std::optional<LockHolder> loser_;
  std::string awaited_;  // token of the holder that was waited for
  timespec awaited_time_{};
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool ends_ = false;
  std::thread renewal_;
};

/// require() of every lock that this process holds: to be called before each change of a file in a folder that may have
/// one. Nothing where it holds none. From any thread.
void require_folders();
/// The same as an answer, where nothing can be thrown.
bool holds_folders();

/// What the names of this job's unfinished files have in them, so that no other job's are touched: the mark of its
/// lock, the same on all ranks; empty where there is none.
std::string job_mark();
void set_job_mark(const std::string& mark);

}  // namespace vit_hybrid
