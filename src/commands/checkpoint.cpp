// Tables of options and the bodies of `checkpoint inspect`, `verify`, `diff`, `export` and `import`.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>

#include "data/reading/box_runs.h"
#include "data/reading/posix_file.h"
#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/base/version.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/verify.h"
#include "src/commands/command.h"
#include "src/config/config_text.h"
#include "src/config/model_options.h"

namespace vit_hybrid::commands {

namespace {

using model::VitOptions;
using train::CheckpointInfo;
using train::CheckpointReader;
using train::CheckpointTensor;
using train::ModelDifference;
using train::TensorDifference;
using train::WeightNames;

// How many files a command takes, and what they are called in messages.
struct FileCount {
  size_t least;
  size_t most;
  std::string_view usage;  // "A B"
};
constexpr FileCount kFile{1, 1, "FILE"};

// Parses the words into `settings`, which are of the table, and returns the files among them; other numbers of files
// and problems of options are Error(kUsage), the same on all ranks.
std::vector<std::string> parse(const Invocation& invocation, const options::OptionTable& table, const FileCount& count,
                               options::Settings& settings) {
  std::vector<std::string> files = read_files_and_options(table, invocation.words, settings);
  auto problems = settings.problems();
  if (files.size() < count.least || files.size() > count.most) {
    problems.push_back(str("the command takes ", count.least == count.most ? "" : "at least ", count.least, " file",
                           count.most == 1 ? "" : "s", " (", count.usage, "), not ", files.size()));
  }
  refuse(problems);
  return files;
}

std::vector<std::string> parse(const Invocation& invocation, const options::OptionTable& table,
                               const FileCount& count) {
  options::Settings settings(table);
  return parse(invocation, table, count, settings);
}

// Refuses to write over a file unless asked to, and over the `input` always. Error(kCannotCreate), Error(kUsage), also
// without a name.
void check_output(const std::string& path, bool overwrite, const std::string& input) {
  if (path.empty()) {
    throw Error(ErrorClass::kUsage, "--out FILE must be given: what is to be written");
  }
  refuse_input(path, "--out", input);
  refuse_existing(path, overwrite, "--out");
}

struct InspectCheckpointOptions {
  bool all = false;
  bool print_config = false;
};

constexpr size_t kMostListText = 65536;  // of names and figures of channels and points

options::OptionTable table_of(InspectCheckpointOptions& chosen) {
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

int64_t num_parameters(const CheckpointReader& checkpoint) {
  int64_t count = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    count += train::is_parameter(tensor) ? data::num_elements(tensor.shape) : 0;
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
  line("units       ", info.units);
  line("classes     ", info.class_names);
  line("means       ", join(info.means));
  line("deviations  ", join(info.stds));
  line("lead        ", info.lead.rows == 0 ? "" : data::lead_text(info.lead));
  line("beside      ", info.roles);
  line("increments  ", info.increment_stds.empty() ? "" : str("means ", join(info.increment_means)));
  line("  deviations", info.increment_stds.empty() ? "" : str(" ", join(info.increment_stds)));
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

int run_checkpoint_inspect(const Invocation& invocation) {
  InspectCheckpointOptions chosen;
  const auto files = parse(invocation, table_of(chosen), kFile);
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

int run_checkpoint_verify(const Invocation& invocation) {
  const auto files = parse(invocation, options::OptionTable(), {1, std::numeric_limits<size_t>::max(), "FILE..."});
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

struct DiffOptions {
  bool all = false;
};

constexpr int kDiffer = 1;  // exit code, as diff's
constexpr size_t kMostText = 4096;

options::OptionTable table_of(DiffOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Diff");
  table.add({.name = "all",
             .value = options::flag(chosen.all),
             .help = "List every tensor that differs, not only the first."});
  return table;
}

// Compares one thing that the files say of themselves; a long text only as a whole.
class InfoComparison {
 public:
  template <class Value>
  void compare(const std::string& name, const Value& a, const Value& b) {
    if (!is_same(a, b)) {
      text_ += str("  ", name, ": ", shown(a), " against ", shown(b), "\n");
    }
  }
  // Of lists the first place in which they differ.
  void compare_lists(const std::string& name, const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) {
      compare(name, length_text(a), length_text(b));
    } else if (a != b) {
      const auto [of_a, of_b] = std::mismatch(a.begin(), a.end(), b.begin());
      compare(str(name, "[", of_a - a.begin(), "]"), *of_a, *of_b);
    }
  }
  void compare_whole(const std::string& name, const std::string& a, const std::string& b) {
    if (a != b) {
      text_ += str("  ", name, ": another\n");
    }
  }
  std::string take() { return std::exchange(text_, {}); }

 private:
  // What is no number is no other than itself here.
  template <class Value>
  static bool is_same(const Value& a, const Value& b) {
    if constexpr (std::floating_point<Value>) {
      return a == b || (std::isnan(a) && std::isnan(b));
    } else {
      return a == b;
    }
  }
  static std::string length_text(const std::vector<double>& list) {
    return list.empty() ? "" : str(list.size(), " numbers");
  }
  template <class Value>
  static std::string shown(const Value& value) {
    const std::string text = str(value);
    return text.empty() ? "none" : vit_hybrid::shown(text, kMostText);
  }

  std::string text_;
};

// Of the model's options those that only training looks at (the same tensors compute the same whatever they are), or
// the others.
std::string model_differences(const CheckpointInfo& a, const CheckpointInfo& b, bool training_only) {
  InfoComparison comparison;
  for (const ModelDifference& difference : train::model_differences(a.model, b.model)) {
    if (train::is_training_only(difference.option) == training_only) {
      comparison.compare(str("--", difference.option), difference.first, difference.second);
    }
  }
  return comparison.take();
}

// What decides how a resumed run goes on.
std::string state_differences(const CheckpointInfo& a, const CheckpointInfo& b) {
  InfoComparison comparison;
  comparison.compare("optimizer", a.optimizer, b.optimizer);
  comparison.compare("step", a.step, b.step);
  comparison.compare("optimizer_steps", a.optimizer_steps, b.optimizer_steps);
  comparison.compare("loss_scale", a.loss_scale, b.loss_scale);
  comparison.compare("good_steps", a.good_steps, b.good_steps);
  comparison.compare("skipped_steps", a.skipped_steps, b.skipped_steps);
  comparison.compare("epoch", a.epoch + 1, b.epoch + 1);
  comparison.compare("samples_of_epoch", a.samples_of_epoch, b.samples_of_epoch);
  comparison.compare("seed", a.seed, b.seed);
  comparison.compare("num_samples", a.num_samples, b.num_samples);
  comparison.compare("channels", a.channels, b.channels);
  if (std::min(a.format, b.format) >= train::kTrainingDataFormat) {  // else one of them does not know
    comparison.compare("class_names", a.class_names, b.class_names);
    comparison.compare_lists("means", a.means, b.means);
    comparison.compare_lists("stds", a.stds, b.stds);
    comparison.compare_lists("latitudes", a.grid.latitudes, b.grid.latitudes);
    comparison.compare_lists("longitudes", a.grid.longitudes, b.grid.longitudes);
  }
  if (std::min(a.format, b.format) >= train::kLeadFormat) {
    comparison.compare("lead_rows", a.lead.rows, b.lead.rows);
    comparison.compare("lead_hours", a.lead.hours, b.lead.hours);
  }
  if (std::min(a.format, b.format) >= train::kRolesFormat) {
    comparison.compare("roles", a.roles, b.roles);
    comparison.compare_lists("increment_means", a.increment_means, b.increment_means);
    comparison.compare_lists("increment_stds", a.increment_stds, b.increment_stds);
  }
  if (std::min(a.format, b.format) >= train::kUnitsFormat) {
    comparison.compare("units", a.units, b.units);
  }
  return model_differences(a, b, /*training_only=*/false) + comparison.take();
}

// What says where the file comes from.
std::string origin_differences(const CheckpointInfo& a, const CheckpointInfo& b) {
  InfoComparison comparison;
  comparison.compare("format", a.format, b.format);
  comparison.compare("version", a.version, b.version);
  comparison.compare("git_commit", a.git_commit, b.git_commit);
  comparison.compare("libraries", a.libraries, b.libraries);
  comparison.compare("layout", a.layout, b.layout);
  comparison.compare("blocks of sums", a.sum_blocks, b.sum_blocks);
  comparison.compare("metric", a.metric, b.metric);
  comparison.compare("metric_value", a.metric_value, b.metric_value);
  comparison.compare_whole("config", a.config, b.config);
  comparison.compare_whole("kernels", a.kernels, b.kernels);
  return comparison.take();
}

std::string index_text(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = index % shape[d];
    index /= shape[d];
  }
  return str("[", join(at), "]");
}

// Empty if the tensors are the same.
std::string tensor_difference(const CheckpointReader& a, const CheckpointReader& b, const CheckpointTensor& of_a) {
  const CheckpointTensor* const of_b = b.find(of_a.path);
  const std::string name = shown(of_a.path);
  if (of_b == nullptr) {
    return str("  ", name, ": only in the first\n");
  }
  if (of_a.shape != of_b->shape || of_a.type != of_b->type) {
    return str("  ", name, ": ", c10::toString(of_a.type), " [", join(of_a.shape), "] against ",
               c10::toString(of_b->type), " [", join(of_b->shape), "]\n");
  }
  const TensorDifference difference = train::difference_of(a.read(of_a.path), b.read(of_a.path));
  if (difference.num_different == 0) {
    return "";
  }
  return str("  ", name, ": ", difference.num_different, " of ", difference.count, " values, the first at ",
             index_text(difference.first_index, of_a.shape), ": ", difference.first_a, " against ", difference.first_b,
             "; largest difference ", difference.largest_absolute, ", relative ", difference.largest_relative, "\n");
}

// One line a tensor that differs, or the first.
std::string tensor_differences(const CheckpointReader& a, const CheckpointReader& b, bool all) {
  std::string out;
  for (const CheckpointTensor& tensor : train::in_reading_order(a.tensors())) {
    out += tensor_difference(a, b, tensor);
    if (!all && !out.empty()) {
      return out;
    }
  }
  for (const CheckpointTensor& tensor : train::in_reading_order(b.tensors())) {
    if (a.find(tensor.path) == nullptr) {
      out += str("  ", shown(tensor.path), ": only in the second\n");
      if (!all) {
        return out;
      }
    }
  }
  return out;
}

void print_section(const char* title, const std::string& lines) {
  if (!lines.empty()) {
    print_once(title + lines);
  }
}

int run_checkpoint_diff(const Invocation& invocation) {
  DiffOptions chosen;
  const auto files = parse(invocation, table_of(chosen), {2, 2, "A B"});
  if (!is_first_process()) {
    return 0;
  }
  const CheckpointReader a(files[0]);
  const CheckpointReader b(files[1]);
  print_section("origin:\n", origin_differences(a.info(), b.info()));
  print_section("options of the training:\n", model_differences(a.info(), b.info(), /*training_only=*/true));
  const std::string state = state_differences(a.info(), b.info());
  print_section("state:\n", state);
  const std::string tensors = tensor_differences(a, b, chosen.all);
  print_section(chosen.all ? "tensors:\n" : "first tensor:\n", tensors);
  const bool same = state.empty() && tensors.empty();
  print_once(same ? "the same tensors, model, position and data\n" : "they differ\n");
  return same ? 0 : kDiffer;
}

enum class ExportType { kFp32, kBf16, kFp16, kFp64 };
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

struct ExchangeOptions {
  std::string out;
  bool overwrite = false;
  WeightNames names = WeightNames::kTimm;
  ExportType type = ExportType::kFp32;
  train::RunConfig config;  // its model, of an import
};

void add_common(options::OptionTable& table, ExchangeOptions& chosen, const char* out_help, const char* names_help) {
  table.add({.name = "out", .value = options::text(chosen.out, "file"), .help = out_help});
  table.add({.name = "overwrite", .value = options::flag(chosen.overwrite), .help = "Replace a file of this name."});
  table.add({.name = "names", .value = options::choice(chosen.names, train::weight_names_words()), .help = names_help});
}

options::OptionTable export_table(ExchangeOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Export");
  add_common(table, chosen, "Safetensors file to be written. Must be given.", "Whose names the tensors get.");
  table.add({.name = "dtype",
             .value = options::choice(chosen.type, {"fp32", "bf16", "fp16", "fp64"}),
             .help = "Type of the numbers; fp16 is refused where a value is beyond its range."});
  return table;
}

options::OptionTable import_table(ExchangeOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Import");
  add_common(table, chosen, "Checkpoint to be written. Must be given.", "Whose names the file's tensors have.");
  train::add_model(table, chosen.config);
  return table;
}

std::vector<std::string> model_problems(const VitOptions& options) {
  if (options.num_heads == 0) {
    return {"--num-heads must be given (or a --preset): the shapes of weights do not tell it"};
  }
  if (options.image_height == 0) {
    return {"--image-size must be given (or a --preset): the shapes of weights do not tell it"};
  }
  return model::validate(options, 1, 1);
}

train::CheckpointInfo info_of_import(train::RunConfig config, const train::TrainingData& data, const std::string& path,
                                     WeightNames names) {
  config.name = std::filesystem::path(path).stem().string();
  train::CheckpointInfo info;
  static_cast<train::TrainingData&>(info) = data;
  info.version = project_version();
  info.git_commit = git_commit() + (git_dirty() ? "+changes" : "");
  info.config = train::config_text(config);
  info.model = train::model_json(config.model);
  info.layout = str("imported from ", path, ", names of ", train::weight_names_words()[static_cast<size_t>(names)]);
  return info;
}

// Reads the file and decides on the model; the entries of the command line count most.
train::ForeignWeights read_import(const std::string& path, ExchangeOptions& chosen, options::Settings& settings) {
  train::ForeignWeights foreign = train::read_foreign_weights(path, chosen.names);
  train::WeightShapes shapes;
  for (const auto& [name, values] : foreign.weights) {
    shapes[name] = values.sizes().vec();
  }
  // What the options say goes before what the file says, and that before what its shapes tell.
  VitOptions& model = chosen.config.model;
  if (!chosen.config.preset.empty()) {
    model = model::preset(chosen.config.preset);
  } else {
    model = foreign.model ? *foreign.model : train::model_of_weights(shapes, path);
  }
  settings.apply_all();
  const auto problems = model_problems(model);
  if (!problems.empty()) {
    throw Error(ErrorClass::kUsage, options::problem_list(problems));
  }
  train::check_weights(model, shapes, path);
  return foreign;
}

int run_checkpoint_export(const Invocation& invocation) {
  ExchangeOptions chosen;
  const auto files = parse(invocation, export_table(chosen), kFile);
  same_error_on_all_ranks([&] { check_output(chosen.out, chosen.overwrite, files.front()); });
  if (!is_first_process()) {
    return 0;
  }
  const train::CheckpointReader checkpoint(files.front());
  refuse_input(chosen.out, "--out", checkpoint.path());  // of a folder: what its `latest` names
  const size_t count =
      train::export_weights(checkpoint, chosen.out, chosen.names, kTypes[static_cast<size_t>(chosen.type)]);
  print_once(str("wrote ", count, " tensors of ", checkpoint.path(), " to ", chosen.out, "\n"));
  return 0;
}

int run_checkpoint_import(const Invocation& invocation) {
  ExchangeOptions chosen;
  const options::OptionTable table = import_table(chosen);
  options::Settings settings(table);
  const auto files = parse(invocation, table, kFile, settings);
  return run_job(invocation, [&](comm::MpiSession& session) {
    const comm::MpiGroup& world = session.world();
    comm::agreed_on_rank_0(world, [&] { check_output(chosen.out, chosen.overwrite, files.front()); });
    const auto foreign = comm::agreed(world, [&] { return read_import(files.front(), chosen, settings); });
    train::write_weights(world, chosen.out, info_of_import(chosen.config, foreign.data, files.front(), chosen.names),
                         foreign.weights);
    log_line(str("wrote ", foreign.weights.size(), " tensors of ", files.front(), " to ", chosen.out, ": ",
                 model::num_parameters(chosen.config.model), " parameters, model ",
                 train::model_json(chosen.config.model)));
    return 0;
  });
}

}  // namespace

std::vector<Command> checkpoint_commands() {
  return {
      {.name = "checkpoint inspect",
       .summary = "what a checkpoint holds",
       .run = &run_checkpoint_inspect,
       .usage = "usage: vit_hybrid checkpoint inspect FILE [options]\n\nPrints what a checkpoint holds: where its run "
                "stood, its model, and every tensor with the range of its values.\nFILE may be a run's folder: then "
                "its latest "
                "checkpoint.\n",
       .options_text = &options_text<InspectCheckpointOptions, table_of>},
      {.name = "checkpoint verify",
       .summary = "check the checksums of checkpoints",
       .run = &run_checkpoint_verify,
       .usage =
           "usage: vit_hybrid checkpoint verify FILE...\n\nReads every tensor of the checkpoints and compares its "
           "checksum with the one that was stored when it was written.\nThe exit code is 65, and the message names the "
           "file and the tensor, if one is another.\n"},
      {.name = "checkpoint diff",
       .summary = "in what two checkpoints differ",
       .run = &run_checkpoint_diff,
       .usage =
           "usage: vit_hybrid checkpoint diff A B [options]\n\n"
           "Prints in what two checkpoints differ: first what they say of themselves, then the first tensor of\n"
           "another value, with its global index. Values are compared bit by bit. The exit code is 0 if tensors,\n"
           "model, position and the data of the training (channels, classes, statistics, grid) are the same, whatever\n"
           "wrote them, in whatever layout, and with whatever dropout and label smoothing, else 1.\n",
       .options_text = &options_text<DiffOptions, table_of>},
      {.name = "checkpoint export",
       .summary = "write weights as safetensors",
       .run = &run_checkpoint_export,
       .usage =
           "usage: vit_hybrid checkpoint export FILE --out MODEL.safetensors [options]\n\nWrites the weights of a "
           "checkpoint as a safetensors file under the names of another program.\nFILE may be a run's folder: then its "
           "latest checkpoint.\n",
       .options_text = &options_text<ExchangeOptions, export_table>},
      {.name = "checkpoint import",
       .summary = "make a checkpoint from safetensors",
       .run = &run_checkpoint_import,
       .usage =
           "usage: vit_hybrid checkpoint import MODEL.safetensors --out FILE [options]\n\nWrites the weights of a "
           "safetensors file as a checkpoint that evaluate, forecast and --init-from accept.\nThe model is what the "
           "options say; what they leave open is taken from the file where vit_hybrid wrote it, else\nfrom the shapes "
           "of the weights, which do not tell the number of heads, nor the size of an image unless it is a\n"
           "classifier's square.\n",
       .options_text = &options_text<ExchangeOptions, import_table>}};
}

}  // namespace vit_hybrid::commands
