// The shapes of training data as rank 0 sees them for all, in files of every kind.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/config/model_options.h"
#include "src/train/data_source.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using testing::contains;
using train::DataShape;

namespace {

train::RunConfig config_for(model::Task task, const std::string& path) {
  train::RunConfig config;
  config.model.task = task;
  config.data.kind = train::DataKind::kHdf5;
  config.data.train_data = path;
  config.data.dataset_name = task == model::Task::kForecast ? "fields" : "images";
  return config;
}

}  // namespace

TEST_CASE("data shape: of fields, for all ranks") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  testing::on_rank_0(group, [&] {
    std::filesystem::create_directory(folder.file("d"));
    testing::write_hdf5_file(folder.file("d/1990.h5"), {{"fields", testing::counted({4, 5, 16, 24})}});
  });
  const auto config = config_for(model::Task::kForecast, folder.file("d"));
  const auto shape = train::look_at_data(config, group);
  REQUIRE(shape.has_value());
  CHECK((*shape == DataShape{.channels = 5, .height = 16, .width = 24}));
  CHECK_FALSE(train::look_at_data(config_for(model::Task::kForecast, folder.file("nothing")), group).has_value());
  CHECK_FALSE(train::look_at_data(config_for(model::Task::kClassify, folder.file("d")), group).has_value());
  auto generated = config;
  generated.data.kind = train::DataKind::kSynthetic;
  CHECK_FALSE(train::look_at_data(generated, group).has_value());
  // What is no data of the known layout is said before anything is taken from it.
  auto other = config;
  other.data.dataset_name = "values";
  CHECK(contains(testing::agreed_error(group, [&] { train::look_at_data(other, group); }).what(), "'values'"));
}

TEST_CASE("data shape: fields with their channels last are known, by their file and by every reader") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const auto values = testing::counted({4, 12, 20, 8});
  testing::on_rank_0(group, [&] {
    for (const char* name : {"named", "placed", "scaled", "right"}) {
      std::filesystem::create_directory(folder.file(name));
    }
    testing::write_hdf5_file(folder.file("named/1990.h5"), {{"fields", values}},
                             {"a", "b", "c", "d", "e", "f", "g", "h"});
    testing::write_hdf5_file(folder.file("placed/1990.h5"),
                             {{"fields", values}, {"lat", testing::counted({12})}, {"lon", testing::counted({20})}});
    std::vector<std::string> channels(12, "c");
    testing::write_scaled_file(folder.file("scaled/1990.h5"), values, channels, {},
                               {.rows = "x", .row_units = "m", .columns = "y", .column_units = "m"});
    testing::write_hdf5_file(folder.file("right/1990.h5"),
                             {{"fields", values}, {"lat", testing::counted({20})}, {"lon", testing::counted({8})}});
  });
  const auto error_of = [&](const char* name) {
    const auto config = config_for(model::Task::kForecast, folder.file(name));
    const Error error = testing::agreed_error(group, [&] { train::look_at_data(config, group); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    const Error opened =
        testing::agreed_error(group, [&] { data::WeatherDataset dataset(group, {.folder = config.data.train_data}); });
    CHECK(opened.message() == error.message());
    return std::string(error.what());
  };
  CHECK(contains(error_of("named"),
                 "named/1990.h5: dataset 'fields' (4, 12, 20, 8) has its channels last, (time, "
                 "latitude, longitude, channel): 8 channels are named"));
  CHECK(contains(error_of("placed"), "there are 12 latitudes and 20 longitudes"));
  for (const char* right : {"scaled", "right"}) {
    CAPTURE(right);
    const auto shape = train::look_at_data(config_for(model::Task::kForecast, folder.file(right)), group);
    CHECK((shape == DataShape{.channels = 12, .height = 20, .width = 8}));
  }
}

TEST_CASE("data shape: of images, with the classes of names or labels") {
  const auto group = comm::MpiGroup::world();
  const testing::ScratchFolder folder(group);
  const auto images = testing::counted({6, 20, 18, 3}, at::kByte);
  testing::on_rank_0(group, [&] {
    const auto labels = at::tensor({0, 4, 1, 0, 2, 1}, at::kInt);
    testing::write_hdf5_file(folder.file("i.h5"), {{"images", images}, {"labels", labels}});
    testing::write_hdf5_file(folder.file("first.h5"),
                             {{"images", images.permute({0, 3, 1, 2}).contiguous()}, {"labels", labels}});
    testing::write_hdf5_file(folder.file("many.h5"),
                             {{"images", images}, {"labels", at::full({6}, int64_t{1} << 42, at::kLong)}});
    // More than are read at a time, the largest in the last part.
    const auto long_list = at::zeros({(1 << 20) + 3}, at::kByte);
    long_list[1 << 20] = 200;
    testing::write_hdf5_file(folder.file("long.h5"), {{"images", images}, {"labels", long_list}});
  });
  const auto shape_of = [&](const char* name) {
    return train::look_at_data(config_for(model::Task::kClassify, folder.file(name)), group);
  };
  DataShape shape = {.channels = 3, .height = 20, .width = 18, .num_classes = 5, .images = 6};
  CHECK(shape_of("i.h5") == shape);
  for (const auto& [valid, number] : {std::pair("many.h5", 6), std::pair("first.h5", 6), std::pair("none.h5", 0)}) {
    train::RunConfig config = config_for(model::Task::kClassify, folder.file("i.h5"));
    config.data.valid_data = folder.file(valid);
    shape.valid_images = number;
    CHECK(train::look_at_data(config, group) == shape);
  }
  shape.valid_images = 0;
  shape.num_classes = 201;
  CHECK(shape_of("long.h5") == shape);
  const auto error_of = [&](const char* name) {
    return std::string(testing::agreed_error(group, [&] { shape_of(name); }).what());
  };
  CHECK(contains(error_of("first.h5"),
                 "dataset 'images' (6, 3, 20, 18) has its colours first, (number, 3, height, width)"));
  CHECK(contains(error_of("many.h5"), "dataset 'labels' holds the class 4398046511104"));
}

TEST_CASE("data source: built-in images are painted, validation with other ones") {
  const auto group = comm::MpiGroup::world();
  auto loaded = train::load_run_config({"--task=classify", "--generated-samples=8", "--generated-valid-samples=3"}, {},
                                       train::read_local_file);
  train::resolve(loaded.config, 1);
  const train::DataSource source = train::open_data(loaded.config.model, loaded.config.data, loaded.config.seed, group);
  CHECK(source.num_train_samples == 8);
  CHECK(source.num_valid_samples == 3);
  CHECK(contains(source.described.class_names, "plain disc,plain square,"));
  const auto target = [](const data::Dataset& set, int64_t sample) {
    return set.read(std::vector<int64_t>{sample}, {}, 0).targets.item<int64_t>();
  };
  CHECK(target(*source.train, 7) == 1);
  CHECK(target(*source.valid, 0) == 2);
}
