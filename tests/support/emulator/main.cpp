// doctest's main; --planted-race runs a kernel that lacks a wait instead, for ThreadSanitizer to find.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "tests/support/emulator/emulator.h"

namespace {

void run_planted_race() {
  static std::array<int, 64> shared;
  vit_hybrid::testing::launch(1, 64, [] {
    const unsigned thread = vit_hybrid::testing::emulated_thread().thread.x;
    shared[thread] = static_cast<int>(thread);
    static_cast<void>(*const_cast<volatile int*>(&shared[(thread + 1) % 64]));
  });
}

}  // namespace

// AddressSanitizer asks for it. Leaks are looked for by ptrace, which is not allowed everywhere; with MPICH, tests have
// a preloaded library before it.
extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier, cert-dcl*)
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:verify_asan_link_order=0";
}

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--planted-race") == 0) {
    run_planted_race();
    return 0;
  }
  return doctest::Context(argc, argv).run();
}
