// Images: labels, centre crops, keyed training crops, and bad files.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "data/datasets/image_dataset.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_writer.h"
#include "data/loading/normalize.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

constexpr int64_t kCount = 9;
constexpr int64_t kSize = 20;

void write_images(const comm::MpiGroup& group, const std::string& path, const at::Tensor& images,
                  const at::Tensor& labels, int gzip = 0) {
  if (group.rank() == 0) {
    std::vector<int64_t> chunk;
    if (gzip > 0) {
      chunk = {2, kSize, kSize, 3};
    }
    testing::write_hdf5_file(path, {{"images", images, chunk, gzip}, {"labels", labels}});
  }
  group.barrier();
}

// The same on all ranks.
at::Tensor some_images() {
  at::Tensor images = at::empty({kCount, kSize, kSize, 3}, at::kByte);
  const RandomStream stream(1, Purpose::kTest);
  for (int64_t i = 0; i < images.numel(); ++i) {
    images.data_ptr<uint8_t>()[i] = static_cast<uint8_t>(stream.bits(static_cast<uint64_t>(i)));
  }
  return images;
}

// (x / 255 - mean) / std of pixels [height, width, 3], as planes.
at::Tensor normalized(const at::Tensor& pixels) {
  const ColorStatistics statistics;
  const at::Tensor planes = pixels.permute({2, 0, 1}).to(at::kFloat).contiguous();
  for (int64_t i = 0; i < planes.numel(); ++i) {
    float& value = planes.data_ptr<float>()[i];
    const auto channel = static_cast<size_t>(3 * i / planes.numel());
    value = (value / 255.0f - statistics.mean[channel]) / statistics.std[channel];
  }
  return planes;
}

at::Tensor some_labels(at::ScalarType type) {
  at::Tensor labels = at::empty({kCount}, at::kLong);
  for (int64_t i = 0; i < kCount; ++i) {
    labels.data_ptr<int64_t>()[i] = (i * 3 + 1) % 7;
  }
  return labels.to(type);
}

}  // namespace

TEST_CASE("images: centre crops for evaluation, in every way of reading") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const at::Tensor images = some_images();
  const std::vector<int64_t> samples = {8, 0, 3, 3};
  for (const int gzip : {0, 2}) {
    const std::string path = folder.file(str("images", gzip, ".h5"));
    write_images(group, path, images, some_labels(gzip > 0 ? at::kInt : at::kLong), gzip);
    for (const IoMode mode : {IoMode::kAuto, IoMode::kIndependent, IoMode::kCollective}) {
      const ImageDataset dataset(group, {.path = path,
                                         .use = ImageUse::kEvaluation,
                                         .image_size = 16,
                                         .resized = kSize,
                                         .num_classes = 7,
                                         .io = mode});
      CHECK(dataset.size() == kCount);
      CHECK(dataset.input_shape() == std::vector<int64_t>{3, 16, 16});
      CHECK(dataset.target_shape().empty());
      CHECK(dataset.background_reads() == (mode == IoMode::kAuto));
      const Batch batch = dataset.read(samples, {}, 0);
      CHECK((batch.targets.scalar_type() == at::kLong));
      const double mean[] = {0.485, 0.456, 0.406};
      const double deviation[] = {0.229, 0.224, 0.225};
      for (size_t i = 0; i < samples.size(); ++i) {
        CHECK(batch.targets[static_cast<int64_t>(i)].item<int64_t>() == (samples[i] * 3 + 1) % 7);
        for (int64_t c = 0; c < 3; ++c) {
          const at::Tensor pixels = images[samples[i]].narrow(0, 2, 16).narrow(1, 2, 16).select(2, c).to(at::kDouble);
          const at::Tensor expected = (pixels / 255.0 - mean[c]) / deviation[c];
          const at::Tensor got = batch.inputs[static_cast<int64_t>(i)][c].to(at::kDouble);
          CHECK((got - expected).abs().max().item<double>() < 1e-5);
        }
      }
      CHECK(!dataset.read(samples, {.input = false}, 0).inputs.defined());
      CHECK(!dataset.read(samples, {.target = false}, 0).targets.defined());
    }
  }
}

