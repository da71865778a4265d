// What a checkpoint knows of the data of its training: grids, statistics and class names in evaluations and forecasts,
// with figures against plain loops, and what is refused.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numbers>
#include <optional>

#include "data/datasets/weather_dataset.h"
#include "data/hdf5/hdf5_writer.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/format.h"
#include "src/infer/evaluate.h"
#include "src/infer/forecast.h"
#include "src/infer/model_use.h"
#include "src/train/data_source.h"
#include "src/train/saving/resume.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/model_use_harness.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using data::Grid;
using train::CheckpointReader;
using train::RunConfig;
using train::TrainingData;

namespace {

constexpr int kHeight = 12;  // of small_forecaster()
constexpr int kWidth = 20;

std::vector<double> points(double first, double last, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(first + (last - first) * i / (count - 1));
  }
  return out;
}

std::vector<double> numbers(const at::Tensor& values) {
  const at::Tensor flat = values.to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// Statistics and channels of weather_fields(), and a grid.
TrainingData trained_on(const Grid& grid) {
  TrainingData data;
  data.channels = "u10,z500,r500";
  data.means = numbers(weather_means().to(at::kFloat));
  data.stds = numbers(weather_stds().to(at::kFloat));
  data.grid = grid;
  return data;
}

// A folder with one year and, where they are not empty, datasets `latitude` and `lon`.
void write_year(const std::string& folder, const Grid& grid, const std::string& year = "2001") {
  std::filesystem::create_directory(folder);
  std::vector<TestDataset> datasets = {{"fields", weather_fields(1)}};
  if (!grid.latitudes.empty()) {
    datasets.push_back({"latitude", at::tensor(grid.latitudes, at::kDouble)});
  }
  if (!grid.longitudes.empty()) {
    datasets.push_back({"lon", at::tensor(grid.longitudes, at::kFloat)});
  }
  write_hdf5_file(folder + "/" + year + ".h5", datasets, weather_channels());
}

// RMSE and ACC of persistence by their definitions, with w_i = cos(latitude_i) over the sum of all.
struct Figures {
  double rmse = 0.0;
  double acc = 0.0;
};
Figures persistence(int64_t channel, const std::vector<double>& latitudes) {
  const at::Tensor fields = weather_fields(1).to(at::kDouble);
  const double mean = weather_means().to(at::kFloat)[0][channel].item<double>();
  const double std = weather_stds().to(at::kFloat)[0][channel].item<double>();
  const auto value = [&](int64_t time, int64_t row, int64_t column) {
    const int64_t index = ((time * 3 + channel) * kHeight + row) * kWidth + column;
    return (fields.const_data_ptr<double>()[index] - mean) / std;
  };
  double cosines = 0.0;
  for (const double latitude : latitudes) {
    cosines += std::cos(latitude * std::numbers::pi / 180.0);
  }
  Figures figures;
  for (int64_t time = 0; time + 1 < kWeatherTimes; ++time) {
    double error = 0.0;
    double product = 0.0;
    double squares[2] = {0.0, 0.0};
    for (int64_t row = 0; row < kHeight; ++row) {
      const double weight = std::cos(latitudes[static_cast<size_t>(row)] * std::numbers::pi / 180.0) / cosines;
      for (int64_t column = 0; column < kWidth; ++column) {
        const double forecast = value(time, row, column);
        const double truth = value(time + 1, row, column);
        error += weight * (forecast - truth) * (forecast - truth) / kWidth;
        product += weight * forecast * truth;
        squares[0] += weight * forecast * forecast;
        squares[1] += weight * truth * truth;
      }
    }
    figures.rmse += std::sqrt(error) / (kWeatherTimes - 1);
    figures.acc += product / std::sqrt(squares[0] * squares[1]) / (kWeatherTimes - 1);
  }
  return figures;
}

void check_persistence(const train::Evaluation& figures, const std::vector<double>& latitudes) {
  for (int64_t c = 0; c < 3; ++c) {
    const Figures expected = persistence(c, latitudes);
    CHECK(figures.persistence_rmse[static_cast<size_t>(c)] == doctest::Approx(expected.rmse).epsilon(1e-6));
    CHECK(std::abs(figures.persistence_acc[static_cast<size_t>(c)] - expected.acc) <= 1e-6);
  }
}

RunConfig config_of_use(const comm::MpiGroup& world, const CheckpointReader& checkpoint, const std::string& data,
                        const Layout& layout) {
  RunConfig config = train::config_for_use(checkpoint.info(), checkpoint.path(), data, {}, world.size());
  config.parallel.dp = layout.dp;
  config.parallel.tp = layout.tp;
  config.parallel.pp = layout.pp;
  config.parallel.micro_batch_size = 2;
  return config;
}

RunConfig trained_config(const std::string& folder) {
  RunConfig config = weather_config(folder, {1, 1, 1}, train::Precision::kFp64);
  config.data.stats = "/nowhere";  // as on the machine of the training
  config.data.global_means = config.data.global_stds = "/nowhere/none.npy";
  return config;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("trained data: figures go by the latitudes of the data, and need no statistics beside the checkpoint") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const std::vector<double> region = points(75, 35, kHeight);
  const std::vector<double> from_south = points(-90, 60, kHeight);
  const std::vector<double> uneven = {89, 80, 60, 59, 58, 30, 10, 0, -10, -11, -50, -88};
  CHECK(std::abs(persistence(0, region).rmse / persistence(0, points(90, -90, kHeight)).rmse - 1) > 1e-3);
  for (const auto& latitudes : {region, from_south, uneven}) {
    const ScratchFolder folder(world);
    const Grid grid{latitudes, points(0, 342, kWidth)};
    on_rank_0(world, [&] { write_year(folder.file("data"), grid); });
    save_initial_model(world, trained_config(folder.file("data")), folder.file("c.h5"), trained_on(grid));
    const CheckpointReader checkpoint(world, folder.file("c.h5"));
    std::optional<train::Evaluation> first;
    for (const Layout& layout : layouts_of(world.size())) {
      CAPTURE(layout.text());
      const RunConfig config = config_of_use(world, checkpoint, folder.file("data"), layout);
      const train::Evaluation figures = train::evaluate(config, {}, checkpoint, world);
      check_persistence(figures, latitudes);
      if (first) CHECK(figures.rmse[1] == doctest::Approx(first->rmse[1]).epsilon(1e-10));
      first = figures;
    }
  }
}

TEST_CASE("trained data: a forecast's figures go by the latitudes") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const Grid grid{points(65, 75, kHeight), points(0, 342, kWidth)};
  on_rank_0(world, [&] {
    write_year(folder.file("data"), grid);
    write_year(folder.file("bare"), {});
  });
  const RunConfig trained = trained_config(folder.file("data"));
  save_initial_model(world, trained, folder.file("c.h5"), trained_on(grid));
  save_initial_model(world, trained, folder.file("unknown.h5"), trained_on({}));
  const auto forecast = [&](const std::string& model, const std::string& data, const std::string& out) {
    const CheckpointReader checkpoint(world, folder.file(model));
    train::ForecastOptions options;
    options.use.data = folder.file(data);
    options.use.out = folder.file(out + ".h5");
    options.steps = 1;
    const RunConfig config = config_of_use(world, checkpoint, folder.file(data), {1, world.size(), 1});
    train::forecast(config, options, checkpoint, world);
    if (world.rank() != 0) return Figures{};
    const train::Json lead = read_json(folder.file(out + ".json"))["leads"][0];
    return Figures{lead["persistence_rmse"]["z500"].get<double>(), lead["persistence_acc"]["z500"].get<double>()};
  };
  // The first of the samples alone.
  const Figures of_region = forecast("c.h5", "data", "region");
  const Figures of_checkpoint = forecast("c.h5", "bare", "bare");  // which has the latitudes that the data lack
  const Figures of_globe = forecast("unknown.h5", "bare", "globe");
  if (world.rank() == 0) {
    CHECK(of_region.rmse == of_checkpoint.rmse);
    CHECK(of_region.acc == of_checkpoint.acc);
    CHECK(std::abs(of_region.rmse / of_globe.rmse - 1.0) > 1e-3);
  }
  CHECK(of_region.rmse >= 0.0);
}

