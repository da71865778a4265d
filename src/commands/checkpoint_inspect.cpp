// The commands `checkpoint inspect` and `checkpoint verify`: what is in a checkpoint, and whether it is whole.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include "data/reading/posix_file.h"
#include "src/base/error.h"
#include "src/base/quantity_text.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/checkpoint/precision_lines.h"
#include "src/checkpoint/reading_order.h"
#include "src/checkpoint/tensor_summary.h"
#include "src/checkpoint/verify.h"
#include "src/commands/checkpoint_tool.h"

namespace vit_hybrid::commands {

namespace {

using train::CheckpointInfo;
using train::CheckpointReader;
using train::CheckpointTensor;

struct InspectOptions {
  bool all = false;
  bool print_config = false;
};

constexpr FileCount kFile{1, 1, "FILE"};
constexpr size_t kMostListText = 65536;  // of names and figures of channels and points

options::OptionTable table_of(InspectOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Inspect");
  table.add({.name = "all", .value = options::flag(chosen.all), .help = "List the optimizer's state too."});
  table.add({.name = "print-config",
             .value = options::flag(chosen.print_config),
             .help = "Print only the configuration of the run that wrote it, as YAML that --config accepts."});
  return table;
}

const char* type_name(at::ScalarType type) {
  return type == at::kDouble ? "float64" : "float32";
}

int64_t num_values(const CheckpointTensor& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) {
    count *= extent;
  }
  return count;
}

int64_t num_parameters(const CheckpointReader& checkpoint) {
  int64_t count = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    count += train::is_parameter(tensor) ? num_values(tensor) : 0;
  }
  return count;
}

// "optimizer adamw: exp_avg, exp_avg_sq"
std::string optimizer_text(const CheckpointReader& checkpoint) {
  if (!checkpoint.has_optimizer()) {
    return "without optimizer state";
  }
  const auto states = checkpoint.optimizer_states();
  return str("optimizer ", checkpoint.info().optimizer, ": ", states.empty() ? "no state" : join(states));
}

// What it knows of the data of its training.
std::string data_text(const CheckpointInfo& info) {
  std::string out;
  const auto line = [&](const char* name, const std::string& text) {
    out += text.empty() ? "" : str("  ", name, shown(text, kMostListText), "\n");
  };
  line("channels    ", info.channels);
  line("classes     ", info.class_names);
  line("means       ", join(info.means));
  line("deviations  ", join(info.stds));
  line("grid        ", info.grid == data::Grid() ? "" : data::grid_text(info.grid));
  return out;
}

std::string head_text(const CheckpointReader& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const int64_t bytes = data::PosixFile(checkpoint.path(), data::PosixFile::Access::kRead).size();
  std::string out = str(
      checkpoint.path(), "\n  size        ", bytes_text(bytes), " (", bytes, " bytes), format ", info.format,
      "\n  written by  vit_hybrid ", shown(info.version), ", commit ", shown(info.git_commit),
      info.libraries.empty() ? "" : str(" (", shown(info.libraries, kMostListText), ")"), "\n  layout      ",
      shown(info.layout), "\n  position    step ", info.step, " (", info.optimizer_steps, " of the optimizer), epoch ",
      info.epoch + 1, " after ", info.samples_of_epoch, " of ", info.num_samples, " samples; seed ", info.seed, "\n");
  for (const std::string& line : train::precision_lines(info)) {
    out += "  " + line + "\n";
  }
  if (!info.metric.empty()) {
    out += str("  validation  ", shown(info.metric), " ", info.metric_value, "\n");
  }
  out += data_text(info);
  return out + str("  model       ", shown(info.model, kMostListText), "\n  parameters  ", num_parameters(checkpoint),
                   ", ", type_name(checkpoint.tensors().front().type), ", ", optimizer_text(checkpoint), "\n");
}

std::string line_of(const CheckpointTensor& tensor, const train::TensorSummary& summary) {
  char figures[160];
  std::snprintf(figures, sizeof(figures), " %-20s %s %13.6g %13.6g %13.6g %13.6g %8lld\n",
                str("[", join(tensor.shape), "]").c_str(), type_name(tensor.type), summary.least, summary.most,
                summary.mean, summary.deviation, static_cast<long long>(summary.num_not_finite));
  std::string name = shown(tensor.path);
  name.resize(std::max<size_t>(name.size(), 40), ' ');
  return name + figures;
}

std::string table_head() {
  std::string name = "tensor";
  name.resize(40, ' ');
  char titles[160];
  std::snprintf(titles, sizeof(titles), " %-20s %-7s %13s %13s %13s %13s %8s\n", "shape", "type", "least", "most",
                "mean", "deviation", "nonfinite");
  return "\n" + name + titles;
}

}  // namespace

std::string checkpoint_inspect_help() {
  InspectOptions chosen;
  return "usage: vit_hybrid checkpoint inspect FILE [options]\n\nPrints what a checkpoint holds: where its run stood, "
         "its model, and every tensor with the range of its values.\nFILE may be a run's folder: then its latest "
         "checkpoint.\n" +
         options::help_text(table_of(chosen));
}

std::string checkpoint_inspect_markdown() {
  InspectOptions chosen;
  return kToolOptions + options::markdown_text(table_of(chosen));
}

int run_checkpoint_inspect(const Invocation& invocation) {
  InspectOptions chosen;
  const options::OptionTable table = table_of(chosen);
  const auto files = parse_checkpoint_tool(invocation, table, kFile);
  if (!is_first_process()) {
    return 0;
  }
  const CheckpointReader checkpoint(files.front());
  if (chosen.print_config) {
    print_once(checkpoint.info().config);
    return 0;
  }
  print_once(head_text(checkpoint) + table_head());
  for (const CheckpointTensor& tensor : train::in_reading_order(checkpoint.tensors())) {
    if (chosen.all || train::is_parameter(tensor)) {
      print_once(line_of(tensor, train::summarize(checkpoint.read(tensor.path))));
    }
  }
  return 0;
}

std::string checkpoint_verify_help() {
  return "usage: vit_hybrid checkpoint verify FILE...\n\nReads every tensor of the checkpoints and compares its "
         "checksum with the one that was stored when it was written.\nThe exit code is 65, and the message names the "
         "file and the tensor, if one is another.\n";
}

int run_checkpoint_verify(const Invocation& invocation) {
  const options::OptionTable table;
  const auto files = parse_checkpoint_tool(invocation, table, {1, std::numeric_limits<size_t>::max(), "FILE..."});
  if (!is_first_process()) {
    return 0;
  }
  std::optional<Error> first;  // which the program ends with, once all files were looked at
  for (const std::string& file : files) {
    try {
      const CheckpointReader checkpoint(file);
      train::verify_checkpoint(checkpoint);
      print_once(str(checkpoint.path(), ": ", checkpoint.tensors().size(), " tensors, all checksums are right\n"));
    } catch (const Error& error) {
      if (first) {
        print_once(str(error.message(), "\n"));
      } else {
        first = error;
      }
    }
  }
  if (first) {
    throw Error(*first);
  }
  return 0;
}

}  // namespace vit_hybrid::commands
