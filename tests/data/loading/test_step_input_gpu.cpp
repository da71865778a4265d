// Batches in page-locked memory: what data sets hand over, and that it is not used again while a copy reads it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "data/datasets/augmentation.h"
#include "data/datasets/memory_dataset.h"
#include "data/datasets/weather_dataset.h"
#include "data/loading/prefetch_loader.h"
#include "data/loading/tensor_pool.h"
#include "tests/support/gpu/own_gpu.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/mpi_test.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

void check_pinned(const data::Dataset& dataset) {
  const std::vector<int64_t> samples = {1, 0};
  for (const auto memory : {data::HostMemory::kPinned, data::HostMemory::kPageable}) {
    data::Parts parts;
    parts.memory = memory;
    const data::Batch batch = dataset.read(samples, parts, 0);
    CHECK(batch.inputs.is_pinned() == (memory == data::HostMemory::kPinned));
    CHECK(batch.targets.is_pinned() == (memory == data::HostMemory::kPinned));
  }
}

}  // namespace

TEST_SUITE_BEGIN("one rank");

TEST_CASE("pinned batches: every data set hands them over where they are asked for, and only there") {
  check_pinned(data::MemoryDataset(at::ones({4, 3}), at::arange(4, at::kLong), {}));
  check_pinned(data::SyntheticDataset::fields(4, {2, 8, 8}, 1));
  check_pinned(data::MixupDataset(
      std::make_unique<data::SyntheticDataset>(data::SyntheticDataset::images(4, {3, 8, 8}, 5, 1)), {1.0, 4, 5, 1}));
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  if (world.rank() == 0) {
    write_hdf5_file(folder.file("1990.h5"), {{"fields", counted({4, 2, 8, 8})}});
  }
  world.barrier();
  data::WeatherOptions options;
  options.folder = folder.path();
  check_pinned(data::WeatherDataset(world, options));
}

// The device is busy when the copies are started, so the host is far ahead of them: memory that came back to a pool at
// once would be overwritten before it is read.
TEST_CASE("pinned batches: memory of a batch that was given up is not used again before its copy is over") {
  const c10::Device device = own_gpu();
  constexpr int64_t kValues = int64_t{1} << 22;
  data::TensorPool pool;
  at::Tensor busy = at::ones({4096, 4096}, at::TensorOptions(at::kFloat).device(device));
  for (int i = 0; i < 20; ++i) {
    busy = busy.mm(busy).div_(4096.0);
  }
  std::vector<at::Tensor> copies;
  for (int64_t i = 0; i < 20; ++i) {
    at::Tensor batch = pool.take({kValues}, at::kFloat, data::HostMemory::kPinned);
    batch.fill_(static_cast<double>(i));
    copies.push_back(data::to_device(batch, device, at::kFloat));
  }
  for (int64_t i = 0; i < 20; ++i) {
    CHECK(copies[static_cast<size_t>(i)].eq(static_cast<double>(i)).all().item<bool>());
  }
}

TEST_SUITE_END();
