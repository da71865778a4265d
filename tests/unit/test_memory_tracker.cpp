// The memory tracker counts every tensor byte by the class of the scope that made it.
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
