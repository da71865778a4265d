// The command `forecast` on data with dimension scales: its file has them too, with the lead times.
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_rows.h"
#include "data/hdf5/hdf5_tree.h"
#include "data/reading/posix_file.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/infer/forecast.h"
#include "tests/support/contains.h"
#include "tests/support/model_use_harness.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/typed_file.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

constexpr int64_t kSteps = 3;

// Every 6 hours, in seconds.
const std::vector<double> kEvenTimes = {1e9,          1e9 + 21600,  1e9 + 43200,  1e9 + 64800, 1e9 + 86400,
                                        1e9 + 108000, 1e9 + 129600, 1e9 + 151200, 1e9 + 172800};
// One is missing.
const std::vector<double> kUnevenTimes = {0, 1, 2, 3, 4, 6, 7, 8, 9};

// Weather whose first file has scales.
void write_scaled_weather(const comm::MpiGroup& world, const std::string& folder, const std::vector<double>& times) {
  write_weather(world, folder);
  on_rank_0(world, [&] { write_scaled_file(folder + "/2001.h5", weather_fields(1), weather_channels(), times); });
}

train::RunConfig config_for(const comm::MpiGroup& world, const std::string& folder) {
  return weather_config(folder, {1, world.size(), 1}, train::Precision::kFp32);
}

train::ForecastOptions options_for(const ScratchFolder& folder, int64_t start) {
  train::ForecastOptions options;
  options.use.checkpoint = folder.file("c.h5");
  options.use.data = folder.file("data");
  options.use.out = folder.file("f.h5");
  options.start = start;
  options.steps = kSteps;
  return options;
}

// Description of a dataset; nothing where the file has none of this name.
std::optional<data::Hdf5Description> description_of(const std::string& path, const std::string& dataset) {
  for (const data::Hdf5Description& description : data::describe_hdf5_file(path)) {
    if (description.name == dataset) {
      return description;
    }
  }
  return std::nullopt;
}

std::string text_of(const std::string& path, const std::string& dataset, const std::string& attribute) {
  return data::inspect_dataset(path, dataset, attribute).attribute;
}

at::Tensor times_of(const std::string& path) {
  return data::read_whole_dataset(path, "time");
}

}  // namespace

TEST_CASE("forecast: the scales, labels and attributes of the data are those of its file, with the lead times") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_scaled_weather(world, folder.file("data"), kEvenTimes);
  const train::RunConfig config = config_for(world, folder.file("data"));
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  train::forecast(config, options_for(folder, 6), checkpoint, world);  // two times are left in the file
  on_rank_0(world, [&] {
    const std::string path = folder.file("f.h5");
    const auto fields = description_of(path, "fields");
    REQUIRE(fields);
    CHECK(fields->shape == std::vector<int64_t>{kSteps, 3, 12, 20});
    CHECK(fields->dims == std::vector<std::string>{"time", "channel", "lat", "lon"});
    CHECK(text_of(path, "fields", "DIMENSION_LABELS") == "Time,Channel name,Latitude,Longitude");
    CHECK(text_of(path, "fields", "long_name") == "a state");
    CHECK(text_of(path, "fields", "units") == "m/s,m2/s2,%");  // those of the program, not the file's
    CHECK(at::equal(times_of(path), at::tensor({1e9 + 151200, 1e9 + 172800, 1e9 + 194400}, at::kDouble)));
    for (const std::string scale : {"time", "channel", "lat", "lon"}) {
      CAPTURE(scale);
      CHECK(first_user_of_scale(path, scale) == "/fields");
      const auto described = description_of(path, scale);
      REQUIRE(described);
      const auto& attributes = described->attributes;
      const auto has = [&](const std::string& name, const std::string& value) {
        return std::find(attributes.begin(), attributes.end(), std::pair(name, value)) != attributes.end();
      };
      CHECK(has("CLASS", "DIMENSION_SCALE"));
      CHECK(has("NAME", scale));
      CHECK(has("long_name", "values of " + scale));
    }
    CHECK(description_of(path, "channel")->shape == std::vector<int64_t>{3});
    std::vector<std::string> texts = weather_channels();
    texts.emplace_back("none");
    CHECK(texts_and_fill(path, "channel") == texts);
    CHECK(
        at::equal(data::read_whole_dataset(path, "lat"), data::read_whole_dataset(folder.file("data/2001.h5"), "lat")));
    CHECK_FALSE(description_of(path, "grid/levels"));  // not of the fields
  });
}

TEST_CASE("forecast: times that are not even end with their file") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_scaled_weather(world, folder.file("data"), kUnevenTimes);
  const train::RunConfig config = config_for(world, folder.file("data"));
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  const std::string path = folder.file("f.h5");

  train::forecast(config, options_for(folder, 3), checkpoint, world);  // across the gap
  on_rank_0(world, [&] { CHECK(at::equal(times_of(path), at::tensor({4.0, 6.0, 7.0}, at::kDouble))); });

  train::ForecastOptions late = options_for(folder, 6);
  late.use.overwrite = true;
  train::forecast(config, late, checkpoint, world);
  on_rank_0(world, [&] {
    CHECK_FALSE(description_of(path, "time"));
    CHECK(description_of(path, "fields")->dims == std::vector<std::string>{"Time", "channel", "lat", "lon"});
  });
}

TEST_CASE("forecast: what of the scales is left out is said, and a forecast that ends early leaves no file") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_scaled_weather(world, folder.file("data"), kUnevenTimes);
  const train::RunConfig config = config_for(world, folder.file("data"));
  const comm::MpiGroup self = world.split(world.rank());
  on_rank_0(world, [&] {
    {
      const train::ForecastOptions options = options_for(folder, 6);
      const train::ForecastRecord record(config, config.data, options, "c.h5", {}, self);
      const std::vector<std::string> lines = record.description();
      CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
              return line.starts_with("left out: scale 'time' of ") &&
                     contains(line, "its 9 values are not evenly spaced");
            }) == 1);
      CHECK(std::ifstream(data::temporary_name(folder.file("f.h5"))).good());
    }
    CHECK_FALSE(std::ifstream(data::temporary_name(folder.file("f.h5"))).good());
    CHECK_FALSE(std::ifstream(folder.file("f.h5")).good());
  });
}

TEST_CASE("forecast: data without scales give a file of the fields alone") {
  const Quiet quiet;
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  write_scaled_weather(world, folder.file("data"), kEvenTimes);
  const train::RunConfig config = config_for(world, folder.file("data"));
  save_initial_model(world, config, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  train::forecast(config, options_for(folder, kWeatherTimes), checkpoint, world);  // in the second file
  on_rank_0(world, [&] {
    const auto described = data::describe_hdf5_file(folder.file("f.h5"));
    REQUIRE(described.size() == 1);
    CHECK(described[0].dims == std::vector<std::string>(4));
    std::vector<std::string> names;
    for (const auto& [name, value] : described[0].attributes) {
      names.push_back(name);
    }
    CHECK(names == std::vector<std::string>{"channels", "units"});
  });
}
