// Progress: says what a long piece of work is, and how far, so that no command is silent for more than some seconds.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "src/base/timer.h"

namespace vit_hybrid {

/// While it lives the process that prints says from time to time "<what>: 37 % done, 12 s to go", from a thread of its
/// own: also where the work is blocked in a read or waits for other ranks. In a terminal's last line every second; else
/// as a line of the log after `quiet` seconds, and then each time after as long again, but at least once a minute.
class Progress {
 public:
  static constexpr double kQuiet = 5.0;

  /// `what`: "reading runs/a/checkpoints/step-000000020.h5". `total`: what the counts of add() make together; 0: not
  /// known, and then only the time is said.
  explicit Progress(std::string what, int64_t total = 0, double quiet = kQuiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// So much more is done. Any thread.
  void add(int64_t count = 1) { done_ += count; }

 private:
  void speak(double quiet);
  std::string text() const;

  std::string what_;
  int64_t total_;
  std::atomic<int64_t> done_ = 0;
  Timer timer_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread speaker_;
};

}  // namespace vit_hybrid
