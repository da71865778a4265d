// Generated data sets: the same numbers from any number of ranks, in the layout that the readers know.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "data/datasets/npy.h"
#include "data/datasets/weather_dataset.h"
#include "data/generate/generate_images.h"
#include "data/generate/generate_weather.h"
#include "data/generate/planetary_waves.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/reading/posix_file.h"
#include "data/tools/row_statistics.h"
#include "data/zarr/zarr_metadata.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/text.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/mpi_test.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using data::GenerateImagesOptions;
using data::GenerateWeatherOptions;

namespace {

GenerateWeatherOptions weather_options(const std::string& out) {
  GenerateWeatherOptions options;
  options.out = out;
  options.train_years = 3;
  options.valid_years = 1;
  options.first_year = 1999;
  options.steps_per_year = 5;
  options.channels = 9;
  options.height = 10;
  options.width = 12;
  options.seed = 11;
  return options;
}

GenerateImagesOptions image_options(const std::string& out) {
  GenerateImagesOptions options;
  options.out = out;
  options.train_images = 13;
  options.valid_images = 5;
  options.size = 12;
  options.classes = 4;
  return options;
}

// The values of a contiguous dataset, on this rank alone.
at::Tensor read_dataset(const std::string& path, const std::string& name) {
  const data::ArrayLayout layout = data::inspect_dataset(path, name);
  REQUIRE(layout.storage == data::ArrayLayout::Storage::kContiguous);
  const at::Tensor values = at::empty(layout.shape, layout.type);
  data::PosixFile(path, data::PosixFile::Access::kRead)
      .read(layout.offset, values.mutable_data_ptr(), static_cast<int64_t>(values.nbytes()));
  return values;
}

const std::vector<std::string> kYearFiles{"train/1999.h5", "train/2000.h5", "train/2001.h5", "valid/2002.h5"};
const std::vector<std::string> kStatistics{"stats/global_means.npy", "stats/global_stds.npy", "stats/time_means.npy"};

// Runs `generate(folder, group)` on the first `ranks` ranks, for 1 and for 3, and then `compare(folder, folder)` on
// rank 0.
template <class Generate, class Compare>
void on_one_and_three_ranks(const Generate& generate, const Compare& compare) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  for (const int ranks : {1, 3}) {
    const comm::MpiGroup part = world.split(world.rank() < ranks ? 0 : 1);
    if (world.rank() < ranks) generate(scratch.file(std::to_string(ranks)), part);
  }
  if (world.rank() == 0) compare(scratch.file("1"), scratch.file("3"));
  world.barrier();
}

// The text of the error that all ranks get.
template <class Function>
std::string error_text(ErrorClass error_class, const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    CHECK(error.error_class() == error_class);
    return error.message();
  }
  return "no error";
}

}  // namespace

TEST_CASE("generate weather: 1 and 3 ranks write the same numbers") {
  if (world_size() < 3) {
    MESSAGE("needs 3 ranks");
    return;
  }
  on_one_and_three_ranks(
      [](const std::string& folder, const comm::MpiGroup& group) {
        data::generate_weather(weather_options(folder), group);
      },
      [](const std::string& one, const std::string& three) {
        for (const std::string& file : kYearFiles) {
          INFO(file);
          CHECK(at::equal(read_dataset(str(one, "/", file), "fields"), read_dataset(str(three, "/", file), "fields")));
        }
        for (const std::string& file : kStatistics) {
          INFO(file);
          CHECK(at::equal(data::read_npy(str(one, "/", file)), data::read_npy(str(three, "/", file))));
        }
      });
}

