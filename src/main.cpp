// The program: runs a command, and ends the job with one message if it fails.
#include "parallel/comm/failure.h"
#include "src/base/heap.h"
#include "src/base/log.h"
#include "src/commands/command.h"

int main(int argc, char** argv) {
  vit_hybrid::keep_freed_memory();
  try {
    return vit_hybrid::commands::run(argc, argv);
  } catch (const std::exception& exception) {
    vit_hybrid::log_to_file(vit_hybrid::comm::failure_text(exception));
    vit_hybrid::comm::report_and_abort(exception);
  }
}
