// Log: the lines of a program that runs as many processes, and the progress of long work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/base/timer.h"

namespace vit_hybrid {

/// Says whether this process is the one that prints; it is until told otherwise. To be called before anything is
/// logged.
void set_log_speaker(bool speaks);

/// Prints a line (or several) to standard output and out.log. Silent on processes that do not speak.
void log_line(const std::string& text);
void log_lines(const std::vector<std::string>& lines);

/// Prints "vit_hybrid: warning: <text>" to standard error and out.log. Silent on processes that do not speak.
void log_warning(const std::string& text);

/// Writes a line to out.log only: what somebody else prints.
void log_to_file(const std::string& text);

/// Shows `text`, or as much of it as fits into one line of the terminal, in its last line until the next line is
/// printed or shown. Nothing happens where standard output and error are not both a terminal; out.log never sees it.
void show_progress(const std::string& text);

/// The beginning of `text` that takes at most `columns` of a terminal, so that its line does not wrap. Characters
/// beyond ASCII count as two columns, as the widest are; control characters become '?'. Pure.
std::string fitted_text(const std::string& text, int columns);

/// What a file that is there already is taken for: an error, since a job that has lost its folder to another must not
/// empty the other's file; or the beginning.
enum class OldFile { kRefuse, kAppend };

/// Starts out.log at `path` with all that was logged before. Throws Error(kCannotCreate), Error(kBadData) where it is
/// no regular file, and as require_folders() does. Does nothing on processes that do not speak. It ends when the folder
/// is another job's (holds_folders()).
void open_log_file(const std::string& path, OldFile old_file = OldFile::kRefuse);

/// Ends out.log; what is logged later goes to the terminal only.
void close_log_file();

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
