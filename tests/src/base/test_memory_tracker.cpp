// The memory tracker counts every tensor byte by the class of the scope that made it.
#include <ATen/ThreadLocalState.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <thread>

#include "src/base/memory_tracker.h"

using namespace vit_hybrid;

namespace {
int64_t current(MemoryClass memory_class) {
  return MemoryTracker::report().current[static_cast<size_t>(memory_class)];
}
}  // namespace

TEST_CASE("memory_tracker: bytes go to the innermost scope and come back when freed") {
  const MemoryTracker::Attachment attachment;
  const int64_t before_data = current(MemoryClass::kData);
  const int64_t before_gradients = current(MemoryClass::kGradients);
  {
    const MemoryScope outer(MemoryClass::kData);
    const at::Tensor data = at::zeros({1000}, at::kFloat);
    at::Tensor gradients;
    {
      const MemoryScope inner(MemoryClass::kGradients);
      gradients = at::zeros({500}, at::kDouble);
    }
    CHECK(current(MemoryClass::kData) - before_data == 4000);
    CHECK(current(MemoryClass::kGradients) - before_gradients == 4000);
  }
  CHECK(current(MemoryClass::kData) == before_data);
  CHECK(current(MemoryClass::kGradients) == before_gradients);
}

TEST_CASE("memory_tracker: what no scope claims is untagged") {
  const MemoryTracker::Attachment attachment;
  const int64_t before = current(MemoryClass::kUntagged);
  const at::Tensor stray = at::empty({10}, at::kByte);
  CHECK(current(MemoryClass::kUntagged) - before == 10);
}

TEST_CASE("memory_tracker: peaks are of the class, of the total, and of each class at the total's peak") {
  const MemoryTracker::Attachment attachment;
  MemoryTracker::reset_peaks();
  const MemoryReport start = MemoryTracker::report();
  const auto of = [](const auto& bytes, MemoryClass memory_class) { return bytes[static_cast<size_t>(memory_class)]; };
  {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const at::Tensor small = at::empty({100}, at::kByte);
  }
  {
    const MemoryScope scope(MemoryClass::kActivations);
    const at::Tensor large = at::empty({1000}, at::kByte);
  }
  const MemoryReport end = MemoryTracker::report();
  CHECK(of(end.peak, MemoryClass::kWorkspaces) - of(start.current, MemoryClass::kWorkspaces) == 100);
  CHECK(of(end.at_peak, MemoryClass::kWorkspaces) == of(start.current, MemoryClass::kWorkspaces));
  CHECK(end.total_peak - start.total_current == 1000);
  CHECK(end.total_current == start.total_current);
}

TEST_CASE("memory_tracker: a block freed by another attached thread is given back to its class") {
  const MemoryTracker::Attachment attachment;
  const int64_t before = current(MemoryClass::kData);
  at::Tensor block;
  std::thread([&block] {
    const MemoryTracker::Attachment inner;
    const MemoryScope scope(MemoryClass::kData);
    block = at::empty({64}, at::kByte);
  }).join();
  CHECK(current(MemoryClass::kData) - before == 64);
  block.reset();
  CHECK(current(MemoryClass::kData) == before);
}

TEST_CASE(
    "memory_tracker: a thread that computes for the attached one, as autograd's do, charges what is active there") {
  const MemoryTracker::Attachment attachment;
  const MemoryScope scope(MemoryClass::kActivations);
  const int64_t before = current(MemoryClass::kActivations);
  const int64_t before_untagged = current(MemoryClass::kUntagged);
  const at::ThreadLocalState state;
  at::Tensor of_backward, of_own;
  std::thread([&] {
    const at::ThreadLocalStateGuard guard(state);
    of_backward = at::empty({64}, at::kByte);
    const MemoryTracker::Attachment own;  // from here on it computes for itself
    of_own = at::empty({8}, at::kByte);
  }).join();
  CHECK(current(MemoryClass::kActivations) - before == 64);
  CHECK(current(MemoryClass::kUntagged) - before_untagged == 8);
}

TEST_CASE("memory_tracker: an allocation that fails leaves what was asked for, and what was held") {
  const MemoryTracker::Attachment attachment;
  constexpr int64_t kTooMuch = int64_t{1} << 46;
  {
    const MemoryScope gradients(MemoryClass::kGradients);
    const at::Tensor held = at::empty({1000}, at::kByte);
    const MemoryScope scope(MemoryClass::kActivations);
    CHECK_THROWS(at::empty({kTooMuch}, at::kByte));
  }
  const auto failure = MemoryTracker::last_failure();
  REQUIRE(failure);
  CHECK(failure->bytes == kTooMuch);
  CHECK(failure->memory_class == MemoryClass::kActivations);
  CHECK(failure->device.is_cpu());
  CHECK(failure->held.current[static_cast<size_t>(MemoryClass::kGradients)] == current(MemoryClass::kGradients) + 1000);
}

TEST_CASE("memory failure: a sentence with the numbers, the largest class first") {
  MemoryFailure failure;
  failure.bytes = int64_t{3} << 29;
  failure.memory_class = MemoryClass::kActivations;
  failure.device = c10::Device(c10::kCUDA, 0);
  failure.unused_bytes = int64_t{1} << 28;
  failure.held.current[static_cast<size_t>(MemoryClass::kParameters)] = int64_t{4} << 30;
  failure.held.current[static_cast<size_t>(MemoryClass::kActivations)] = int64_t{60} << 30;
  failure.held.total_current = int64_t{64} << 30;
  CHECK(memory_failure_text(failure, int64_t{80} << 30) ==
        "out of memory: 1.50 GiB were asked for activations on cuda:0, which has 80.0 GiB; held are 64.0 GiB "
        "(activations 60.0 GiB, parameters 4.00 GiB), and 256 MiB in pieces that do not fit");
  failure.device = c10::Device(c10::kCPU);
  failure.unused_bytes = 0;
  failure.bytes = 1000;
  CHECK(memory_failure_text(failure, 0) ==
        "out of memory: 1000 bytes were asked for activations on cpu; held are 64.0 GiB (activations 60.0 GiB, "
        "parameters 4.00 GiB)");
}
