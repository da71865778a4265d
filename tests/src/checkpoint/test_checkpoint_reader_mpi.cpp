// Checkpoints read by all ranks: the same table and bytes, weights in every layout, one agreed error for every damage.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "data/hdf5/hdf5_tree.h"
#include "data/hdf5/hdf5_writer.h"
#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/slice_reader.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/mpi_test.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::train {
namespace {

namespace fs = std::filesystem;
using testing::agreed_error;
using testing::contains;
using testing::on_rank_0;
using testing::ScratchFolder;
using testing::small_classifier;
using testing::small_forecaster;
using testing::test_parameters;

NamedWeights weights_of(const model::VitOptions& options, at::ScalarType type = at::kFloat) {
  NamedWeights weights;
  for (const auto& [name, values] : test_parameters(options)) {
    weights[name] = values.to(type).contiguous();
  }
  return weights;
}

CheckpointInfo info_of(const model::VitOptions& options) {
  CheckpointInfo info;
  info.version = "0.0.1";
  info.git_commit = "abc+changes";
  info.config = "seed: 3\nname: \"caf\xc3\xa9\"\n";
  info.model = model_json(options);
  info.step = 17;
  info.optimizer_steps = 16;
  info.epoch = 2;
  info.samples_of_epoch = 5;
  info.seed = 3;
  info.num_samples = 40;
  info.layout = "dp 1 x tp 1 x pp 1";
  info.metric = "loss";
  info.metric_value = 0.125;
  return info;
}

void flip_bit(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const auto byte = static_cast<char>(file.get() ^ 4);
  file.seekp(offset);
  file.put(byte);
}

// A table of chosen kernels of this many bytes.
std::string kernels_of_bytes(size_t bytes) {
  std::string text;
  for (size_t line = 0; text.size() < bytes; ++line) {
    text += str("forward R", line, " M2304 K768\t0011223344\ttile 128x256\t", line, ".5\t2\n");
  }
  text.resize(bytes);
  return text;
}

// The slice of the model that this rank holds in a layout, and its groups.
struct Slice {
  Slice(const model::VitOptions& options, const mesh::ParallelDims& dims, const comm::MpiGroup& world)
      : device_mesh(dims, world, c10::Device(c10::kCPU)) {
    const auto at = device_mesh.coordinate();
    const auto stages = pipeline::partition_stages(model::unit_costs(options), dims.pipeline());
    const int stage = on(at, mesh::Axis::kPipeline);
    specs = model::parameter_specs(options, stages[static_cast<size_t>(stage)], stage, on(at, mesh::Axis::kTensor),
                                   dims.tensor());
  }
  tensor::ParameterBuffer buffer(at::ScalarType type) const {
    return {specs, tensor::make_flat_layout(specs, 1000, 1), type, type, c10::Device(c10::kCPU)};
  }
  mesh::DeviceMesh device_mesh;
  std::vector<tensor::ParameterSpec> specs;
};

}  // namespace

TEST_CASE("checkpoint reader: every rank has what was written") {
  const auto world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const auto options = small_classifier(model::Pooling::kToken);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const NamedWeights weights = weights_of(options, type);
    const CheckpointInfo info = info_of(options);
    write_weights(world, folder.file("step-17.h5"), info, weights);
    on_rank_0(world, [&] { std::ofstream(folder.file("latest")) << "step-17.h5\n"; });
    const CheckpointReader reader(world, folder.path());
    CHECK(reader.path() == folder.file("step-17.h5"));
    CHECK(!reader.has_optimizer());
    CHECK(reader.info().config == info.config);
    CHECK(reader.info().model == info.model);
    CHECK(reader.info().git_commit == info.git_commit);
    CHECK(reader.info().step == 17);
    CHECK(reader.info().samples_of_epoch == 5);
    CHECK(reader.info().metric_value == 0.125);
    REQUIRE(reader.tensors().size() == weights.size());
    for (const auto& [name, values] : weights) {
      const CheckpointTensor* const entry = reader.find("parameters/" + name);
      REQUIRE(entry != nullptr);
      CHECK((entry->type == type));
      CHECK(at::equal(reader.read(entry->path), values));
    }
    CHECK(reader.find("parameters/none") == nullptr);
    const std::vector<int64_t> start = {5, 3};
    const std::vector<int64_t> size = {40, 7};
    const auto box = reader.read("parameters/blocks.1.attn.qkv.weight", start, size);
    CHECK(at::equal(box, weights.at("blocks.1.attn.qkv.weight").narrow(0, 5, 40).narrow(1, 3, 7)));
    world.barrier();
  }
}

