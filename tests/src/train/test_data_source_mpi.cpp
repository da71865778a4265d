// The data sets of a run, opened from its configuration.
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <cmath>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/run_config.h"
#include "src/train/data_source.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;

namespace {

// Resized pixels are rounded to bytes; then (x / 255 - 0.485) / 0.229.
constexpr double kHalfByte = 0.501 / 255.0 / 0.229;

}  // namespace

TEST_CASE("data source: a validation image shows 224/256 of the stored one, whatever the image size") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const std::string path = folder.file("images.h5");
  constexpr int64_t kSize = 32;
  if (group.rank() == 0) {  // dark on the left, bright on the right
    const at::Tensor images = at::zeros({2, kSize, kSize, 3}, at::kByte);
    images.narrow(2, kSize / 2, kSize / 2).fill_(255);
    testing::write_hdf5_file(path, {{"images", images}, {"labels", at::zeros({2}, at::kLong)}});
  }
  group.barrier();
  train::RunConfig config;
  config.model.task = model::Task::kClassify;
  config.model.image_height = config.model.image_width = kSize;
  config.model.in_channels = 3;
  config.model.num_classes = 2;
  config.data.kind = train::DataKind::kHdf5;
  config.data.train_data = config.data.valid_data = path;
  config.data.dataset_name = "images";
  config.data.limit_nsamples = 1;
  config.data.limit_nsamples_val = 3;
  const train::DataSource source = train::open_data(config.model, config.data, config.seed, group);
  CHECK(source.num_train_samples == 1);
  CHECK(source.num_valid_samples == 2);
  const at::Tensor image = source.valid->read(std::vector<int64_t>{1}, {}, 0).inputs[0][0];
  // A crop of a few pixels around the centre would be grey everywhere: the step would fill the image.
  const double dark = image[kSize / 2][kSize / 4].item<double>();
  const double bright = image[kSize / 2][3 * kSize / 4].item<double>();
  CHECK(dark == doctest::Approx((0.0 - 0.485) / 0.229).epsilon(1e-4));
  CHECK(bright == doctest::Approx((1.0 - 0.485) / 0.229).epsilon(1e-4));
  const double left_edge = image[kSize / 2][kSize / 2 - 3].item<double>();
  CHECK(left_edge == doctest::Approx(dark).epsilon(1e-4));

  // All of it, and a quarter of each side.
  for (const auto& [resized, seen] : {std::pair{kSize, 1.0}, {4 * kSize, 0.25}}) {
    CAPTURE(resized);
    config.data.valid_resize = resized;
    const at::Tensor other = train::open_data(config.model, config.data, config.seed, group)
                                 .valid->read(std::vector<int64_t>{1}, {}, 0)
                                 .inputs[0][0];
    // The step between dark and bright is sharp where the image is as it was stored, and as much wider as it is larger.
    const double between = other[kSize / 2][kSize / 2 - 1].item<double>();
    const double expected = seen == 1.0 ? dark : dark + (bright - dark) * 0.375;
    CHECK(std::abs(between - expected) <= kHalfByte);
  }
}