TEST_CASE("trained data: rows from the south are in doubt where the checkpoint knows none") {
  const Grid north{points(90, -90, kHeight), {}};
  const Grid south{points(-90, 90, kHeight), {}};
  CHECK(contains(train::doubt_of_rows(trained_on({}), south), "from south to north (latitudes -90 to 90), and the"));
  CHECK(train::doubt_of_rows(trained_on({}), north).empty());
  CHECK(train::doubt_of_rows(trained_on({}), {}).empty());
  CHECK(train::doubt_of_rows(trained_on(south), south).empty());
}

TEST_CASE("trained data: another grid than the training's is refused, and files that disagree") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const Grid north{points(90, -90, kHeight), points(0, 342, kWidth)};
  const Grid south{points(-90, 90, kHeight), north.longitudes};
  const Grid region{points(75, 65, kHeight), {}};
  on_rank_0(world, [&] {
    write_year(folder.file("north"), north);
    write_year(folder.file("south"), south);
    write_year(folder.file("region"), region);
    write_year(folder.file("mixed"), north);
    write_year(folder.file("mixed"), {}, "2002");  // is taken to have the others'
    write_year(folder.file("mixed"), south, "2003");
    std::filesystem::create_directory(folder.file("stats"));
    std::filesystem::create_directory(folder.file("whole"));
    write_year(folder.file("whole"), {}, "2000");
    write_year(folder.file("whole"), north);
  });
  write_weather(world, folder.file("stats"));
  save_initial_model(world, trained_config(folder.file("north")), folder.file("c.h5"), trained_on(north));
  const CheckpointReader checkpoint(world, folder.file("c.h5"));
  for (const auto& [data, text] :
       {std::pair("south",
                  "the data have 12 latitudes from -90 to 90, 20 longitudes from 0 to 342, the model was "
                  "trained on 12 latitudes from 90 to -90, 20 longitudes from 0 to 342"),
        std::pair("region", "the data have 12 latitudes from 75 to 65, no longitudes, the model was trained on")}) {
    const RunConfig config = config_of_use(world, checkpoint, folder.file(data), {1, world.size(), 1});
    train::ForecastOptions options;
    options.use.data = folder.file(data);
    options.use.out = folder.file("f.h5");
    options.steps = 1;
    for (const Error& error : {agreed_error(world, [&] { train::evaluate(config, {}, checkpoint, world); }),
                               agreed_error(world, [&] { train::forecast(config, options, checkpoint, world); })}) {
      CAPTURE(error.message());
      CHECK((error.error_class() == ErrorClass::kBadData));
      CHECK(contains(error.message(), text));
    }
    CHECK_FALSE(std::filesystem::exists(folder.file("f.h5")));
  }
  RunConfig training = weather_config(folder.file("stats"), {world.size(), 1, 1}, train::Precision::kFp32);
  const auto refused = [&](const char* train, const char* valid) {
    training.data.train_data = folder.file(train);
    training.data.valid_data = folder.file(valid);
    const Error error =
        agreed_error(world, [&] { train::open_data(training.model, training.data, training.seed, world); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    return error.message();
  };
  CHECK(contains(refused("north", "south"), "the training data have 12 latitudes from 90 to -90"));
  CHECK(contains(refused("mixed", "north"), "2003.h5 has 12 latitudes from -90 to 90"));
  training.data.train_data = folder.file("whole");
  training.data.valid_data = folder.file("north");
  const train::DataSource opened = train::open_data(training.model, training.data, training.seed, world);
  CHECK(data::same_points(opened.described.grid.latitudes, north.latitudes));
  CHECK(opened.described.grid.latitudes.size() == kHeight);
  CHECK(opened.described.means == numbers(weather_means().to(at::kFloat)));
  CHECK(opened.described.num_samples == 2 * (kWeatherTimes - 1));
}

TEST_CASE("trained data: coordinates are dimension scales or datasets of their names, with units or none") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const auto grid_of = [&](const std::string& name) {
    return data::WeatherDataset(world, {.folder = folder.file(name)}).grid();
  };
  // `attributes` are those of the dataset `name`, beside the fields.
  const auto write_with = [&](const std::string& year_folder, const std::string& name, const at::Tensor& values,
                              const data::Hdf5Attributes& attributes) {
    on_rank_0(world, [&] { std::filesystem::create_directory(folder.file(year_folder)); });
    data::Hdf5Writer writer(
        world, folder.file(year_folder) + "/2001.h5",
        {{"fields", {2, 3, 12, 20}, at::kFloat, {}}, {name, values.sizes().vec(), values.scalar_type(), attributes}});
    if (world.rank() == 0) {
      writer.write("fields", std::vector<int64_t>(4, 0), at::zeros({2, 3, 12, 20}, at::kFloat));
      writer.write(name, std::vector<int64_t>(static_cast<size_t>(values.dim()), 0), values);
    }
    writer.finish();
  };
  on_rank_0(world, [&] {
    std::filesystem::create_directory(folder.file("scales"));
    write_scaled_file(folder.file("scales/2001.h5"), weather_fields(1), weather_channels());
  });
  const Grid of_scales{points(0, 5.5, 12), points(0, 9.5, 20)};  // 0, 0.5, 1, ...
  CHECK((grid_of("scales") == of_scales));
  const auto scaled = [&](const std::string& name, const GridScales& grid) {
    on_rank_0(world, [&] {
      std::filesystem::create_directory(folder.file(name));
      write_scaled_file(folder.file(name + "/2001.h5"), weather_fields(1), weather_channels(), {}, grid);
    });
    return name;
  };
  CHECK((grid_of(scaled("units", {"y", "degrees_N", "x", "degrees_E"})) == of_scales));
  CHECK((grid_of(scaled("names", {"latitude", "", "longitude", ""})) == of_scales));
  CHECK((grid_of(scaled("plane", {"y", "m", "x", "m"})) == Grid()));
  const at::Tensor latitudes = at::tensor(points(75, 20, 12), at::kDouble);
  const std::vector<double> expected = points(75, 20, 12);
  write_with("cf", "lat", latitudes, {{"units", std::string("degrees_north")}});
  CHECK((grid_of("cf") == Grid{expected, {}}));
  write_with("whole", "latitude", latitudes.to(at::kInt), {});
  CHECK((grid_of("whole").latitudes == expected));
  const auto refused = [&](const std::string& name) {
    const Error error = agreed_error(world, [&] { grid_of(name); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    return error.message();
  };
  CHECK(contains(refused(scaled("turned", {"lon", "", "lat", ""})), "dim 2 of '/fields' is a longitude ('lon')"));
  write_with("metres", "lat", latitudes, {{"units", std::string("m")}});
  CHECK(contains(refused("metres"), "2001.h5: '/lat' has the units 'm'"));
  write_with("radians", "lon", at::tensor(points(0, 6, 20), at::kDouble), {{"units", std::string("radians")}});
  CHECK(contains(refused("radians"), "'/lon' has the units 'radians'"));
  write_with("outside", "lat", latitudes + 20.0, {});
  CHECK(contains(refused("outside"), "the latitude 0 is 95; allowed: -90 to 90"));
  write_with("constant", "lat", latitudes * 0.0, {});
  CHECK(contains(refused("constant"), "neither grow nor fall"));
  // What only has the name is none.
  write_with("netcdf", "lat", latitudes * 0.0,
             {{"NAME", std::string("This is a netCDF dimension but not a netCDF variable.        12")}});
  CHECK((grid_of("netcdf") == Grid()));
  write_with("longer", "lat", at::tensor(points(90, -90, 13), at::kDouble), {});
  CHECK((grid_of("longer") == Grid()));
  write_with("field", "lat", at::zeros({12, 20}, at::kDouble), {});
  CHECK((grid_of("field") == Grid()));
}

TEST_CASE("trained data: classes are matched by name") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  RunConfig config;
  config.model = small_classifier(model::Pooling::kToken);
  config.model.image_width = config.model.image_height = 16;
  config.precision.kind = train::Precision::kFp64;
  config.data.kind = train::DataKind::kHdf5;
  config.data.valid_data = config.data.train_data = folder.file("all.h5");
  config.global_batch_size = 4;
  train::resolve(config, world.size());
  const at::Tensor images = (normal_tensor({14, 20, 20, 3}, 3) * 60.0 + 128.0).clamp(0, 255).to(at::kByte);
  const auto write = [&](const std::string& name, int64_t first, int64_t count, const std::vector<int64_t>& number_of,
                         const std::string& classes) {
    data::Hdf5Attributes attributes;
    if (!classes.empty()) {
      attributes = {{"classes", classes}};
    }
    data::Hdf5Writer writer(
        world, folder.file(name),
        {{"images", {count, 20, 20, 3}, at::kByte, {}}, {"labels", {count}, at::kLong, attributes}});
    if (world.rank() == 0) {
      std::vector<int64_t> labels;
      for (int64_t i = first; i < first + count; ++i) {
        labels.push_back(number_of[static_cast<size_t>(i / 2)]);  // two of each class
      }
      writer.write("images", std::vector<int64_t>(4, 0), images.narrow(0, first, count).contiguous());
      writer.write("labels", std::vector<int64_t>{0}, at::tensor(labels, at::kLong));
    }
    writer.finish();
  };
  const std::string names = "circle,square,stripe cat,d,e,f,g";
  write("all.h5", 0, 14, {0, 1, 2, 3, 4, 5, 6}, names);
  write("turned.h5", 0, 14, {6, 5, 4, 3, 2, 1, 0}, "g,f,e,d,stripe cat,square,circle");
  write("some.h5", 0, 6, {0, 2, 1}, "circle,stripe cat,square");
  write("first.h5", 0, 6, {0, 1, 2}, names);
  write("plain.h5", 0, 14, {0, 1, 2, 3, 4, 5, 6}, "");
  write("unknown.h5", 0, 14, {0, 1, 2, 3, 4, 5, 6}, "circle,dog,stripe cat,d,e,f,g");
  write("short.h5", 0, 14, {0, 1, 2, 3, 4, 5, 6}, "circle,square");
  TrainingData data;
  data.class_names = names;
  save_initial_model(world, config, folder.file("c.h5"), data);
  const CheckpointReader checkpoint(world, folder.file("c.h5"));
  const auto figures = [&](const std::string& file) {
    return train::evaluate(config_of_use(world, checkpoint, folder.file(file), {world.size(), 1, 1}), {}, checkpoint,
                           world);
  };
  const train::Evaluation all = figures("all.h5");
  CHECK(figures("turned.h5").loss == doctest::Approx(all.loss).epsilon(1e-12));
  CHECK(figures("turned.h5").top1 == all.top1);
  CHECK(figures("turned.h5").top5 == all.top5);
  CHECK(figures("plain.h5").loss == doctest::Approx(all.loss).epsilon(1e-12));
  CHECK(figures("some.h5").loss == doctest::Approx(figures("first.h5").loss).epsilon(1e-12));
  const Error unknown = agreed_error(world, [&] { figures("unknown.h5"); });
  CHECK((unknown.error_class() == ErrorClass::kBadData));
  CHECK(contains(unknown.message(), "has classes that the model was not trained on: 'dog'; it knows circle, square"));
  const Error few = agreed_error(world, [&] { figures("short.h5"); });
  CHECK((few.error_class() == ErrorClass::kBadData));
  CHECK(contains(few.message(), "holds the class 2, but names 2 classes"));
}

TEST_CASE("trained data: a run does not go on with other statistics, points or classes") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const RunConfig config = weather_config(folder.path(), {world.size(), 1, 1}, train::Precision::kFp32);
  train::CheckpointInfo info;
  static_cast<TrainingData&>(info) = trained_on({points(90, -90, kHeight), {}});
  info.num_samples = 64;
  info.class_names = "cat,dog";
  info.model = train::model_json(config.model);
  info.optimizer = "adam";
  info.seed = static_cast<int64_t>(config.seed);
  train::NamedWeights weights;
  for (const auto& [name, values] : test_parameters(config.model)) {
    weights[name] = values.to(at::kFloat).contiguous();
  }
  train::write_weights(world, folder.file("c.h5"), info, weights);
  const CheckpointReader checkpoint(world, folder.file("c.h5"));
  const auto message = [&](const TrainingData& data) {
    return agreed_error(world, [&] { train::check_resumable(checkpoint, config, data, world); }).message();
  };
  TrainingData data = info;
  const std::string same = message(data);  // there is no optimizer state to go on from
  CHECK_FALSE(contains(same, "class"));
  CHECK_FALSE(contains(same, "latitudes"));
  CHECK_FALSE(contains(same, "deviation"));
  data.class_names = "dog,cat";
  data.stds[2] *= 1.01;
  std::reverse(data.grid.latitudes.begin(), data.grid.latitudes.end());
  CHECK(contains(message(data), "class 0 is 'dog' in the data and 'cat' in the checkpoint"));
  CHECK(contains(message(data), "channel 2 (r500) has the mean"));
  CHECK(contains(message(data),
                 "the data have 12 latitudes from -90 to 90, no longitudes, the model was trained on 12 "
                 "latitudes from 90 to -90, no longitudes"));
}

