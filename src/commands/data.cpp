// Tables of options and the bodies of `data generate`, `inspect`, `repack` and `stats`.
#include "src/commands/data.h"

#include <cmath>

#include "data/generate/generate_images.h"
#include "data/generate/generate_weather.h"
#include "data/tools/inspect_files.h"
#include "data/tools/repack_files.h"
#include "data/tools/row_statistics.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/commands/command.h"
#include "src/config/sources.h"

namespace vit_hybrid::commands {

namespace {

using data::GenerateImagesOptions;
using data::GenerateWeatherOptions;
using options::flag;
using options::integer;
using options::number;
using options::text;

void add_extent_of_data(options::OptionTable& table, GenerateWeatherOptions& generate) {
  table.begin_group("Extent");
  table.add({.name = "train-years", .value = integer(generate.train_years, {1, 1000}), .help = "Files in train/."});
  table.add({.name = "valid-years", .value = integer(generate.valid_years, {0, 1000}), .help = "Files in valid/."});
  table.add({.name = "first-year",
             .value = integer(generate.first_year, {0, 9999}),
             .help = "Name of the first file; those of valid/ follow those of train/."});
  table.add({.name = "steps-per-year",
             .value = integer(generate.steps_per_year, {2, 1000000}),
             .help = "Samples in a file.",
             .unit = "samples"});
  table.add(
      {.name = "channels",
       .value = integer(generate.channels, {1, 256}),
       .help = "Fields: u, v, height, vorticity, divergence, potential vorticity, kinetic energy, then tracers."});
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

template <class Options>
std::vector<std::string> parse(const std::vector<std::string>& words, Options& generate) {
  const options::OptionTable table = table_of(generate);
  options::Settings settings(table);
  settings.add(options::parse_command_line(table, words));
  settings.apply_all();
  warn_of_remarks(settings);
  auto problems = settings.problems();
  if (generate.out.empty()) {
    problems.push_back(str("--out FOLDER must be given: where the data are to be written"));
  }
  return problems;
}

// Starts MPI, reads the options on all ranks, and calls `write(options, world)`.
template <class Options, class Write>
int generate(const Invocation& invocation, const Write& write) {
  comm::MpiSession session(invocation.argc, invocation.argv);
  set_log_speaker(session.world().rank() == 0);
  agree_on_start(session.world(), invocation.words);
  Options chosen;
  const auto problems = same_error_on_all_ranks([&] { return parse(invocation.words, chosen); });
  if (!problems.empty()) {
    throw_on_all_ranks(Error(ErrorClass::kUsage, options::problem_list(problems)));
  }
  const Timer timer;
  write(chosen, session.world());
  log_line(str("wrote ", chosen.out, " in ", std::round(timer.seconds() * 100.0) / 100.0, " s"));
  session.finalize();
  return 0;
}

template <class Options>
std::string with_table(std::string (*text_of)(const options::OptionTable&)) {
  Options chosen;
  return text_of(table_of(chosen));
}

constexpr const char* kOnlyCommandLine = "\nThese are given on the command line only.\n";

}  // namespace

std::string data_generate_help() {
  return "usage: [mpirun -n N] vit_hybrid data generate --out FOLDER [options]\n\nIntegrates the rotating "
         "shallow-water "
         "equations and writes their fields in the layout of ERA5 training data.\nEvery rank takes its share of the "
         "years; the data do not depend on the number of ranks.\n" +
         with_table<GenerateWeatherOptions>(&options::help_text);
}

std::string data_generate_markdown() {
  return kOnlyCommandLine + with_table<GenerateWeatherOptions>(&options::markdown_text);
}

int run_data_generate(const Invocation& invocation) {
  return generate<GenerateWeatherOptions>(invocation, [](const auto& chosen, const comm::MpiGroup& world) {
    data::generate_weather(chosen, world, &log_line);
  });
}

std::string data_generate_images_help() {
  return "usage: [mpirun -n N] vit_hybrid data generate images --out FOLDER [options]\n\nPaints labelled images in the "
         "layout of image training data.\n" +
         with_table<GenerateImagesOptions>(&options::help_text);
}

std::string data_generate_images_markdown() {
  return kOnlyCommandLine + with_table<GenerateImagesOptions>(&options::markdown_text);
}

int run_data_generate_images(const Invocation& invocation) {
  return generate<GenerateImagesOptions>(invocation, [](const auto& chosen, const comm::MpiGroup& world) {
    data::generate_images(chosen, world, &log_line);
  });
}

namespace {

using data::InspectOptions;

struct Choice : InspectOptions {
  bool all = false;
};

options::OptionTable table_of(Choice& chosen) {
  options::OptionTable table;
  table.begin_group("Options");
  table.add({.name = "sample",
             .value = options::integer(chosen.sample, {1, 1000000000}),
             .help = "Rows, spread over each dataset, whose values are looked at.",
             .unit = "rows"});
  table.add({.name = "all", .value = options::flag(chosen.all), .help = "Look at all rows."});
  table.add({.name = "bands",
             .value = options::integer(chosen.bands, {1, 100000}),
             .help = "Latitude bands that a sample is read in, as tensor-parallel ranks share it."});
  return table;
}

std::vector<std::string> problems_of(const Choice& chosen) {
  if (chosen.inputs.empty()) {
    return {"no file is given: vit_hybrid data inspect FILE..."};
  }
  return {};
}

constexpr const char* kIntroduction =
    "Tells of every dataset its shape, type, layout and place in the file, what one sample costs to read, and the "
    "values\nby channel: extremes, mean, deviation, NaN and infinities. A folder stands for the *.h5 files in it. "
    "Where a layout is\nslow to read, the command that repacks it is printed. All ranks read together.\n";

}  // namespace

std::string data_inspect_help() {
  return str("usage: [mpirun -n N] vit_hybrid data inspect FILE... [options]\n\n", kIntroduction,
             data_tool_table<Choice>(&table_of, &options::help_text));
}

std::string data_inspect_markdown() {
  return str("\n`vit_hybrid data inspect FILE...`. These are given on the command line only.\n",
             data_tool_table<Choice>(&table_of, &options::markdown_text));
}

int run_data_inspect(const Invocation& invocation) {
  return run_data_tool<Choice>(invocation, &table_of, &problems_of,
                               [](const Choice& chosen, const comm::MpiGroup& world) {
                                 InspectOptions inspect = chosen;
                                 if (chosen.all) {
                                   inspect.sample = 0;
                                 }
                                 data::inspect_files(world, inspect, &print_once);
                               });
}

namespace {

using data::RepackOptions;

options::OptionTable table_of(RepackOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Options");
  table.add({.name = "out",
             .value = options::text(chosen.out, "folder"),
             .help = "Folder to be made; it gets a file for each that is given. Must be given."});
  table.add({.name = "dataset",
             .value = options::text(chosen.dataset, "name"),
             .help = "Dataset to rewrite, by default 'fields' or 'images'; all others are copied as they are."});
  table.add({.name = "layout",
             .value = options::choice(chosen.layout, {"contiguous", "sample-chunks"}),
             .help = "All values in one run, or one chunk without filters for each sample."});
  table.add({.name = "dtype",
             .value = options::choice(chosen.type, {"keep", "fp32", "bf16", "fp16"}),
             .help = "Type of the values in the file (unsigned integers of 2 and 4 bytes are kept in the next larger "
                     "signed type); a value that the type cannot hold is refused."});
  table.add({.name = "align",
             .value = options::integer(chosen.align, {1, int64_t{1} << 30}),
             .help = "The dataset, or each of its chunks, begins at a multiple of this.",
             .unit = "bytes"});
  table.add({.name = "overwrite", .value = options::flag(chosen.overwrite), .help = "Replace files of these names."});
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

}  // namespace

std::string data_repack_help() {
  return "usage: [mpirun -n N] vit_hybrid data repack FILE... --out FOLDER [options]\n\nRewrites one dataset of each "
         "file so that training reads it directly; every rank its samples. Attributes, dimension\nscales and the other "
         "datasets are kept. Each file is written under a temporary name, read back and compared by\nchecksums, and "
         "then renamed. A folder stands for the *.h5 files in it.\n" +
         data_tool_table<RepackOptions>(&table_of, &options::help_text);
}

std::string data_repack_markdown() {
  return "\n`vit_hybrid data repack FILE... --out FOLDER`. These are given on the command line only.\n" +
         data_tool_table<RepackOptions>(&table_of, &options::markdown_text);
}

int run_data_repack(const Invocation& invocation) {
  return run_data_tool<RepackOptions>(invocation, &table_of, &problems_of,
                                      [](const RepackOptions& chosen, const comm::MpiGroup& world) {
                                        const Timer timer;
                                        const auto files = data::repack_files(world, chosen, &log_line);
                                        warn_of_loss(files);
                                        log_line(str("repacked ", files.size(), files.size() == 1 ? " file" : " files",
                                                     " into ", chosen.out, " in ", seconds_text(timer.seconds())));
                                      });
}

namespace {

using data::WriteStatsOptions;

options::OptionTable table_of(WriteStatsOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Options");
  table.add({.name = "out",
             .value = options::text(chosen.out, "folder"),
             .help = "Folder that gets global_means.npy and global_stds.npy. Must be given."});
  table.add({.name = "dataset", .value = options::text(chosen.dataset, "name"), .help = "Dataset of the fields."});
  table.add({.name = "time-means",
             .value = options::flag(chosen.time_means),
             .help = "Also write time_means.npy (1, C, H, W), against which anomalies are taken."});
  table.add({.name = "skip-missing",
             .value = options::flag(chosen.skip_missing),
             .help = "Leave NaN and infinities out and count them, instead of refusing them."});
  table.add({.name = "overwrite", .value = options::flag(chosen.overwrite), .help = "Replace such files."});
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
  return problems;
}

void report(const data::WrittenStats& stats, const WriteStatsOptions& chosen, double seconds) {
  log_line(data::statistics_table(stats.channels, stats.channel_names));
  log_line(str("wrote ", chosen.out, " from ", stats.num_samples, " samples in ", seconds_text(seconds)));
}

}  // namespace

std::string data_stats_help() {
  return "usage: [mpirun -n N] vit_hybrid data stats FOLDER --out FOLDER/stats [options]\n\nComputes mean and standard "
         "deviation of each channel over all times of the year files in FOLDER, in double; all ranks\nread together. "
         "The numbers do not depend on how many there are.\n" +
         data_tool_table<WriteStatsOptions>(&table_of, &options::help_text);
}

std::string data_stats_markdown() {
  return "\n`vit_hybrid data stats FOLDER --out FOLDER`. These are given on the command line only.\n" +
         data_tool_table<WriteStatsOptions>(&table_of, &options::markdown_text);
}

int run_data_stats(const Invocation& invocation) {
  return run_data_tool<WriteStatsOptions>(invocation, &table_of, &problems_of,
                                          [](const WriteStatsOptions& chosen, const comm::MpiGroup& world) {
                                            const Timer timer;
                                            const auto stats = data::write_stats(world, chosen);
                                            report(stats, chosen, timer.seconds());
                                          });
}

}  // namespace vit_hybrid::commands
