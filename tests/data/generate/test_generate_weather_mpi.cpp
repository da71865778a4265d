// Generated data sets: the same numbers from any number of ranks, in the layout that the readers know.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "data/datasets/npy.h"
#include "data/datasets/weather_dataset.h"
#include "data/generate/generate_images.h"
#include "data/generate/generate_weather.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/reading/posix_file.h"
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
