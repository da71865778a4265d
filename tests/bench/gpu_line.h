// One line of a benchmark of GPU kernels, which ends neither with a kernel that a library refuses nor with memory that
// is not there.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "parallel/comm/failure.h"
#include "src/base/error.h"
#include "src/kernels/gemm/device_products.h"

namespace vit_hybrid::bench {

/// Calls `line()`, which measures and prints; where it throws, prints why under `name` instead. An error that leaves
/// the device broken is thrown.
template <class Line>
void attempt(const std::string& name, const Line& line) {
  std::string reason;
  try {
    line();
    return;
  } catch (const std::exception& exception) {
    reason = comm::as_error(exception).message();
  }
  std::printf("%-64s does not run: %s\n", name.c_str(), reason.substr(0, reason.find('\n')).c_str());
  std::fflush(stdout);
  kernels::synchronize_device();
}

/// Calls `body()`, a benchmark's whole work, which gives its exit code; prints an error that it throws.
template <class Body>
int run(const Body& body) {
  try {
    return body();
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "%s\n", comm::failure_text(exception).c_str());
    return comm::as_error(exception).exit_code();
  }
}

}  // namespace vit_hybrid::bench