TEST_CASE("images: what evaluation cuts from, by default and as asked for") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const std::string path = folder.file("i.h5");
  write_images(group, path, some_images(), some_labels(at::kLong));
  const at::Tensor image = some_images()[3].contiguous();
  constexpr int64_t kCut = 14;
  for (const auto& [asked, resized] : {std::pair{0, 16}, {16, 16}, {14, 14}, {25, 25}}) {
    const ImageDataset dataset(group,
                               {.path = path, .use = ImageUse::kEvaluation, .image_size = kCut, .resized = asked});
    at::Tensor expected = at::empty({kCut, kCut, 3}, at::kByte);
    resize_crop({image.const_data_ptr<uint8_t>(), 3 * kSize * kSize}, kSize, kSize,
                center_crop(kSize, kSize, resized, kCut), kCut, {expected.data_ptr<uint8_t>(), 3 * kCut * kCut});
    CHECK(at::equal(dataset.read(std::vector<int64_t>{3}, {}, 0).inputs[0], normalized(expected)));
    const Batch stored = dataset.read(std::vector<int64_t>{3}, {.form = ValueForm::kStored}, 0);
    CHECK(at::equal(stored.inputs[0], expected));
    REQUIRE(stored.scaling == dataset.stored_scaling());
    CHECK(at::equal(BatchNormalizer(*stored.scaling, at::kCPU).normalized(stored.inputs, at::kFloat)[0],
                    normalized(expected)));
  }
  try {
    const ImageDataset dataset(group, {.path = path, .use = ImageUse::kEvaluation, .image_size = kCut, .resized = 13});
    FAIL("a centre larger than the image was taken");
  } catch (const Error& error) {
    CHECK((error.error_class() == ErrorClass::kUsage));
    CHECK(std::string(error.what()).find("resized to 13 have no centre of 14") != std::string::npos);
  }
}

TEST_CASE("images: two files that name their classes differently are not used together") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const auto make = [&](const std::string& name, const Hdf5Attributes& attributes) {
    const std::string path = folder.file(name + ".h5");
    Hdf5Writer writer(group, path, {{"images", {2, 8, 8, 3}, at::kByte, {}}, {"labels", {2}, at::kLong, attributes}});
    if (group.rank() == 0) {
      writer.write("images", std::vector<int64_t>(4, 0), at::zeros({2, 8, 8, 3}, at::kByte));
      writer.write("labels", std::vector<int64_t>{0}, at::zeros({2}, at::kLong));
    }
    writer.finish();
    return std::make_unique<ImageDataset>(group, ImageOptions{.path = path, .image_size = 8});
  };
  const auto all = make("all", {{"classes", std::string("cat,dog,fish")}});
  const auto unnamed = make("unnamed", {});
  CHECK(all->class_names() == "cat,dog,fish");
  CHECK(unnamed->class_names().empty());
  CHECK_NOTHROW(check_same_classes(*all, *make("same", {{"classes", std::string("cat,dog,fish")}})));
  CHECK_NOTHROW(check_same_classes(*all, *unnamed));
  const auto missing = make("missing", {{"classes", std::string("cat,fish")}});
  const auto fewer = make("fewer", {{"classes", std::string("cat,dog")}});
  const Error renumbered = testing::thrown_error([&] { check_same_classes(*all, *missing); });
  CHECK((renumbered.error_class() == ErrorClass::kBadData));
  CHECK(renumbered.message() == "class 1 is 'dog' in " + all->path() + " and 'fish' in " + missing->path());
  CHECK(testing::thrown_error([&] { check_same_classes(*fewer, *all); }).message() ==
        "class 2 is not there in " + fewer->path() + " and 'fish' in " + all->path());
  group.barrier();
}

