// The commands `checkpoint export` and `checkpoint import`: weights to and from safetensors files.
#include <filesystem>

#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/log.h"
#include "src/base/output_file.h"
#include "src/base/text.h"
#include "src/base/version.h"
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/model_json.h"
#include "src/checkpoint/model_of_weights.h"
#include "src/commands/checkpoint_tool.h"
#include "src/config/load_run_config.h"
#include "src/config/run_option_groups.h"

namespace vit_hybrid::commands {

namespace {

using model::VitOptions;
using train::WeightNames;

enum class ExportType { kFp32, kBf16, kFp16, kFp64 };
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

struct ExchangeOptions {
  std::string out;
  bool overwrite = false;
  WeightNames names = WeightNames::kTimm;
  ExportType type = ExportType::kFp32;
  train::RunConfig config;  // its model, of an import
};

constexpr FileCount kFile{1, 1, "FILE"};

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

// What the options say goes before what the file says, and that before what its shapes tell.
void choose_model(const train::ForeignWeights& foreign, const train::WeightShapes& shapes, const std::string& path,
                  const std::string& preset, VitOptions& options) {
  if (!preset.empty()) {
    options = model::preset(preset);
  } else {
    options = foreign.model ? *foreign.model : train::model_of_weights(shapes, path);
  }
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
  choose_model(foreign, shapes, path, chosen.config.preset, chosen.config.model);
  settings.apply_all();
  const auto problems = model_problems(chosen.config.model);
  if (!problems.empty()) {
    throw Error(ErrorClass::kUsage, options::problem_list(problems));
  }
  train::check_weights(chosen.config.model, shapes, path);
  return foreign;
}

}  // namespace

std::string checkpoint_export_help() {
  ExchangeOptions chosen;
  return "usage: vit_hybrid checkpoint export FILE --out MODEL.safetensors [options]\n\nWrites the weights of a "
         "checkpoint as a safetensors file under the names of another program.\nFILE may be a run's folder: then its "
         "latest checkpoint.\n" +
         options::help_text(export_table(chosen));
}

std::string checkpoint_export_markdown() {
  ExchangeOptions chosen;
  return kToolOptions + options::markdown_text(export_table(chosen));
}

int run_checkpoint_export(const Invocation& invocation) {
  ExchangeOptions chosen;
  const options::OptionTable table = export_table(chosen);
  const auto files = parse_checkpoint_tool(invocation, table, kFile);
  same_error_on_all_ranks([&] { check_output(chosen.out, chosen.overwrite, "out", files.front()); });
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

std::string checkpoint_import_help() {
  ExchangeOptions chosen;
  return "usage: vit_hybrid checkpoint import MODEL.safetensors --out FILE [options]\n\nWrites the weights of a "
         "safetensors file as a checkpoint that evaluate, forecast and --init-from accept.\nThe model is what the "
         "options say; what they leave open is taken from the file where vit_hybrid wrote it, else\nfrom the shapes "
         "of the weights, which do not tell the number of heads, nor the size of an image unless it is a\n"
         "classifier's square.\n" +
         options::help_text(import_table(chosen));
}

std::string checkpoint_import_markdown() {
  ExchangeOptions chosen;
  return kToolOptions + options::markdown_text(import_table(chosen));
}

int run_checkpoint_import(const Invocation& invocation) {
  ExchangeOptions chosen;
  const options::OptionTable table = import_table(chosen);
  options::Settings settings(table);
  const auto files = parse_checkpoint_tool(invocation, table, kFile, settings);
  comm::MpiSession session(invocation.argc, invocation.argv);
  const comm::MpiGroup& world = session.world();
  set_log_speaker(world.rank() == 0);
  agree_on_start(world, invocation.words);
  comm::agreed_on_rank_0(world, [&] { check_output(chosen.out, chosen.overwrite, "out", files.front()); });
  const auto foreign = comm::agreed(world, [&] { return read_import(files.front(), chosen, settings); });
  train::write_weights(world, chosen.out, info_of_import(chosen.config, foreign.data, files.front(), chosen.names),
                       foreign.weights);
  log_line(str("wrote ", foreign.weights.size(), " tensors of ", files.front(), " to ", chosen.out, ": ",
               model::num_parameters(chosen.config.model), " parameters, model ",
               train::model_json(chosen.config.model)));
  session.finalize();
  return 0;
}

}  // namespace vit_hybrid::commands
