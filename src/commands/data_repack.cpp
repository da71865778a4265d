// The command `data repack`: HDF5 files rewritten in a layout that is fast to read.
#include "data/tools/repack_files.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/commands/data_tool.h"

namespace vit_hybrid::commands {

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
         data_tool_table(&table_of, &options::help_text);
}

std::string data_repack_markdown() {
  return "\n`vit_hybrid data repack FILE... --out FOLDER`. These are given on the command line only.\n" +
         data_tool_table(&table_of, &options::markdown_text);
}

int run_data_repack(const Invocation& invocation) {
  return run_data_tool(invocation, &table_of, &problems_of,
                       [](const RepackOptions& chosen, const comm::MpiGroup& world) {
                         const Timer timer;
                         const auto files = data::repack_files(world, chosen, &log_line);
                         warn_of_loss(files);
                         log_line(str("repacked ", files.size(), files.size() == 1 ? " file" : " files", " into ",
                                      chosen.out, " in ", seconds_text(timer.seconds())));
                       });
}

}  // namespace vit_hybrid::commands
