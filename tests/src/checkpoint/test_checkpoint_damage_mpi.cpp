// Damage of a checkpoint anywhere: each byte of the file is answered for, by the seal or by a tensor's checksum.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "data/reading/file_seal.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/verify.h"
#include "tests/support/contains.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::train {
namespace {

using testing::contains;
using testing::thrown_error;

void write_small_checkpoint(const comm::MpiGroup& world, const std::string& path, CheckpointInfo info = {}) {
  const auto options = testing::small_forecaster();
  NamedWeights weights;
  for (const auto& [name, values] : testing::test_parameters(options)) {
    weights[name] = values.to(at::kFloat).contiguous();
  }
  info.model = model_json(options);
  write_weights(world, path, info, weights);
}

// Calls `check(offset)` for every seventh byte of the range with one of its bits flipped.
template <class Check>
void with_flipped_bits(const std::string& path, Range range, const Check& check) {
  const data::PosixFile file(path, data::PosixFile::Access::kUpdate);
  for (int64_t offset = range.begin; offset < range.end; offset += 7) {
    char byte = 0;
    file.read(offset, &byte, 1);
    const auto flipped = static_cast<char>(byte ^ (1 << (offset / 7 % 8)));
    file.write(offset, &flipped, 1);
    check(offset);
    file.write(offset, &byte, 1);
  }
}

std::vector<Range> extents(const CheckpointReader& reader) {
  std::vector<Range> ranges;
  for (const CheckpointTensor& tensor : reader.tensors()) {
    int64_t bytes = static_cast<int64_t>(c10::elementSize(tensor.type));
    for (const int64_t size : tensor.shape) {
      bytes *= size;
    }
    ranges.push_back({tensor.offset, tensor.offset + bytes});
  }
  return ranges;
}

}  // namespace

TEST_CASE("checkpoint damage: a flipped bit is found wherever it is") {
  const auto world = comm::MpiGroup::world();
  const testing::ScratchFolder folder(world);
  const std::string path = folder.file("weights.h5");
  write_small_checkpoint(world, path);
  testing::on_rank_0(world, [&] {
    const CheckpointReader whole(path);
    const auto sealed = data::check_seal(path);
    REQUIRE(sealed.has_value());
    std::vector<Range> all = extents(whole);
    const size_t num_tensors = all.size();
    all.insert(all.end(), sealed->begin(), sealed->end());
    std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    int64_t covered = 0;
    for (const Range& range : all) {
      CHECK(range.begin == covered);  // no byte twice, none left out
      covered = range.end;
    }
    CHECK(covered == data::PosixFile(path, data::PosixFile::Access::kRead).size());
    CHECK(sealed->size() < num_tensors);  // HDF5's own structures lie together

    int64_t unseen = 0;
    for (const Range& range : *sealed) {
      with_flipped_bits(path, range, [&](int64_t) {
        const Error error = thrown_error([&] { const CheckpointReader reader(path); });
        unseen += error.error_class() == ErrorClass::kBadData && contains(error.message(), path) ? 0 : 1;
      });
    }
    CHECK(unseen == 0);
    for (const Range& range : extents(whole)) {
      with_flipped_bits(path, range, [&](int64_t) {
        const Error error = thrown_error([&] { verify_checkpoint(whole); });
        unseen += error.error_class() == ErrorClass::kBadData && contains(error.message(), "checksum") ? 0 : 1;
      });
    }
    CHECK(unseen == 0);
    verify_checkpoint(CheckpointReader(path));
  });
}

TEST_CASE("checkpoint damage: a sealed file that tells of an impossible position is refused with value and range") {
  const auto world = comm::MpiGroup::world();
  const testing::ScratchFolder folder(world);
  const std::string path = folder.file("weights.h5");
  constexpr int64_t kMost = int64_t{1} << 48;
  const auto refused = [&](const std::function<void(CheckpointInfo&)>& change, const std::string& text) {
    CheckpointInfo info;
    info.step = 10;
    info.num_samples = 64;
    change(info);
    write_small_checkpoint(world, path, info);
    world.barrier();
    const Error error = testing::agreed_error(world, [&] { const CheckpointReader reader(world, path); });
    CAPTURE(error.message());
    CHECK(error.error_class() == ErrorClass::kBadData);
    CHECK(contains(error.message(), text));
  };
  refused([](auto& info) { info.step = -1; }, "'step' of " + path + " is -1; allowed: 0 to 281474976710656");
  refused([](auto& info) { info.step = kMost + 1; }, "'step' of " + path + " is 281474976710657");
  refused([](auto& info) { info.epoch = int64_t{1} << 62; }, "'epoch' of ");
  refused([](auto& info) { info.epoch = -1; }, "'epoch' of ");
  refused([](auto& info) { info.samples_of_epoch = 65; }, "'samples_of_epoch' of " + path + " is 65; allowed: 0 to 64");
  refused([](auto& info) { info.samples_of_epoch = -1; }, "'samples_of_epoch' of ");
  refused([](auto& info) { info.num_samples = -1; }, "'num_samples' of ");
  refused([](auto& info) { info.optimizer_steps = 11; }, "'optimizer_steps' of " + path + " is 11; allowed: 0 to 10");
  refused([](auto& info) { info.optimizer_steps = -1; }, "'optimizer_steps' of ");
  refused([](auto& info) { info.good_steps = 11; }, "'good_steps' of ");
  refused([](auto& info) { info.skipped_steps = -1; }, "'skipped_steps' of ");
  for (const double scale : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    refused([&](auto& info) { info.loss_scale = scale; }, "'loss_scale' of ");
  }
}

}  // namespace vit_hybrid::train
