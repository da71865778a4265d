// Communicators of NCCL are connected within a limit, and aborted when the job fails.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <thread>

#include "parallel/comm/failure.h"
#include "parallel/comm/nccl/nccl_link.h"
#include "tests/parallel/comm/nccl/fake_nccl.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::testing {

namespace {

using comm::MpiGroup;
using comm::NcclComm;

// The fake as a test wants it; as new afterwards.
struct Fake {
  explicit Fake(int polls) { fake_nccl().polls = polls; }
  ~Fake() { fake_nccl() = {}; }
};

}  // namespace

TEST_CASE("nccl comm: it is connected without blocking and used only to be split; the parts block") {
  const Fake fake(3);
  const MpiGroup world = MpiGroup::world();
  {
    const auto root = NcclComm::connect("world", world, 10.0);
    CHECK(root->rank() == world.rank());
    CHECK(root->size() == world.size());
    const auto part = NcclComm::split("tensor", *root, 0, 5);
    REQUIRE(part != nullptr);
    CHECK(part->rank() == 5);
    CHECK(NcclComm::split("tensor", *root, std::nullopt, 0) == nullptr);
    const auto few_blocks = NcclComm::split("world", *root, 0, 5, 2);
    REQUIRE(fake_nccl().configs.size() == 4);
    CHECK(fake_nccl().configs[0].blocking == 0);
    CHECK(fake_nccl().configs[0].maxCTAs == 1);
    CHECK(fake_nccl().configs[1].blocking == 1);
    CHECK(fake_nccl().configs[1].maxCTAs == NCCL_CONFIG_UNDEF_INT);
    CHECK(fake_nccl().configs[3].maxCTAs == 2);
  }
  CHECK(fake_nccl().num_destroyed == 3);
}

TEST_CASE("nccl comm: a connection that does not come is given up, by the name of its axis") {
  const Fake fake(-1);
  const MpiGroup world = MpiGroup::world();
  const Error never = thrown_error([&] { NcclComm::connect("world", world, 0.05); });
  CHECK(never.error_class() == ErrorClass::kIo);
  CHECK(never.message() ==
        "axis 'world': ncclCommInitRankConfig has waited 0.05 s for the other ranks, the limit (--timeout)");
  fake_nccl().polls = 0;
  const auto root = NcclComm::connect("world", world, 0.05);
  fake_nccl().polls = -1;
  const Error part = thrown_error([&] { NcclComm::split("tensor", *root, 0, 0); });
  CHECK(contains(part.message(), "ncclCommSplit has waited 0.05 s"));
  end_thread_of(root->get());  // which writes the child to where the split wanted it
}

TEST_CASE("nccl comm: a split that ends well without a communicator is refused") {
  const Fake fake(2);
  const auto root = NcclComm::connect("world", MpiGroup::world(), 10.0);
  fake_nccl().makes_children = false;
  const Error none = thrown_error([&] { NcclComm::split("tensor", *root, 0, 0); });
  CHECK(none.error_class() == ErrorClass::kIo);
  CHECK(none.message() == "axis 'tensor': ncclCommSplit succeeded and made no communicator");
  CHECK(NcclComm::split("tensor", *root, std::nullopt, 0) == nullptr);
}

TEST_CASE("nccl comm: an error is waited for whatever the call itself returned") {
  const Fake fake(2);
  const auto root = NcclComm::connect("world", MpiGroup::world(), 10.0);
  fake_nccl().async_error = ncclSystemError;
  const Error error = thrown_error([&] { NcclComm::split("tensor", *root, 0, 0); });
  CHECK(error.message() == "ncclCommSplit failed: another error: as the fake was told");
  CHECK(thrown_error([&] { root->finish(ncclSuccess, "ncclBroadcast"); }).message() ==
        "ncclBroadcast failed: another error: as the fake was told");
}