TEST_CASE("trained data: a checkpoint of format 3 is used as before, and says what it lacks") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_weather(world, folder.file("data"));
  const RunConfig trained = weather_config(folder.file("data"), {world.size(), 1, 1}, train::Precision::kFp64);
  save_initial_model(world, trained, folder.file("old.h5"), trained_on({points(75, 65, kHeight), {}}), 3);
  save_initial_model(world, trained, folder.file("new.h5"), trained_on({}));
  const CheckpointReader old(world, folder.file("old.h5"));
  const CheckpointReader now(world, folder.file("new.h5"));
  CHECK(old.info().format == 3);
  CHECK(old.info().means.empty());
  CHECK((old.info().grid == Grid()));
  CHECK(old.info().channels == "u10,z500,r500");
  REQUIRE(train::earlier_format_line(old));
  CHECK(contains(*train::earlier_format_line(old), "is of format 3, without statistics, class names and coordinates"));
  CHECK_FALSE(train::earlier_format_line(now));
  const auto figures = [&](const CheckpointReader& checkpoint) {
    const RunConfig config = config_of_use(world, checkpoint, folder.file("data"), {1, world.size(), 1});
    CHECK(config.data.global_means.empty() == (checkpoint.info().format > 3));
    return train::evaluate(config, {}, checkpoint, world);
  };
  const train::Evaluation of_old = figures(old);
  const train::Evaluation of_new = figures(now);
  CHECK(of_old.loss == of_new.loss);
  CHECK(of_old.persistence_rmse == of_new.persistence_rmse);
}

