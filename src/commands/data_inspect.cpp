// The command `data inspect`: what is in HDF5 files, and what reading them costs.
#include "data/tools/inspect_files.h"

#include "src/base/text.h"
#include "src/commands/data_tool.h"

namespace vit_hybrid::commands {

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
             data_tool_table(&table_of, &options::help_text));
}

std::string data_inspect_markdown() {
  return str("\n`vit_hybrid data inspect FILE...`. These are given on the command line only.\n",
             data_tool_table(&table_of, &options::markdown_text));
}

int run_data_inspect(const Invocation& invocation) {
  return run_data_tool(invocation, &table_of, &problems_of, [](const Choice& chosen, const comm::MpiGroup& world) {
    InspectOptions inspect = chosen;
    if (chosen.all) {
      inspect.sample = 0;
    }
    data::inspect_files(world, inspect, &print_once);
  });
}

}  // namespace vit_hybrid::commands