TEST_CASE("generate weather: layout, statistics and agreement with the years in memory") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  const GenerateWeatherOptions options = weather_options(scratch.file("data"));
  std::vector<std::string> lines;
  data::generate_weather(options, world, [&](const std::string& line) { lines.push_back(line); });
  CHECK(lines.size() == (world.rank() == 0 ? 1 : 0));  // what is begun; how far it is says Progress
  if (world.rank() == 0) {
    CHECK(contains(lines.front(), "generating 3 training and 1 validation years"));
    std::vector<at::Tensor> years;
    for (size_t i = 0; i < kYearFiles.size(); ++i) {
      INFO(kYearFiles[i]);
      const std::string path = options.out + "/" + kYearFiles[i];
      CHECK(data::inspect_dataset(path, "fields", "channels").attribute ==
            "u,v,height,vorticity,divergence,potential_vorticity,kinetic_energy,tracer_1,tracer_2");
      GenerateWeatherOptions year = options;
      year.first_year += static_cast<int64_t>(i);
      years.push_back(read_dataset(path, "fields"));
      CHECK(at::equal(years.back(), data::generate_weather_in_memory(year).fields));
    }
    years.pop_back();  // statistics are those of the training years
    const at::Tensor all = at::cat({years[0], years[1], years[2]}).to(at::kDouble);
    const at::Tensor means = data::read_npy(options.out + "/" + kStatistics[0]);
    const at::Tensor stds = data::read_npy(options.out + "/" + kStatistics[1]);
    const at::Tensor time_means = data::read_npy(options.out + "/" + kStatistics[2]);
    CHECK(means.sizes() == at::IntArrayRef({1, 9, 1, 1}));
    CHECK(stds.sizes() == at::IntArrayRef({1, 9, 1, 1}));
    CHECK(time_means.sizes() == at::IntArrayRef({1, 9, 10, 12}));
    const at::Tensor exact_stds = all.std({0, 2, 3}, false, true);
    CHECK(((means - all.mean({0, 2, 3}, true)).abs() / exact_stds).max().item<double>() < 1e-4);
    CHECK(((stds - exact_stds).abs() / exact_stds).max().item<double>() < 1e-6);
    CHECK(((time_means - all.mean(0, true)).abs() / exact_stds).max().item<double>() < 1e-4);
  }
  world.barrier();

  data::WeatherOptions reading;
  reading.folder = options.out + "/train";
  reading.global_means = options.out + "/" + kStatistics[0];
  reading.global_stds = options.out + "/" + kStatistics[1];
  const data::WeatherDataset dataset(world, reading);
  CHECK(dataset.size() == 3 * 4);
  CHECK(dataset.channel_names().at(7) == "tracer_1");
  const std::vector<int64_t> samples{0, 5, 11};
  const data::Batch batch = dataset.read(samples, {}, 0);
  CHECK(batch.inputs.sizes() == at::IntArrayRef({3, 9, 10, 12}));
  CHECK(std::fabs(batch.inputs.mean().item<double>()) < 0.5);
}

TEST_CASE("generate weather: the years in memory are the same on all ranks as on one") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  std::vector<GenerateWeatherOptions> years(3, weather_options(""));
  years[1].first_year = 2000;
  years[2].first_year = 2001;
  years[2].steps_per_year = 3;
  const auto together = data::generate_weather_in_memory(years, world);
  REQUIRE(together.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const data::WeatherInMemory alone = data::generate_weather_in_memory(years[i]);
    CHECK(at::equal(together[i].fields, alone.fields));
    CHECK(at::equal(together[i].means, alone.means));
    CHECK(at::equal(together[i].stds, alone.stds));
    CHECK(at::equal(together[i].time_means, alone.time_means));
    CHECK(together[i].channel_names == alone.channel_names);
  }
}

TEST_CASE("generate weather: refusals are the same on all ranks and touch nothing") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  GenerateWeatherOptions options = weather_options(scratch.file("data"));
  const auto generate = [&] { data::generate_weather(options, world); };
  options.width = 1;
  CHECK(contains(error_text(ErrorClass::kUsage, generate), "width is 1, allowed is 8 to 16384"));
  options = weather_options("");
  CHECK(contains(error_text(ErrorClass::kUsage, generate), "no output folder"));
  options = weather_options(scratch.file("data"));
  generate();
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "is not empty"));
  options.overwrite = true;
  options.seed += 1;
  generate();
  options.valid_years = 0;
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "valid/2002.h5"));
  if (world.rank() == 0) {
    std::ofstream(scratch.file("file")) << "x";
  }
  world.barrier();
  options.out = scratch.file("file");
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "is a file"));
  options.out = scratch.file("file") + "/below";
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "cannot create the folder"));
  options = weather_options(scratch.file("huge"));
  options.steps_per_year = 1000000;
  options.height = options.width = 16384;
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "has room for"));
  CHECK_FALSE(std::filesystem::exists(scratch.file("huge")));
}

TEST_CASE("generate images: 1 and 3 ranks write the same images") {
  if (world_size() < 3) {
    MESSAGE("needs 3 ranks");
    return;
  }
  on_one_and_three_ranks([](const std::string& folder,
                            const comm::MpiGroup& group) { data::generate_images(image_options(folder), group); },
                         [](const std::string& one, const std::string& three) {
                           for (const char* file : {"/train.h5", "/valid.h5"}) {
                             CHECK(at::equal(read_dataset(one + file, "images"), read_dataset(three + file, "images")));
                             CHECK(at::equal(read_dataset(one + file, "labels"), read_dataset(three + file, "labels")));
                           }
                         });
}

