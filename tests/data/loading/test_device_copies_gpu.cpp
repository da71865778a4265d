// Batches that are copied one ahead: their values on the device, while the device is busy with earlier ones.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "data/datasets/memory_dataset.h"
#include "data/loading/prefetch_loader.h"
#include "tests/support/gpu/own_gpu.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr int64_t kBatches = 12;
constexpr int64_t kValues = int64_t{1} << 20;

// Sample i holds i everywhere; batch b asks for sample b alone.
data::RequestSource one_by_one() {
  return [next = int64_t{0}]() mutable -> std::optional<data::ReadRequest> {
    if (next == kBatches) {
      return std::nullopt;
    }
    return data::ReadRequest{{next++}, 0};
  };
}

}  // namespace

TEST_SUITE_BEGIN("one rank");

TEST_CASE("device copies: every batch has its values, in order, though the device is behind") {
  const c10::Device device = own_gpu();
  const at::Tensor inputs = at::arange(kBatches, at::kFloat).view({kBatches, 1}).expand({kBatches, kValues});
  const data::MemoryDataset dataset(inputs.contiguous(), at::arange(kBatches, at::kLong), {});
  data::LoaderOptions options;
  options.parts.memory = data::HostMemory::kPinned;
  data::PrefetchLoader loader(dataset, one_by_one(), options);
  data::DeviceCopies copies(loader, device);
  at::Tensor busy = at::ones({4096, 4096}, at::TensorOptions(at::kFloat).device(device));
  std::vector<at::Tensor> sums;
  for (int64_t i = 0; i < kBatches; ++i) {
    const std::optional<data::Batch> batch = copies.next();
    REQUIRE(batch.has_value());
    CHECK(batch->samples == std::vector<int64_t>{i});
    CHECK(batch->inputs.device() == device);
    busy = busy.mm(busy).div_(4096.0);  // later batches arrive while this runs
    sums.push_back(batch->inputs.sum() + batch->targets.sum());
  }
  CHECK(!copies.next().has_value());
  for (int64_t i = 0; i < kBatches; ++i) {
    CHECK(sums[static_cast<size_t>(i)].item<double>() == static_cast<double>(i * (kValues + 1)));
  }
}

TEST_SUITE_END();
