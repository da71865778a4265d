// The program: runs a command, and ends the job with one message if it fails.
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "parallel/comm/failure.h"
#include "parallel/comm/watchdog.h"
#include "src/base/error.h"
#include "src/base/host_allocator.h"
#include "src/base/log.h"
#include "src/commands/command.h"

namespace {

// LibTorch's destructors take the tables of its operators apart, for a tenth of a second of every rank; the system has
// all back without them. What was loaded before the program, as profilers are (Nsight Systems, Darshan), may wait for
// its ordinary end to write what it has.
int end(int exit_code) {
  if (std::getenv("LD_PRELOAD") != nullptr) return exit_code;
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  vit_hybrid::keep_freed_memory();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow (ulimit -f) is an error of the write, which has its line
  try {
    const vit_hybrid::comm::WatchdogGuard guard;
    const int exit_code = vit_hybrid::commands::run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw vit_hybrid::Error(vit_hybrid::ErrorClass::kIo,
                              "standard output could not be written: what was printed is not all there",
                              "make room where it goes to");
    }
    return end(exit_code);
  } catch (const std::exception& exception) {
    vit_hybrid::log_to_file(vit_hybrid::comm::failure_text(exception));
    vit_hybrid::comm::report_and_abort(exception);
  }
}