TEST_CASE("generate images: layout and contents of the files") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  const GenerateImagesOptions options = image_options(scratch.file("images"));
  data::generate_images(options, world);
  if (world.rank() == 0) {
    const data::ImagePainter painter(options.size, options.classes, options.seed);
    const std::vector<int64_t> counts{13, 5};
    for (size_t split = 0; split < 2; ++split) {
      const std::string path = options.out + (split == 0 ? "/train.h5" : "/valid.h5");
      const at::Tensor images = read_dataset(path, "images"), labels = read_dataset(path, "labels");
      CHECK(images.sizes() == at::IntArrayRef({counts[split], 12, 12, 3}));
      CHECK((images.scalar_type() == at::kByte));
      CHECK(labels.sizes() == at::IntArrayRef({counts[split]}));
      CHECK((labels.scalar_type() == at::kLong));
      CHECK(data::inspect_dataset(path, "labels", "classes").attribute ==
            "plain disc,plain square,plain triangle,plain ring");
      for (int64_t row = 0; row < counts[split]; ++row) {
        const int64_t number = row + (split == 0 ? 0 : options.train_images);
        const at::Tensor expected = at::empty({12, 12, 3}, at::kByte);
        painter.paint(number, expected.mutable_data_ptr<uint8_t>());
        CHECK(at::equal(images[row], expected));
        CHECK(labels[row].item<int64_t>() == number % 4);
      }
    }
  }
  world.barrier();
  GenerateImagesOptions wrong = options;
  wrong.classes = 31;
  CHECK(contains(error_text(ErrorClass::kUsage, [&] { data::generate_images(wrong, world); }),
                 "classes is 31, allowed is 2 to 30"));
  CHECK(
      contains(error_text(ErrorClass::kCannotCreate, [&] { data::generate_images(options, world); }), "is not empty"));
}

TEST_CASE("generate: what a killed attempt left unfinished is nothing; links and other files are something") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  namespace fs = std::filesystem;
  const auto put = [&](const std::string& path) {
    if (world.rank() == 0) {
      fs::create_directories(fs::path(scratch.file(path)).parent_path());
      std::ofstream(scratch.file(path)) << "x";
    }
    world.barrier();
  };
  put("images/train.h5.partial");
  put("images/valid.h5.3fa9c07e.partial");  // of a job that had a mark
  data::generate_images(image_options(scratch.file("images")), world);
  CHECK(fs::exists(scratch.file("images/valid.h5")));
  CHECK_FALSE(fs::exists(scratch.file("images/train.h5.partial")));
  put("weather/stats/global_means.npy.partial");
  put("weather/train/1990.h5.partial/x");  // a folder of that name, with something in it
  CHECK(contains(error_text(ErrorClass::kCannotCreate,
                            [&] { data::generate_weather(weather_options(scratch.file("weather")), world); }),
                 "is not empty"));
  put("others/notes.partial");
  const auto into = [&](const char* name) {
    return error_text(ErrorClass::kCannotCreate,
                      [&] { data::generate_images(image_options(scratch.file(name)), world); });
  };
  CHECK(contains(into("others"), "is not empty"));
  if (world.rank() == 0) {
    fs::create_directories(scratch.file("taken/train.h5"));
  }
  world.barrier();
  GenerateImagesOptions options = image_options(scratch.file("taken"));
  options.overwrite = true;
  CHECK(contains(error_text(ErrorClass::kCannotCreate, [&] { data::generate_images(options, world); }),
                 "is no regular file"));
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kWaveNames = "t2m,z:500:850,u10,t:850:500,z50";

GenerateWeatherOptions wave_options(const std::string& out, data::WeatherFormat format) {
  GenerateWeatherOptions options = weather_options(out);
  options.weather = data::WeatherKind::kWaves;
  options.format = format;
  options.train_years = 2;
  options.steps_per_year = 7;
  options.channel_names = kWaveNames;
  options.sample_interval_hours = 6.0;
  return options;
}

// Of all files below a folder.
std::map<std::string, std::string> contents_below(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      std::ifstream file(entry.path(), std::ios::binary);
      contents[entry.path().string().substr(folder.size())] = {std::istreambuf_iterator<char>(file), {}};
    }
  }
  return contents;
}

