// The input of a replica: bands of rows read by its ranks and put together, each byte once, from any position on.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/loading/step_input.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/text.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/scratch_folder.h"

namespace vit_hybrid::train {
namespace {

constexpr int64_t kTimes = 14;
constexpr int64_t kChannels = 3;
constexpr int64_t kHeight = 9;
constexpr int64_t kWidth = 5;

struct Layout {
  const char* name;
  std::vector<int64_t> chunk;
  int gzip;
  int64_t band_unit;
};

void write_year(const comm::MpiGroup& group, const std::string& path, const Layout& layout) {
  if (group.rank() == 0) {
    const at::Tensor values =
        at::arange(kTimes * kChannels * kHeight * kWidth, at::kFloat).reshape({kTimes, kChannels, kHeight, kWidth});
    testing::write_hdf5_file(path, {{"fields", values, layout.chunk, layout.gzip}});
  }
  group.barrier();
}

// The ranks as one replica of `tp` ranks, or several of them.
mesh::DeviceMesh make_mesh(const comm::MpiGroup& group, int tp) {
  return mesh::DeviceMesh(mesh::ParallelDims(group.size() / tp, tp, 1), group, c10::Device(at::kCPU));
}

struct Reading {
  int64_t num_batches = 0;
  int64_t bytes_whole = 0;  // that a replica reads of which one rank reads everything
  int64_t bytes = 0;        // that this rank has read
};

// Takes all micro-batches of the epochs from `start` on and compares them with samples read whole.
Reading read_all(const comm::MpiGroup& group, mesh::DeviceMesh& mesh, const data::WeatherOptions& options,
                 data::SamplePosition start, int64_t num_steps) {
  const data::WeatherDataset dataset(group, options);
  const data::WeatherDataset whole(group, options);
  const auto sampler = std::make_shared<data::DistributedSampler>(
      data::SamplerOptions{.num_samples = dataset.size(), .global_batch_size = 4, .seed = 3});
  Reading result;
  {
    const data::ReplicaShare share{mesh.data().rank(), mesh.data().size(), 2};
    data::StepInput input(dataset, sampler, mesh.tensor(),
                          {share, num_steps, start, {.prefetch_depth = 3, .num_threads = 2}});
    data::EpochPlan plan = sampler->epoch(start.epoch, start.first_sample);
    int64_t step_of_epoch = 0;
    for (int64_t step = 0; step < num_steps; ++step, ++step_of_epoch) {
      while (step_of_epoch == plan.num_steps()) {
        plan = sampler->epoch(plan.epoch() + 1);
        step_of_epoch = 0;
      }
      const auto next = input.open_step(plan, step_of_epoch);
      for (const auto& samples : input.micro_batches(plan, step_of_epoch)) {
        const data::Batch batch = next();
        CHECK(batch.samples == samples);
        const data::Batch expected =
            options.io == data::IoMode::kCollective ? batch : whole.read(samples, {}, plan.epoch());
        REQUIRE(batch.inputs.sizes() ==
                at::IntArrayRef({static_cast<int64_t>(samples.size()), kChannels, kHeight, kWidth}));
        CHECK(at::equal(batch.inputs, expected.inputs));
        CHECK(at::equal(batch.targets, expected.targets));
        for (size_t i = 0; i < samples.size(); ++i) {  // the values tell where they come from
          const at::Tensor first = batch.targets[static_cast<int64_t>(i)].flatten();
          CHECK(first[0].item<double>() == static_cast<double>((samples[i] + 1) * kChannels * kHeight * kWidth));
        }
        ++result.num_batches;
      }
    }
  }
  result.bytes_whole = whole.bytes_read();
  result.bytes = dataset.bytes_read();
  return result;
}

}  // namespace

TEST_CASE("step input: the ranks of a replica read each byte once, and all have the whole samples") {
  const auto group = comm::MpiGroup::world();
  for (int tp = 1; tp <= group.size(); tp *= 2) {
    CAPTURE(tp);
    mesh::DeviceMesh mesh = make_mesh(group, tp);
    for (const Layout& layout :
         {Layout{"contiguous", {}, 0, 1}, Layout{"rows", {1, kChannels, 2, kWidth}, 0, 2},
          Layout{"whole", {1, kChannels, kHeight, kWidth}, 2, kHeight}, Layout{"planes", {1, 1, 4, kWidth}, 2, 4}}) {
      CAPTURE(std::string(layout.name));
      const testing::ScratchFolder folder(group);
      write_year(group, folder.file("1990.h5"), layout);
      for (const data::IoMode mode : {data::IoMode::kDirect, data::IoMode::kIndependent, data::IoMode::kCollective}) {
        const data::WeatherOptions options{.folder = folder.path(), .global_means = {}, .global_stds = {}, .io = mode};
        CHECK(data::WeatherDataset(group, options).cuts().row_unit == layout.band_unit);
        const Reading reading = read_all(group, mesh, options, {}, 5);
        if (mode != data::IoMode::kDirect) {
          continue;
        }
        // Every rank of the replica has compared with its own whole reading.
        CHECK(group.sum(reading.bytes) * tp == group.sum(reading.bytes_whole));
        if (tp == 1) {
          CHECK(reading.bytes == reading.bytes_whole);
        }
      }
    }
  }
}

TEST_CASE("step input: it goes on where a run stopped, with the rest of the epoch") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  write_year(group, folder.file("1990.h5"), {"contiguous", {}, 0, 1});
  mesh::DeviceMesh mesh = make_mesh(group, group.size());
  const data::WeatherOptions options{.folder = folder.path(), .global_means = {}, .global_stds = {}};
  // 13 samples: after 5 of them 4 + 4 are left, after 13 nothing is, then the next epoch comes.
  CHECK(read_all(group, mesh, options, {1, 5}, 2).num_batches == 4);
  CHECK(read_all(group, mesh, options, {1, 5}, 4).num_batches == 8);
  CHECK(read_all(group, mesh, options, {0, 13}, 1).num_batches == 2);
  CHECK(read_all(group, mesh, options, {2, 12}, 2).num_batches == 3);
}

}  // namespace vit_hybrid::train
