// The command `data convert`: a folder of images as one HDF5 file.
#include "data/tools/convert_images.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/commands/data.h"

namespace vit_hybrid::commands {

namespace {

using data::ConvertOptions;

constexpr size_t kMostBadLines = 20;

options::OptionTable table_of(ConvertOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Options");
  table.add({.name = "out",
             .value = options::text(chosen.out, "file"),
             .help = "HDF5 file to be written, with the datasets images and labels. Must be given."});
  table.add({.name = "size",
             .value = options::integer(chosen.size, {1, 4096}),
             .help = "Side of the stored images.",
             .unit = "pixels"});
  table.add({.name = "resize",
             .value = options::choice(chosen.resize, {"shorter", "both"}),
             .help = "Which side becomes --size: the shorter one, of which the centre is kept, or both."});
  table.add({.name = "interpolation",
             .value = options::choice(chosen.interpolation, {"bilinear", "bicubic"}),
             .help = "Filter of the resizing, antialiased."});
  table.add({.name = "orientation",
             .value = options::choice(chosen.orientation, {"apply", "ignore"}),
             .help = "Turn images as their Exif data say, or leave them as they are stored."});
  table.add({.name = "seed",
             .value = options::integer(chosen.seed, {0}),
             .help = "Of the order of the images in the file, in which the classes are mixed."});
  table.add({.name = "skip-bad",
             .value = options::flag(chosen.skip_bad),
             .help = "Leave files that cannot be decoded out and count them, instead of stopping."});
  table.add({.name = "overwrite", .value = options::flag(chosen.overwrite), .help = "Replace the file."});
  return table;
}

std::vector<std::string> problems_of(const ConvertOptions& chosen) {
  std::vector<std::string> problems;
  if (chosen.inputs.size() != 1) {
    problems.push_back(str("one folder of images is needed, ", chosen.inputs.size(), " were given"));
  }
  if (chosen.out.empty()) {
    problems.push_back("--out FILE must be given: what is to be written");
  }
  return problems;
}

void report(const data::ConvertedImages& converted, const ConvertOptions& chosen, double seconds) {
  for (size_t i = 0; i < std::min(converted.bad.size(), kMostBadLines); ++i) {
    log_warning("left out: " + converted.bad[i]);
  }
  if (converted.num_stray > 0) {
    log_warning(str("left out: images beside the classes' folders of ", chosen.inputs.front(),
                    ", which are of no class: ", converted.num_stray));
  }
  const std::string left_out = converted.bad.empty() ? "" : str(", ", converted.bad.size(), " bad files left out");
  const std::string ignored =
      converted.num_ignored == 0 ? "" : str(", ", converted.num_ignored, " files of other kinds ignored");
  log_line(str("wrote ", chosen.out, ": ", converted.num_images, " images in ", converted.num_classes, " classes",
               left_out, ignored, ", in ", seconds_text(seconds)));
}

}  // namespace

std::string data_convert_help() {
  return "usage: [mpirun -n N] vit_hybrid data convert FOLDER --out FILE.h5 [options]\n\nDecodes the JPEG and PNG "
         "files "
         "of a folder that has one subfolder for each class (ImageNet's synsets; classes are\nnumbered in the order of "
         "their names) and writes them as images (n, size, size, 3) and labels (n) in HDF5. All ranks\ndecode; the "
         "file "
         "does not depend on how many there are.\n" +
         data_tool_table(&table_of, &options::help_text);
}

std::string data_convert_markdown() {
  return "\n`vit_hybrid data convert FOLDER --out FILE.h5`. These are given on the command line only.\n" +
         data_tool_table(&table_of, &options::markdown_text);
}

int run_data_convert(const Invocation& invocation) {
  return run_data_tool(invocation, &table_of, &problems_of,
                       [](const ConvertOptions& chosen, const comm::MpiGroup& world) {
                         const Timer timer;
                         const auto converted = data::convert_images(world, chosen);
                         report(converted, chosen, timer.seconds());
                       });
}

}  // namespace vit_hybrid::commands