// Where the training data of a data set are, as --train-data, --train-dates and --channels name them.
data::WeatherOptions training_data(const GenerateWeatherOptions& options) {
  data::WeatherOptions reading;
  const bool is_waves = options.weather == data::WeatherKind::kWaves;
  const bool is_single = is_waves && options.format == data::WeatherFormat::kZarr;
  reading.folder = options.out + (is_single ? "/weather.zarr" : "/train");
  reading.fields.dates.span = is_single ? "1999/2000" : "";
  const bool is_named = options.format != data::WeatherFormat::kHdf5;
  reading.fields.channels = !is_named  ? ""
                            : is_waves ? kWaveNames
                                       : "u,v,height,vorticity,divergence,"
                                         "potential_vorticity,kinetic_energy,tracer_1,tracer_2";
  return reading;
}

constexpr data::WeatherFormat kWeatherFormats[] = {data::WeatherFormat::kHdf5, data::WeatherFormat::kNetcdf,
                                                   data::WeatherFormat::kZarr};

}  // namespace

TEST_CASE("generate waves: the same files from 1, 2 and 4 ranks") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  for (const data::WeatherFormat format : kWeatherFormats) {
    INFO("format ", static_cast<int>(format));
    std::map<std::string, std::string> first;
    for (const int ranks : {1, 2, 4}) {
      if (ranks > world.size()) continue;
      const std::string folder = scratch.file(str(static_cast<int>(format), "-", ranks));
      const comm::MpiGroup part = world.split(world.rank() < ranks ? 0 : 1);
      if (world.rank() < ranks) data::generate_weather(wave_options(folder, format), part);
      if (world.rank() == 0) {
        const std::map<std::string, std::string> files = contents_below(folder);
        first = ranks == 1 ? files : first;
        CHECK(files.size() > 5);
        CHECK((files == first));  // too long to be printed
      }
      world.barrier();
    }
  }
}

TEST_CASE("generate: what is stored in any format is what was made, and has the same statistics") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  for (const auto weather : {data::WeatherKind::kShallowWater, data::WeatherKind::kWaves}) {
    const bool is_waves = weather == data::WeatherKind::kWaves;
    std::map<std::string, std::string> first;
    for (const data::WeatherFormat format : kWeatherFormats) {
      INFO("weather ", static_cast<int>(weather), ", format ", static_cast<int>(format));
      const std::string folder = scratch.file(str(static_cast<int>(weather), "-", static_cast<int>(format)));
      const GenerateWeatherOptions options = is_waves ? wave_options(folder, format) : [&] {
        GenerateWeatherOptions of_water = weather_options(folder);
        of_water.format = format;
        return of_water;
      }();
      data::generate_weather(options, world);
      const data::WeatherOptions reading = training_data(options);
      const data::WeatherDataset dataset(world, reading);
      const int64_t pairs = is_waves ? 2 * 6 : 3 * 4;  // none from one year into the next
      REQUIRE(dataset.size() == pairs);
      CHECK(dataset.io_text().starts_with("direct"));
      CHECK(dataset.grid().latitudes.size() == (is_waves ? 10 : 0));
      CHECK(dataset.channel_names().size() == (is_waves ? 7 : 9));
      const std::vector<int64_t> samples{1, pairs - 1};
      const data::Batch batch = dataset.read(samples, {}, 0);
      at::Tensor last;  // the last row of the training years
      if (is_waves) {
        const data::PlanetaryWaves waves(data::wave_channels(kWaveNames), options.height, options.width, options.seed);
        last = at::empty({7, options.height, options.width});
        constexpr double kBegin = 36524.0 * 24.0;  // days from 1900-01-01 to 2000-01-01
        waves.sample(kBegin + 6.0 * 6.0, last.mutable_data_ptr<float>());
        CHECK(dataset.lead().hours == 6.0);
      } else {
        GenerateWeatherOptions year = options;
        year.first_year = 2001;
        last = data::generate_weather_in_memory(year).fields[4];
      }
      CHECK(at::equal(batch.targets[1], last));
      CHECK_FALSE(at::equal(batch.inputs[1], last));

      // The statistics of the generator, and those of `data stats`, by the format.
      data::WriteStatsOptions stats;
      stats.inputs = {reading.folder};
      stats.out = folder + "/again";
      stats.fields = reading.fields;
      stats.time_means = true;
      const data::WrittenStats written = data::write_stats(world, stats);
      CHECK(written.num_samples == (is_waves ? 14 : 15));
      if (world.rank() == 0) {
        const std::map<std::string, std::string> again = contents_below(stats.out),
                                                 own = contents_below(folder + "/stats");
        first = first.empty() ? again : first;
        CHECK((again == first));
        CHECK(own.size() == 4);
        for (const auto& [name, content] : own) {
          INFO(name);
          CHECK((content == again.at(name) || !is_waves));
        }
      }
      world.barrier();
    }
  }
}