TEST_CASE("trained data: lists of any length are read back, and damage in them is found") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const auto options = small_forecaster();
  train::NamedWeights weights;
  for (const auto& [name, values] : test_parameters(options)) {
    weights[name] = values.to(at::kFloat).contiguous();
  }
  for (const int count : {0, 1, 7499, 7500, 7501, 15000, 16384}) {
    CAPTURE(count);
    train::CheckpointInfo info;
    info.model = train::model_json(options);
    info.class_names = "cat,stripe cat";
    info.means = {1.5};
    info.stds = {0.1};
    info.grid.latitudes = count > 1 ? points(90, -90, count) : std::vector<double>(static_cast<size_t>(count), 12.5);
    const std::string path = folder.file(std::to_string(count) + ".h5");
    train::write_weights(world, path, info, weights);
    const CheckpointReader reader(world, path);
    CHECK(reader.info().class_names == info.class_names);
    CHECK(reader.info().means == info.means);
    CHECK(reader.info().stds == info.stds);
    CHECK((reader.info().grid == info.grid));
    world.barrier();
    if (count > 1) {
      on_rank_0(world, [&] {
        const double value = info.grid.latitudes[static_cast<size_t>(count / 3)];
        const std::string content = bytes_of(path);
        const size_t place = content.find(std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
        REQUIRE(place != std::string::npos);
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(place));
        file.put(static_cast<char>(content[place] ^ 1));
      });
      const Error damaged = agreed_error(world, [&] { CheckpointReader(world, path); });
      CHECK((damaged.error_class() == ErrorClass::kBadData));
      CHECK(contains(damaged.message(), "is damaged: the bytes from "));
    }
  }
}
