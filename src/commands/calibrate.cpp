// The command `calibrate`: measures this machine for the planner.
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "parallel/comm/make_communicator.h"
#include "src/base/files.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/utf8.h"
#include "src/commands/command.h"
#include "src/config/load_run_config.h"
#include "src/machine/autotune.h"
#include "src/machine/calibration.h"
#include "src/machine/model_memory.h"
#include "src/machine/placement.h"
#include "src/machine/processor.h"
#include "src/plan/step_work.h"

namespace vit_hybrid::commands {

namespace {

constexpr size_t kUsualFileBytes = 64 << 10;
constexpr double kShareOfMemory = 0.95;  // beside which the system needs some
constexpr double kMostOfOthers = 0.05;   // of the processors' time; what the system itself does takes a hundredth

struct CalibrateOptions {
  std::string out = "machine.json";
  std::string precision = "all";
  std::string storage = ".";
  int threads = 0;
};

options::OptionTable table_of(CalibrateOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Calibrate");
  table.add({.name = "out",
             .value = options::text(chosen.out, "file"),
             .help = "Machine file. In one that is there the figures for as many ranks a node and threads a rank are "
                     "replaced, and others stay.",
             .names_elsewhere = {"machine"}});
  table.add({.name = "precision",
             .value = options::word(chosen.precision, {"all", "fp32", "fp64", "bf16", "fp16"}),
             .help = "Type of the kernels to measure; all: fp32 and bf16."});
  table.add({.name = "storage",
             .value = options::text(chosen.storage, "folder"),
             .help = "Folder of the file system that training data are on: a file of up to 128 MiB a rank is written "
                     "there, read and removed. none: reading is not measured."});
  table.add({.name = "threads",
             .value = options::integer(chosen.threads, train::from_one(train::kMostThreads, "auto")),
             .help = "Threads of a rank, as for train."});
  return table;
}

std::vector<std::pair<std::string, at::ScalarType>> types_of(const std::string& precision) {
  const std::vector<std::pair<std::string, at::ScalarType>> all = {
      {"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}, {"fp64", at::kDouble}};
  if (precision == "all") {
    return {all[0], all[1]};
  }
  return {*std::find_if(all.begin(), all.end(), [&](const auto& type) { return type.first == precision; })};
}

// The file that --out names, at the end of its links. On rank 0.
std::string file_at(const std::string& out) {
  refuse_existing(out, /*overwrite=*/true);
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(out, error);
  return error ? out : path.string();
}

// Held while a machine file is read, completed and written, so that of two calibrations one waits for the other. Where
// the file system knows no flock(2), the later one counts.
class FolderHold {
 public:
  explicit FolderHold(const std::filesystem::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ >= 0) {
      ::flock(descriptor_, LOCK_EX);
    }
  }
  ~FolderHold() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  FolderHold(const FolderHold&) = delete;
  FolderHold& operator=(const FolderHold&) = delete;

 private:
  int descriptor_;
};

// What is there already; of another machine it is refused. On rank 0.
train::MachineFile machine_in(const std::string& path, const std::string& name, int cores) {
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    return {name, "cpu", cores, {}, {}, {}};
  }
  auto machine = train::parse_machine_file(train::read_local_file(path), path);
  if (machine.name != name || machine.device != "cpu") {
    throw Error(ErrorClass::kUsage,
                str("--out ", path, ": that file is of another machine, '", shown(machine.name), "'"),
                str("this one is '", name, "': give another name"));
  }
  machine.cores = cores;
  return machine;
}

// fp32 products by the kernel that a run of a usual model would take.
void choose_kernels(const comm::MpiGroup& world) {
  train::RunConfig config;
  config.model.embed_dim = 512;
  config.model.mlp_hidden = 2048;
  config.parallel.dp = world.size();
  train::resolve(config, world.size());
  train::choose_host_kernel(config, kernels::HostLayer::Passes::kForwardAndBackward, "", world);
}

// What a layer costs beside its kernels, by layers that are so small that kernels take little.
double operation_seconds(at::ScalarType type, const train::RateTables& tables, const comm::MpiGroup& world) {
  model::VitOptions model;
  model.image_height = 4;
  model.image_width = 8;
  model.patch_height = model.patch_width = 1;
  model.embed_dim = 96;
  model.num_heads = 3;
  model.mlp_hidden = 96;
  model.depth = 24;
  const double measured = train::calibrate_blocks(model, type, world);
  const auto work = train::pass_work(model, model::Recompute::kNone, {1, 1 + model.depth}, {0, 1}, 1);
  const double kernels = train::seconds_of(work.forward, tables) + train::seconds_of(work.backward, tables);
  return std::max(0.0, measured - kernels) / (work.forward_operations + work.backward_operations);
}

// What else works on a node while its ranks measure: other programs, or the host of a virtual machine.
class OthersWork {
 public:
  // Of all time of the node's processors since this was made; the most of all nodes. Collective over `session`'s world.
  double share(const comm::MpiSession& session) const {
    std::vector<double> own = {process_usage().cpu_seconds - process_};
    session.node().sum(own);
    const NodeUsage now = node_usage();
    const double busy = now.all > node_.all ? (now.busy - node_.busy) / (now.all - node_.all) : 0.0;
    const double processors = std::max(1.0, static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)));
    std::vector<double> most = {busy - own.front() / (processors * timer_.seconds())};
    session.world().max(most);
    return most.front();
  }

