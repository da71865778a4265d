// The command `data stats`: means and deviations by channel over a folder of weather data.
#include "data/tools/inspect_files.h"
#include "data/tools/write_stats.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/commands/data_tool.h"

namespace vit_hybrid::commands {

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
         data_tool_table(&table_of, &options::help_text);
}

std::string data_stats_markdown() {
  return "\n`vit_hybrid data stats FOLDER --out FOLDER`. These are given on the command line only.\n" +
         data_tool_table(&table_of, &options::markdown_text);
}

int run_data_stats(const Invocation& invocation) {
  return run_data_tool(invocation, &table_of, &problems_of,
                       [](const WriteStatsOptions& chosen, const comm::MpiGroup& world) {
                         const Timer timer;
                         const auto stats = data::write_stats(world, chosen);
                         report(stats, chosen, timer.seconds());
                       });
}

}  // namespace vit_hybrid::commands