TEST_CASE("checkpoint reader: a table of kernels of any size is read, and damage in it found") {
  const auto world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const auto options = small_forecaster();
  // Up to 60,000 bytes they are one attribute, as they were in files before there were longer ones.
  const std::vector<std::string> names = {"kernels", "kernels.1", "kernels.2", "kernels.3", "kernels.4"};
  const std::vector<std::pair<size_t, size_t>> cases = {{0, 1}, {59999, 1}, {60000, 1}, {60001, 2}, {200000, 4}};
  for (const auto& [bytes, num_attributes] : cases) {
    CAPTURE(bytes);
    CheckpointInfo info = info_of(options);
    info.kernels = kernels_of_bytes(bytes);
    const std::string path = folder.file(str(bytes, ".h5"));
    write_weights(world, path, info, weights_of(options));
    const CheckpointReader reader(world, path);
    CHECK(reader.info().kernels == info.kernels);
    CHECK(reader.info().layout == info.layout);
    CHECK(data::read_hdf5_tree(path, names, {}).attributes.size() == num_attributes);
    world.barrier();
    if (bytes > 0) {
      on_rank_0(world, [&] {
        std::ifstream file(path, std::ios::binary);
        const std::string content{std::istreambuf_iterator<char>(file), {}};
        const size_t place = content.find(info.kernels.substr(bytes / 2, 40));
        REQUIRE(place != std::string::npos);
        flip_bit(path, static_cast<int64_t>(place));
      });
      const Error damaged = agreed_error(world, [&] { CheckpointReader(world, path); });
      CHECK((damaged.error_class() == ErrorClass::kBadData));
      CHECK(contains(damaged.message(), "is damaged: the bytes from "));
    }
  }
}