 private:
  Timer timer_;
  NodeUsage node_ = node_usage();
  double process_ = process_usage().cpu_seconds;
};

int calibrate(const CalibrateOptions& chosen, comm::MpiSession& session) {
  const comm::MpiGroup& world = session.world();
  const Timer timer;
  const OthersWork others;
  const auto placements = train::set_threads(chosen.threads, world);
  train::report_placement(placements);
  const auto ranks = static_cast<int>(world.max(session.node().size()));
  std::string path;
  const auto machine_there = [&] {
    return machine_in(path, train::this_processor().name, std::max(placements.own.node_cores, 1));
  };
  comm::agreed_on_rank_0(world, [&] {
    path = file_at(chosen.out);
    machine_there();  // is told before a minute of measuring
    WholeFile can_be_written(path);
    can_be_written.write(std::string(kUsualFileBytes, '\n'));
    log_line(str("measuring ", counted(ranks, "rank"), " a node with ", counted(at::get_num_threads(), "thread"),
                 " each; a precision takes half a minute or more"));
  });
  choose_kernels(world);
  train::Population population{ranks, at::get_num_threads()};
  if (chosen.storage != "none") {
    population.reading_bytes_per_s = train::calibrate_reading(chosen.storage, world);
    log_line(
        str("a rank reads ", bytes_text(std::llround(population.reading_bytes_per_s)), "/s from ", chosen.storage));
  }
  for (const auto& [name, type] : types_of(chosen.precision)) {
    population.types[name] = train::calibrate_kernels(type, world);
    population.operation_s = operation_seconds(type, population.types[name], world);
    log_line(str("measured ", name, ", ", fixed_text(timer.seconds(), 0), " s so far"));
  }
  population.messages = train::calibrate_messages(world);
  comm::warn_of_unshared(world);
  const auto nodes = train::calibrate_nodes(world);
  if (const double share = others.share(session); share > kMostOfOthers) {
    log_warning(
        str(fixed_text(100.0 * share, 0), " % of the time of a node's processors went to something else than this ",
            "calibration: its figures are not those of the machine alone; calibrate again when nothing else runs"));
  }
  comm::agreed_on_rank_0(world, [&] {
    const FolderHold hold(std::filesystem::absolute(path).parent_path());
    auto machine = machine_there();  // again: what others have measured meanwhile stays
    if (machine.memory.bytes == 0.0) {
      machine.memory = {kShareOfMemory * static_cast<double>(train::node_memory_bytes()),
                        str(kShareOfMemory, " of what the system says that there is")};
    }
    if (nodes.bytes_per_s > 0.0) {
      machine.between_nodes = nodes;
    }
    std::erase_if(machine.populations,
                  [&](const auto& one) { return one.ranks == population.ranks && one.threads == population.threads; });
    machine.populations.push_back(population);
    WholeFile file(path);
    file.write(train::to_text(machine));
    file.finish();
    log_line(str("machine file: ", chosen.out, ", of ", counted(ranks, "rank"), " a node with ",
                 counted(population.threads, "thread"), " each; measured in ", fixed_text(timer.seconds(), 0), " s"));
  });
  return 0;
}

int run_calibrate(const Invocation& invocation) {
  CalibrateOptions chosen;
  const options::OptionTable table = table_of(chosen);
  options::Settings settings(table);
  read_options(table, invocation.words, settings);
  refuse(settings.problems());
  if (chosen.out.empty()) {
    refuse({"--out is empty; give the name of a file, such as machine.json"});
  }
  return run_job(invocation, [&](comm::MpiSession& session) { return calibrate(chosen, session); });
}

}  // namespace

std::vector<Command> calibrate_commands() {
  return {{.name = "calibrate",
           .summary = "measure this machine, so that plan can tell times",
           .run = &run_calibrate,
           .usage =
               "usage: mpirun -n RANKS vit_hybrid calibrate [--out machine.json] [--precision P] [--threads T]\n\n"
               "Measures kernels, messages and reading with as many ranks and threads as trainings will have on a\n"
               "node, and writes the machine file that `vit_hybrid plan --machine` reads. On the host.\n",
           .options_text = &options_text<CalibrateOptions, &table_of>}};
}

}  // namespace vit_hybrid::commands