TEST_CASE("images: training crops are keyed by seed, epoch and sample alone") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  write_images(group, folder.file("i.h5"), some_images(), some_labels(at::kLong));
  const auto read = [&](uint64_t seed, int64_t epoch, const std::vector<int64_t>& samples) {
    const ImageDataset dataset(group, {.path = folder.file("i.h5"), .image_size = 12, .seed = seed});
    return dataset.read(samples, {}, epoch).inputs;
  };
  const at::Tensor together = read(5, 2, {4, 7, 4});
  CHECK(at::equal(together[0], together[2]));
  CHECK(at::equal(together[1], read(5, 2, {7})[0]));  // whoever reads it, in whatever batch
  CHECK(!at::equal(together[1], read(5, 3, {7})[0]));
  CHECK(!at::equal(together[1], read(6, 2, {7})[0]));
  const ImageDataset dataset(group, {.path = folder.file("i.h5"), .image_size = 12, .seed = 5});
  at::Tensor expected = at::empty({12, 12, 3}, at::kByte);
  const at::Tensor image = some_images()[7].contiguous();
  resize_crop({image.const_data_ptr<uint8_t>(), 3 * kSize * kSize}, kSize, kSize,
              random_resized_crop(RandomStream(5, Purpose::kAugmentation, 2, 7), kSize, kSize), 12,
              {expected.data_ptr<uint8_t>(), 3 * 12 * 12});
  CHECK(at::equal(together[1], normalized(expected)));
}

TEST_CASE("images: files that do not fit are one error on all ranks") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  struct Case {
    at::Tensor images;
    at::Tensor labels;
    const char* message;
  };
  const at::Tensor good = at::zeros({4, 8, 8, 3}, at::kByte);
  const at::Tensor labels = at::zeros({4}, at::kLong);
  at::Tensor large = at::zeros({4}, at::kLong);
  large.data_ptr<int64_t>()[2] = 7;
  int number = 0;
  for (const Case& c :
       {Case{at::zeros({4, 8, 8, 4}, at::kByte), labels, "needed is uint8 (number, height, width, 3)"},
        Case{at::zeros({4, 8, 8, 3}, at::kFloat), labels, "is Float"},
        Case{good, at::zeros({5}, at::kLong), "has 5 values for 4 images"},
        Case{good, at::zeros({4}, at::kFloat), "needed are integers"},
        Case{good, at::zeros({4, 1}, at::kLong), "of 2 dims"}, Case{good, large, "holds the class 7 at 2"},
        Case{good, at::zeros({4}, at::kLong) - 1, "class -1"}}) {
    const std::string path = folder.file(str(number++, ".h5"));
    write_images(group, path, c.images, c.labels);
    std::string caught = "nothing was thrown";
    try {
      const ImageDataset dataset(group, {.path = path, .image_size = 8, .num_classes = 7});
    } catch (const Error& error) {
      CHECK((error.error_class() == ErrorClass::kBadData));
      caught = error.what();
    }
    CHECK(caught.find(path) != std::string::npos);
    CHECK(caught.find(c.message) != std::string::npos);
    CHECK(group.broadcast(caught, 0) == caught);
  }
}

TEST_CASE("images: labels that may be missing are found by every name that HDF5 finds them by") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const std::string path = folder.file("x.h5");
  write_images(group, path, some_images(), some_labels(at::kLong));
  if (group.rank() == 0) {
    const Hid file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose);
    REQUIRE(H5Lcreate_soft("/labels", file.get(), "linked", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  }
  group.barrier();
  const auto has_labels = [&](const std::string& name) {
    const ImageDataset images(group, {.path = path, .labels = name, .labels_needed = false, .image_size = 8});
    return images.has_labels();
  };
  for (const char* name : {"labels", "/labels", "./labels", "linked"}) {
    CHECK_MESSAGE(has_labels(name), name);
  }
  for (const char* name : {"label", "none/labels"}) {
    CHECK_MESSAGE(!has_labels(name), name);
  }
}

}  // namespace vit_hybrid::data