TEST_CASE("nccl comm: memory that NCCL does not get is told as that of LibTorch is") {
  const Fake fake(0);
  comm::set_memory_advice([](const MemoryFailure&) { return "the advice"; });
  for (const char* text : {"Failed to CUDA calloc async 4194304 bytes", "Cuda failure 2 'out of memory'"}) {
    fake_nccl().last_error = text;
    const Error error = thrown_error([] { comm::check_nccl(ncclUnhandledCudaError, "ncclAllReduce"); });
    CHECK(error.error_class() == ErrorClass::kUsage);
    CHECK(error.message() == std::string("out of memory: ncclAllReduce failed: another error: ") + text);
    CHECK(error.hint() == "the advice");
    // The text may be that of an earlier error.
    CHECK(thrown_error([] { comm::check_nccl(ncclSystemError, "ncclAllReduce"); }).error_class() == ErrorClass::kIo);
  }
  comm::set_memory_advice(nullptr);
  fake_nccl().last_error = "Cuda failure 700 'an illegal memory access was encountered'";
  const Error other = thrown_error([] { comm::check_nccl(ncclUnhandledCudaError, "ncclAllReduce"); });
  CHECK(other.error_class() == ErrorClass::kIo);
}

TEST_CASE("nccl comm: that another rank is gone is a consequence, everything else an error of its own") {
  CHECK_THROWS_AS(comm::check_nccl(ncclRemoteError, "ncclAllReduce"), comm::LostPeerError);
  bool is_own = false;
  try {
    comm::check_nccl(ncclSystemError, "ncclAllReduce");
  } catch (const Error& error) {
    is_own = dynamic_cast<const comm::LostPeerError*>(&error) == nullptr;
  }
  CHECK(is_own);
}

TEST_CASE("nccl comm: an error that NCCL finds in another thread is told, and not waited for where NCCL is busy") {
  const Fake fake(0);
  const auto root = NcclComm::connect("world", MpiGroup::world(), 10.0);
  CHECK(root->error() == ncclSuccess);
  fake_nccl().async_error = ncclRemoteError;
  CHECK(root->error_unless_busy() == ncclRemoteError);
  const Error error = thrown_error([&] { root->finish(ncclInProgress, "ncclAllReduce"); });
  CHECK(error.message() == "ncclAllReduce failed: remote process exited: as the fake was told");
  const auto inside = NcclComm::enter();
  bool had_to_wait = false;
  std::thread([&] { had_to_wait = !root->error_unless_busy().has_value(); }).join();
  CHECK(had_to_wait);
}

TEST_CASE("nccl comm: a group ends whatever happened in it, with the first error") {
  comm::NcclGroup fine;
  fine.add(ncclInProgress);
  CHECK(fake_nccl().group_depth == 1);
  CHECK(fine.end() == ncclInProgress);
  comm::NcclGroup bad;
  bad.add(ncclInvalidArgument);
  bad.add(ncclSystemError);
  CHECK(bad.end() == ncclInvalidArgument);
  CHECK(fake_nccl().group_depth == 0);
}

// In a process of its own, which ends.
TEST_CASE("nccl comm: when the job fails all communicators are aborted, also while another thread goes on") {
  const Fake fake(0);
  const auto root = NcclComm::connect("world", MpiGroup::world(), 10.0);
  const auto part = NcclComm::split("data", *root, 0, 0);
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    fake_nccl().abort_pipe = ends[1];
    std::freopen("/dev/null", "w", stderr);
    comm::set_process_place({});  // as if it were alone: it must not end the test's job
    std::thread([&] {
      while (true) {
        static_cast<void>(root->error());  // stands still once they are aborted
      }
    }).detach();
    comm::report_and_abort("vit_hybrid: an error", 74);
  }
  close(ends[1]);
  std::array<char, 16> bytes{};
  ssize_t num_aborted = 0;
  for (ssize_t got = 0; (got = read(ends[0], bytes.data(), bytes.size())) > 0;) {
    num_aborted += std::count(bytes.begin(), bytes.begin() + got, 'g');  // all in one group
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(num_aborted >= 2);  // and those that the tests before have left to be aborted
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 74);
}

}  // namespace vit_hybrid::testing
