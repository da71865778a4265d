// Hdf5CrashGuard: a crash or an endless loop of the HDF5 library on a damaged file becomes one message with its name.
#pragma once

#include <chrono>
#include <string>

namespace vit_hybrid::data {

/// HDF5 1.10 believes much of what it reads of a file's structure, and damaged bytes can crash it or keep it for ever.
/// While a guard lives, the signals of a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) of its thread, and more than
/// `longest` of computing (not of waiting for the disk) in it, end the job as an Error(kBadData) that names `path`
/// would. Crashes of other threads, and signals that another process sends, go where they went before. To stand around
/// calls of HDF5 that look at a file of the user, and nothing else: crashes that are our own shall stay crashes. Guards
/// nest, the innermost names its file. Main thread; comm::WatchdogGuard, without which the time has no end, sends the
/// message.
class Hdf5CrashGuard {
 public:
  /// Of finding out what is in a file. Of one with very many chunks HDF5 1.10 needs seconds.
  static constexpr std::chrono::seconds kLongestLook{60};
  static constexpr std::chrono::seconds kNoLimit{0};

  explicit Hdf5CrashGuard(const std::string& path, std::chrono::seconds longest = kLongestLook);
  ~Hdf5CrashGuard();
  Hdf5CrashGuard(const Hdf5CrashGuard&) = delete;
  Hdf5CrashGuard& operator=(const Hdf5CrashGuard&) = delete;

  /// What is printed after a signal.
  const std::string& line(int signal) const;

 private:
  // Ready before the crash, after which memory cannot be trusted.
  std::string crash_line_;
  std::string loop_line_;
  const Hdf5CrashGuard* outer_;
  std::chrono::nanoseconds outer_end_{};
};

}  // namespace vit_hybrid::data
