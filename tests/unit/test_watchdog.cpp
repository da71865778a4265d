// The slot and the watchdog's line: what is overdue, and how it is named.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>

#include "parallel/comm/operation_slot.h"
#include "parallel/comm/watchdog.h"

using namespace vit_hybrid::comm;

namespace {

void nap(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace

TEST_CASE("watchdog: a blocked operation is overdue after the limit, the oldest first") {
  CHECK_FALSE(overdue_operation(0));
  const OperationNote first{"data", "reduce_scatter", 64, 3, {}};
  const OperationNote second{"tensor", "all_reduce", 32, 4, {}};
  {
    const BlockedScope outer(first);
    nap(2);
    BlockedScope inner(second);
    inner.remark("waiting for rank 1");
    CHECK_FALSE(overdue_operation(1000));
    nap(2);
    const auto overdue = overdue_operation(0.001);
    REQUIRE(overdue);
    CHECK(overdue->note.axis == "data");
    CHECK(overdue->seconds >= 0.004);
    CHECK_FALSE(overdue->failed);
    CHECK(inner.seconds() < outer.seconds());
  }
  CHECK_FALSE(overdue_operation(0));
}

TEST_CASE("watchdog: a device operation is overdue only while its probe says that it runs") {
  DeviceStatus status;
  const DeviceOperation operation({"model", "all_gather", 8, 1, {}}, [&] { return status; });
  nap(2);
  REQUIRE(overdue_operation(0.001));
  CHECK_FALSE(overdue_operation(1000));
  status.kind = DeviceStatus::Kind::kComplete;
  CHECK_FALSE(overdue_operation(0.001));
  status = {DeviceStatus::Kind::kFailed, "the peer is gone"};
  auto failed = overdue_operation(1000);
  REQUIRE(failed);
  CHECK(failed->failed);
  CHECK(failed->remark == "the peer is gone");
  CHECK(failed->cause == Cause::kOwn);
  status.cause = Cause::kLostPeer;
  failed = overdue_operation(1000);
  REQUIRE(failed);
  CHECK(failed->cause == Cause::kLostPeer);
}

TEST_CASE("watchdog: the line names rank, axis, operation, bytes, phase, step and sequence number") {
  set_step(12);
  OperationNote note{"tensor", "all_reduce", 4096, 17, {}};
  {
    const PhaseScope outer("step");
    const PhaseScope phase("backward");
    note.position = run_position();
  }
  set_step(-1);
  CHECK(std::string(run_position().phase).empty());
  CHECK(overdue_text({note, 30.04, "waiting for rank 1 of the group", false}, 30) ==
        "vit_hybrid: this process has waited 30 s for all_reduce number 17 on axis 'tensor', 4096 bytes, in step 12, "
        "backward; waiting for rank 1 of the group; the limit is --timeout 30 s: another rank is stuck, slower than "
        "that, or gone");
  CHECK(overdue_text({note, 3, "connection closed", true}, 30) ==
        "vit_hybrid: this process: all_reduce number 17 on axis 'tensor', 4096 bytes, in step 12, backward failed: "
        "connection closed; see the messages of the network and of NCCL (NCCL_DEBUG=WARN)");
  CHECK(OperationNote{"world", "barrier", 0, 0, {}}.text() == "barrier on axis 'world', 0 bytes");
}

TEST_CASE("watchdog: it ends without having fired") {
  const auto start = std::chrono::steady_clock::now();
  {
    const Watchdog watchdog(std::chrono::seconds(100));
    nap(5);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}