TEST_CASE("generate: stores that are there are refused, replaced as a whole, and never lose what is not replaced") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  GenerateWeatherOptions options = wave_options(scratch.file("data"), data::WeatherFormat::kZarr);
  const auto generate = [&] { data::generate_weather(options, world); };
  const std::string store = scratch.file("data/weather.zarr");
  const auto on_rank_0 = [&](const auto& change) {
    world.barrier();  // nobody looks at what was before any more
    if (world.rank() == 0) change();
    world.barrier();
  };
  const auto put = [&](const std::string& path) {
    on_rank_0([&] {
      fs::create_directories(fs::path(path).parent_path());
      std::ofstream(path) << "x";
    });
  };
  generate();
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "is not empty"));
  options.overwrite = true;
  options.seed += 1;
  generate();  // the same chunks
  CHECK(data::is_zarr_store(store));
  put(store + "/mine.txt");
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "also has mine.txt, which would not be replaced"));
  on_rank_0([&] { fs::remove(store + "/mine.txt"); });
  options.steps_per_year = 6;  // fewer chunks
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "which would not be replaced"));
  CHECK(data::is_zarr_store(store));
  options.steps_per_year = 7;
  on_rank_0([&] {
    fs::rename(store + "/z", scratch.file("z"));
    fs::create_directory_symlink(scratch.file("z"), store + "/z");
  });
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "also has z, which would not be replaced"));
  on_rank_0([&] {
    fs::remove(store + "/z");
    fs::rename(scratch.file("z"), store + "/z");
  });
  // Other formats of the same folder would leave the store behind, and the store the files.
  options.format = data::WeatherFormat::kNetcdf;
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "weather.zarr, which would not be replaced"));
  options = wave_options(scratch.file("files"), data::WeatherFormat::kNetcdf);
  generate();
  options.overwrite = true;
  options.format = data::WeatherFormat::kZarr;
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "which would not be replaced"));

  // What a killed attempt leaves is nothing: chunks without metadata.
  options = wave_options(scratch.file("killed"), data::WeatherFormat::kZarr);
  const std::string killed = scratch.file("killed/weather.zarr");
  put(killed + "/z/c/3/0/0/0");
  put(killed + "/zarr.json.partial");
  put(killed + "/time/zarr.json.3fa9c07e.partial");
  generate();
  CHECK(data::is_zarr_store(killed));
  CHECK(data::read_npy(options.out + "/stats/global_means.npy").numel() == 7);
  on_rank_0([&] { fs::remove(killed + "/zarr.json"); });
  on_rank_0([&] { fs::remove_all(options.out + "/stats"); });
  generate();  // killed between the metadata of its arrays and its own
  CHECK(data::is_zarr_store(killed));
  // What is no chunk of these arrays is somebody's.
  for (const char* name : {"z/c/99/0/0/0", "z/zarr.json", "zarr.json", "other/c/0"}) {
    INFO(name);
    options = wave_options(scratch.file(str("some", name)), data::WeatherFormat::kZarr);
    put(str(options.out, "/weather.zarr/", name));
    CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "is not empty"));
    CHECK(fs::file_size(str(options.out, "/weather.zarr/", name)) == 1);
  }
  options = wave_options(scratch.file("taken"), data::WeatherFormat::kZarr);
  put(scratch.file("taken/weather.zarr"));
  options.overwrite = true;
  CHECK(contains(error_text(ErrorClass::kCannotCreate, generate), "is there and is no folder"));
}

TEST_CASE("generate: options of waves and of dates that cannot be") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  GenerateWeatherOptions options = wave_options(scratch.file("data"), data::WeatherFormat::kNetcdf);
  const auto refusal = [&] { return error_text(ErrorClass::kUsage, [&] { data::generate_weather(options, world); }); };
  options.channel_names = "u10,nothing";
  CHECK(contains(refusal(), "'nothing', which the waves do not make"));
  options.channel_names = "";
  options.channels = 74;
  CHECK(contains(refusal(), "channels of waves is 74, allowed is 1 to 73"));
  options.channels = 3;
  options.steps_per_year = 1461;
  CHECK(contains(refusal(), "steps_per_year x sample_interval_hours is 8766, allowed is 0 to 8760"));
  options = weather_options(scratch.file("data"));
  options.channel_names = "u10";
  CHECK(contains(refusal(), "channels are 'u10'"));
  CHECK_FALSE(fs::exists(scratch.file("data")));
}
