// Tables of options and the bodies of `data generate`, `inspect`, `repack` and `stats`.
#include <cmath>
#include <string>
#include <utility>

#include "data/generate/generate_images.h"
#include "data/generate/generate_weather.h"
#include "data/tools/climatology.h"
#include "data/tools/inspect_files.h"
#include "data/tools/repack_files.h"
#include "data/tools/row_statistics.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/commands/command.h"
#include "src/config/field_options.h"
#include "src/config/sources.h"

namespace vit_hybrid::commands {

namespace {

using data::GenerateImagesOptions;
using data::GenerateWeatherOptions;
using data::InspectOptions;
using data::RepackOptions;
using data::WriteStatsOptions;
using options::flag;
using options::integer;
using options::number;
using options::text;

// A number of channels, or their names.
options::Value channels_value(GenerateWeatherOptions& generate) {
  options::Value value = text(generate.channel_names, "names");
  options::Value number = integer(generate.channels, {1, 256});
  value.type = "integer or names";
  value.allowed = "1 to 256, or names with commas between them";
  value.parse = [&generate, parse_number = std::move(number.parse)](const std::string& given) {
    if (given.find_first_not_of("-+0123456789") == std::string::npos) {
      generate.channel_names.clear();
      return parse_number(given);
    }
    generate.channel_names = given;
    return true;
  };
  value.print = [&generate] {
    return generate.channel_names.empty() ? str(generate.channels) : generate.channel_names;
  };
  return value;
}

void add_extent_of_data(options::OptionTable& table, GenerateWeatherOptions& generate) {
  table.begin_group("Extent");
  table.add({.name = "train-years", .value = integer(generate.train_years, {1, 1000}), .help = "Years in train/."});
  table.add({.name = "valid-years", .value = integer(generate.valid_years, {0, 1000}), .help = "Years in valid/."});
  table.add({.name = "first-year",
             .value = integer(generate.first_year, {0, 9999}),
             .help = "Name of the first file; those of valid/ follow those of train/."});
  table.add({.name = "steps-per-year",
             .value = integer(generate.steps_per_year, {2, 1000000}),
             .help = "Samples of a year.",
             .unit = "samples"});
  table.add({.name = "channels",
             .value = channels_value(generate),
             .help =
                 "Fields of shallow water: u, v, height, vorticity, divergence, potential vorticity, kinetic energy, "
                 "then tracers. Of waves names of ERA5 (u10,t2m,z:500:850), or a number of the 73 that begin with "
                 "u10, v10, u100m, v100m, t2m, sp, msl, tcwv and go on with u, v, z, t, q at 13 levels each."});
  table.add({.name = "height", .value = integer(generate.height, {8, 16384}), .help = "Rows of a field (latitudes)."});
  table.add(
      {.name = "width", .value = integer(generate.width, {8, 16384}), .help = "Columns of a field (longitudes)."});
}

void add_common(options::OptionTable& table, std::string& out, bool& overwrite, uint64_t& seed, const char* files,
                const char* seed_help) {
  table.begin_group("General");
  table.add({.name = "out",
             .value = text(out, "folder"),
             .help = str("Folder to be made; it gets ", files, ". Must be given.")});
  table.add({.name = "overwrite",
             .value = flag(overwrite),
             .help = "Replace files of the same names in a folder that is not empty."});
  table.add({.name = "seed", .value = integer(seed, {0}), .help = seed_help});
}

options::OptionTable table_of(GenerateWeatherOptions& generate) {
  options::OptionTable table;
  add_common(table, generate.out, generate.overwrite, generate.seed, "train/, valid/ and stats/",
             "A year is a function of the seed, its number and the grid.");
  table.add({.name = "weather",
             .value = options::choice(generate.weather, {"shallow-water", "waves"}),
             .help = "shallow-water: an integration on a periodic plane; waves: planetary waves with a daily cycle, in "
                     "channels of ERA5 on the globe, quickly made at any size."});
  table.add({.name = "format",
             .value = options::choice(generate.format, {"hdf5", "netcdf", "zarr"}),
             .help = "hdf5: a file a year with one dataset of all channels; netcdf: a NetCDF-4 file a year with a "
                     "variable a quantity; zarr: such arrays in Zarr stores (version 3), of waves in a single one."});
  add_extent_of_data(table, generate);
  options::NumberRange hours;
  hours.least = 0.25;
  hours.most = 240.0;
  table.add({.name = "sample-interval-hours",
             .value = number(generate.sample_interval_hours, hours),
             .help = "Model time from one sample to the next.",
             .unit = "h"});
  return table;
}

options::OptionTable table_of(GenerateImagesOptions& generate) {
  options::OptionTable table;
  add_common(table, generate.out, generate.overwrite, generate.seed, "train.h5 and valid.h5",
             "An image is a function of the seed, its number, its size and the number of classes.");
  table.begin_group("Extent");
  table.add(
      {.name = "train-images", .value = integer(generate.train_images, {1, 100000000}), .help = "Images in train.h5."});
  table.add({.name = "valid-images",
             .value = integer(generate.valid_images, {0, 100000000}),
             .help = "Images in valid.h5; without any there is no such file."});
  table.add(
      {.name = "size", .value = integer(generate.size, {8, 1024}), .help = "Side of an image.", .unit = "pixels"});
  table.add({.name = "classes", .value = integer(generate.classes, {2, 30}), .help = "Classes of images."});
  return table;
}

// Of both kinds of generated data.
template <class Generate>
std::vector<std::string> problems_of(const Generate& generate) {
  if (generate.out.empty()) {
    return {"--out FOLDER must be given: where the data are to be written"};
  }
  return {};
}

options::OptionTable table_of(InspectOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Options");
  table.add({.name = "sample",
             .value = integer(chosen.sample, {1, 1000000000}),
             .help = "Rows, spread over each dataset, whose values are looked at.",
             .unit = "rows"});
  table.add({.name = "all", .value = flag(chosen.all), .help = "Look at all rows."});
  table.add({.name = "bands",
             .value = integer(chosen.bands, {1, 100000}),
             .help = "Latitude bands that a sample is read in, as tensor-parallel ranks share it."});
  return table;
}

std::vector<std::string> problems_of(const InspectOptions& chosen) {
  if (chosen.inputs.empty()) {
    return {"no file is given: vit_hybrid data inspect FILE..."};
  }
  return {};
}

options::OptionTable table_of(RepackOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Options");
  table.add({.name = "out",
             .value = text(chosen.out, "folder"),
             .help = "Folder to be made; it gets a file for each that is given. Must be given."});
  table.add({.name = "dataset",
             .value = text(chosen.dataset, "name"),
             .help = "Dataset to rewrite, by default 'fields' or 'images'; all others are copied as they are."});
  table.add({.name = "layout",
             .value = options::choice(chosen.layout, {"contiguous", "sample-chunks"}),
             .help = "All values in one run, or one chunk without filters for each sample."});
  table.add({.name = "dtype",
             .value = options::choice(chosen.type, {"keep", "fp32", "bf16", "fp16"}),
             .help = "Type of the values in the file (unsigned integers of 2 and 4 bytes are kept in the next larger "
                     "signed type); a value that the type cannot hold is refused."});
  table.add({.name = "align",
             .value = integer(chosen.align, {1, int64_t{1} << 30}),
             .help = "The dataset, or each of its chunks, begins at a multiple of this.",
             .unit = "bytes"});
  table.add({.name = "overwrite", .value = flag(chosen.overwrite), .help = "Replace files of these names."});
  return table;
}

std::vector<std::string> problems_of(const RepackOptions& chosen) {
  std::vector<std::string> problems;
  if (chosen.inputs.empty()) {
    problems.push_back("no file is given: vit_hybrid data repack FILE... --out FOLDER");
  }
  if (chosen.out.empty()) {
    problems.push_back("--out FOLDER must be given: where the files are to be written");
  }
  return problems;
}

void warn_of_loss(const std::vector<data::RepackedFile>& files) {
  for (const data::RepackedFile& file : files) {
    if (file.num_blurred > 0) {
      log_warning(str(file.path, ": ", file.num_blurred, " of ", file.num_values,
                      " values are below the smallest normal number of fp16 (6.1e-5) and lost digits; --dtype bf16 "
                      "keeps their range"));
    }
  }
}

options::OptionTable table_of(WriteStatsOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Options");
  table.add({.name = "out",
             .value = text(chosen.out, "folder"),
             .help = "Folder that gets global_means.npy and global_stds.npy. Must be given."});
  table.add({.name = "dataset", .value = text(chosen.fields.dataset, "name"), .help = "Dataset of the fields."});
  train::add_channels(table, chosen.fields.channels, chosen.fields.variables);
  table.add({.name = "dates",
             .value = text(chosen.fields.dates.span, "FROM/TO"),
             .help = "Dates of which the statistics are, both included, such as 1979/2015; all where not given."});
  table.add({.name = "time-means",
             .value = flag(chosen.time_means),
             .help = "Also write time_means.npy (1, C, H, W), against which anomalies are taken."});
  table.add({.name = "increments",
             .value = flag(chosen.increments),
             .help = "Also write time_diff_means.npy and time_diff_stds.npy, of the differences between states that "
                     "lie dt apart."});
  train::add_lead(table, chosen.lead, "Rows from one state of an increment to the other.");
  table.add({.name = "climatology",
             .value = flag(chosen.climatology),
             .help =
                 "Also write climatology.nc, the mean of each day of the year and hour of the day, as WeatherBench 2 "
                 "has it; the data need dates."});
  table.add({.name = "climatology-days",
             .value = integer(chosen.climatology_days, {1, data::kMostWindowDays}),
             .help = "Days of the window around a day whose rows count for it, an odd number; weights fall linearly "
                     "from 1 at its centre to 0.",
             .unit = "days"});
  table.add({.name = "skip-missing",
             .value = flag(chosen.skip_missing),
             .help = "Leave NaN and infinities out and count them, instead of refusing them."});
  table.add({.name = "overwrite", .value = flag(chosen.overwrite), .help = "Replace such files."});
  return table;
}

std::vector<std::string> problems_of(const WriteStatsOptions& chosen) {
  std::vector<std::string> problems;
  if (chosen.inputs.size() != 1) {
    problems.push_back(str("one folder of data files is needed, ", chosen.inputs.size(), " were given"));
  }
  if (chosen.out.empty()) {
    problems.push_back("--out FOLDER must be given: where the statistics are to be written");
  }
  if (!chosen.climatology && chosen.climatology_days != WriteStatsOptions().climatology_days) {
    problems.emplace_back("--climatology-days has no effect without --climatology");
  }
  if (chosen.climatology_days % 2 == 0) {
    problems.push_back(str("'climatology-days' is '", chosen.climatology_days,
                           "'; allowed: odd numbers, so many days "
                           "before a day as behind it"));
  }
  return problems;
}

// Seconds for a message: two digits after the point.
std::string seconds_text(const Timer& timer) {
  return str(std::round(timer.seconds() * 100.0) / 100.0, " s");
}

// Starts the job, reads the options on all ranks, the files into the member `inputs` where there is one, and calls
// `body(chosen, world)`.
template <class Options, class Body>
int run_data_tool(const Invocation& invocation, const Body& body) {
  return run_job(invocation, [&](comm::MpiSession& session) {
    Options chosen;
    const options::OptionTable table = table_of(chosen);
    options::Settings settings(table);
    if constexpr (requires { chosen.inputs; }) {
      chosen.inputs = read_files_and_options(table, invocation.words, settings);
    } else {
      read_options(table, invocation.words, settings);
    }
    auto problems = settings.problems();
    const auto more = problems_of(chosen);
    problems.insert(problems.end(), more.begin(), more.end());
    refuse(problems);
    body(chosen, session.world());
    return 0;
  });
}

template <class Options, void (*write)(const Options&, const comm::MpiGroup&, const data::GenerationProgress&)>
int run_data_generate(const Invocation& invocation) {
  return run_data_tool<Options>(invocation, [](const Options& chosen, const comm::MpiGroup& world) {
    const Timer timer;
    write(chosen, world, &log_line);
    log_line(str("wrote ", chosen.out, " in ", seconds_text(timer)));
  });
}

int run_data_inspect(const Invocation& invocation) {
  return run_data_tool<InspectOptions>(invocation, [](const InspectOptions& chosen, const comm::MpiGroup& world) {
    data::inspect_files(world, chosen, &print_once);
  });
}

int run_data_repack(const Invocation& invocation) {
  return run_data_tool<RepackOptions>(invocation, [](const RepackOptions& chosen, const comm::MpiGroup& world) {
    const Timer timer;
    const auto files = data::repack_files(world, chosen, &log_line);
    warn_of_loss(files);
    log_line(str("repacked ", counted(files.size(), "file"), " into ", chosen.out, " in ", seconds_text(timer)));
  });
}

int run_data_stats(const Invocation& invocation) {
  return run_data_tool<WriteStatsOptions>(invocation, [](const WriteStatsOptions& chosen, const comm::MpiGroup& world) {
    const Timer timer;
    const auto stats = data::write_stats(world, chosen);
    const std::string taken = seconds_text(timer);
    log_line(data::statistics_table(stats.channels, stats.channel_names));
    if (chosen.increments) {
      log_line(str("increments over ", data::lead_text(stats.lead), ":\n",
                   data::statistics_table(stats.increments, stats.channel_names)));
    }
    if (!stats.climatology.empty()) {
      log_line(str("climatology of ", stats.climatology));
    }
    log_line(str("wrote ", chosen.out, " from ", stats.num_samples, " samples in ", taken));
  });
}

}  // namespace

std::vector<Command> data_commands() {
  return {
      {.name = "data generate",
       .summary = "write a weather data set from an own simulation",
       .run = &run_data_generate<GenerateWeatherOptions, data::generate_weather>,
       .usage = "usage: [mpirun -n N] vit_hybrid data generate --out FOLDER [options]\n\nIntegrates the rotating "
                "shallow-water equations, or adds up planetary waves, and writes the fields in the layout of\nERA5 "
                "training data, or as variables by name in NetCDF-4 files or a Zarr store. Every rank takes its share; "
                "the data do not\ndepend on the number of ranks.\n",
       .options_text = &options_text<GenerateWeatherOptions, table_of>},
      {.name = "data generate images",
       .summary = "write a data set of labelled images",
       .run = &run_data_generate<GenerateImagesOptions, data::generate_images>,
       .usage = "usage: [mpirun -n N] vit_hybrid data generate images --out FOLDER [options]\n\nPaints labelled images "
                "in the layout of image training data.\n",
       .options_text = &options_text<GenerateImagesOptions, table_of>},
      {.name = "data inspect",
       .summary = "tell of HDF5 and NetCDF-4 files and Zarr stores: layout, cost of reading, values by channel",
       .run = &run_data_inspect,
       .usage =
           "usage: [mpirun -n N] vit_hybrid data inspect FILE... [options]\n\n"
           "Tells of every dataset its shape, type, layout and place in the file, what one sample costs to read, and "
           "the values\nby channel: extremes, mean, deviation, NaN and infinities; of variables and of arrays of a "
           "Zarr "
           "store also levels, times\nand points, and the --channels and --static that take them. A folder that is no "
           "store stands for the files and stores in\nit. Where a layout is slow to read, the command that repacks it "
           "is "
           "printed. All ranks read together.\n",
       .introduction = "\n`vit_hybrid data inspect FILE...`. These are given on the command line only.\n",
       .options_text = &options_text<InspectOptions, table_of>},
      {.name = "data repack",
       .summary = "rewrite HDF5 files so that they are read fast",
       .run = &run_data_repack,
       .usage = "usage: [mpirun -n N] vit_hybrid data repack FILE... --out FOLDER [options]\n\nRewrites one dataset of "
                "each file so that training reads it directly; every rank its samples. Attributes, dimension\nscales "
                "and the other datasets are kept. Each file is written under a temporary name, read back and compared "
                "by\nchecksums, and then renamed. A folder stands for the *.h5 files in it.\n",
       .introduction = "\n`vit_hybrid data repack FILE... --out FOLDER`. These are given on the command line only.\n",
       .options_text = &options_text<RepackOptions, table_of>},
      {.name = "data stats",
       .summary = "compute means and deviations by channel",
       .run = &run_data_stats,
       .usage = "usage: [mpirun -n N] vit_hybrid data stats FOLDER --out FOLDER/stats [options]\n\nComputes mean and "
                "standard deviation of each channel over all times of the year files in FOLDER, in double; all "
                "ranks\nread together. The numbers do not depend on how many there are.\n",
       .introduction = "\n`vit_hybrid data stats FOLDER --out FOLDER`. These are given on the command line only.\n",
       .options_text = &options_text<WriteStatsOptions, table_of>}};
}

}  // namespace vit_hybrid::commands