TEST_CASE("checkpoint reader: what is no checkpoint is one error") {
  const auto world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const auto options = small_forecaster();
  const auto refused = [&](const std::string& path) {
    return agreed_error(world, [&] { CheckpointReader(world, path); });
  };
  CHECK((refused(folder.file("none.h5")).error_class() == ErrorClass::kMissingInput));
  CHECK((refused(folder.path()).error_class() == ErrorClass::kMissingInput));
  on_rank_0(world, [&] { std::ofstream(folder.file("latest")) << "../elsewhere.h5"; });
  CHECK((refused(folder.path()).error_class() == ErrorClass::kBadData));
  on_rank_0(world, [&] {
    std::ofstream(folder.file("text.h5")) << "not HDF5";
    testing::write_hdf5_file(folder.file("data.h5"), {{"fields", at::ones({2, 3})}});
  });
  CHECK((refused(folder.file("text.h5")).error_class() == ErrorClass::kBadData));
  CHECK(contains(refused(folder.file("data.h5")).message(), "no checkpoint"));

  CheckpointInfo newer = info_of(options);
  newer.format = kCheckpointFormat + 1;
  write_weights(world, folder.file("newer.h5"), newer, weights_of(options));
  CHECK(contains(refused(folder.file("newer.h5")).hint(), "newer"));
  CheckpointInfo older = info_of(options);
  older.format = 0;
  write_weights(world, folder.file("older.h5"), older, weights_of(options));
  CHECK(contains(refused(folder.file("older.h5")).hint(), "older"));

  // A changed digit of an attribute: the git commit, whose text lies in the file as it is.
  write_weights(world, folder.file("digit.h5"), info_of(options), weights_of(options));
  on_rank_0(world, [&] {
    std::ifstream file(folder.file("digit.h5"), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    flip_bit(folder.file("digit.h5"), static_cast<int64_t>(bytes.find("abc+changes")));
  });
  CHECK(contains(refused(folder.file("digit.h5")).message(), "digit.h5 is damaged: the bytes from "));

  write_weights(world, folder.file("cut.h5"), info_of(options), weights_of(options));
  on_rank_0(world, [&] { fs::resize_file(folder.file("cut.h5"), fs::file_size(folder.file("cut.h5")) - 100); });
  CHECK((refused(folder.file("cut.h5")).error_class() == ErrorClass::kBadData));
}

TEST_CASE("checkpoint reader: weights in every layout") {
  const auto world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  for (const auto& options :
       {small_forecaster(), small_classifier(model::Pooling::kToken), small_classifier(model::Pooling::kMean)}) {
    const NamedWeights weights = weights_of(options);
    const std::string path = folder.file("weights.h5");
    write_weights(world, path, info_of(options), weights);
    const CheckpointReader reader(world, path);
    for (int tp = 1; tp <= world.size(); ++tp) {
      for (int pp = 1; pp <= std::min(world.size() / tp, 4); ++pp) {
        if (world.size() % (tp * pp) != 0) {
          continue;
        }
        Slice slice(options, mesh::ParallelDims(world.size() / (tp * pp), tp, pp), world);
        auto buffer = slice.buffer(at::kDouble);
        const int64_t version = buffer.version();
        load_parameters(reader, buffer.specs(), buffer, slice.device_mesh.model());
        CHECK(buffer.version() > version);
        for (const auto& spec : slice.specs) {
          CAPTURE(spec.name);
          const auto expected = testing::scatter_local(spec, weights.at(spec.name)).to(at::kDouble);
          CHECK(at::equal(buffer.parameter(spec.name).value, expected));
        }
      }
    }
    world.barrier();
  }
}

TEST_CASE("checkpoint reader: a changed bit, and another model, are refused by all ranks") {
  const auto world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const auto options = small_forecaster();
  const std::string path = folder.file("weights.h5");
  write_weights(world, path, info_of(options), weights_of(options));
  const int pp = world.size() % 2 == 0 ? 2 : 1;
  const mesh::ParallelDims dims(1, world.size() / pp, pp);
  const auto refused = [&](const model::VitOptions& wanted) {
    Slice slice(wanted, dims, world);
    auto buffer = slice.buffer(at::kFloat);
    const CheckpointReader reader(world, path);
    return agreed_error(world, [&] { load_parameters(reader, buffer.specs(), buffer, slice.device_mesh.model()); });
  };
  auto wider = options;
  wider.mlp_hidden = 58;
  const Error misfit = refused(wider);
  CHECK((misfit.error_class() == ErrorClass::kUsage));
  CHECK(contains(misfit.message(), "mlp-hidden"));
  CHECK(contains(misfit.message(), "50 x 24"));
  auto deeper = options;
  deeper.depth = 3;
  CHECK(contains(refused(deeper).message(), "blocks.2"));
  auto shallower = options;
  shallower.depth = 1;
  CHECK(contains(refused(shallower).message(), "blocks.1"));

  for (const char* name : {"blocks.1.attn.qkv.weight", "pos_embed", "head.weight"}) {
    const std::string dataset = std::string("parameters/") + name;
    const CheckpointReader reader(world, path);
    const int64_t offset = reader.find(dataset)->offset + 11;
    world.barrier();
    on_rank_0(world, [&] { flip_bit(path, offset); });
    const Error damaged = refused(options);
    CHECK((damaged.error_class() == ErrorClass::kBadData));
    CHECK(contains(damaged.message(), dataset));
    world.barrier();
    on_rank_0(world, [&] { flip_bit(path, offset); });
  }
}

}  // namespace vit_hybrid::train
