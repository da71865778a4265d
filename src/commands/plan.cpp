// The command `plan`: memory and traffic of one layout, or of all that are valid, before anything runs.
#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "parallel/comm/host_task.h"
#include "parallel/comm/launcher.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/commands/command.h"
#include "src/commands/planner.h"
#include "src/config/load_run_config.h"
#include "src/config/model_options.h"
#include "src/config/sources.h"
#include "src/machine/processor.h"
#include "src/plan/memory_plan.h"
#include "src/plan/step_work.h"
#include "src/plan/time_plan.h"
#include "src/report/run_record.h"
#include "src/report/start_report.h"

namespace vit_hybrid::commands {

namespace {

using train::LoadedConfig;
using train::RunConfig;

struct PlanOptions {
  int ranks = 0;           // 0 ('auto'): those of the launcher, else dp x tp x pp
  int ranks_per_node = 0;  // 0 ('auto'): those of the machine file, if that knows of several nodes, else all on one
  double memory_gib = 0;   // of a rank; 0 ('auto'): what the machine file says, else no limit
  bool json = false;
};

options::OptionTable table_of(PlanOptions& plan) {
  options::OptionTable table;
  table.begin_group("Plan");
  table.add({.name = "ranks",
             .value = options::integer(plan.ranks, train::from_one(train::kMostRanks, "auto")),
             .help = "Ranks to plan for; auto: those of the launcher, else --dp x --tp x --pp."});
  table.add({.name = "ranks-per-node",
             .value = options::integer(plan.ranks_per_node, train::from_one(train::kMostRanks, "auto")),
             .help =
                 "Consecutive ranks that share a node; auto: as many as the nodes of a --machine have that knows its "
                 "network, else all are on one."});
  options::NumberRange memory;
  memory.least = 0.0;
  memory.least_bound = options::NumberRange::Bound::kExcluded;
  memory.word = "auto";
  table.add({.name = "memory-gib",
             .value = options::number(plan.memory_gib, memory),
             .help = "Memory that a rank may take beside what its process has at its start (some 140 MiB), its tensors "
                     "and what libraries take: layouts that take more are listed last; of one layout it is said what "
                     "makes it fit. auto: what a --machine has for each of its ranks, if it knows that, else no limit "
                     "(1e9 is none, too).",
             .unit = "GiB"});
  table.add({.name = "json", .value = options::flag(plan.json), .help = "Print JSON."});
  return table;
}

// The words of the table's options, with their values, and the others, which are for `train`. A name that neither has
// is refused by whose it resembles.
struct SplitWords {
  std::vector<std::string> own;
  std::vector<std::string> others;
};
SplitWords split(const std::vector<std::string>& words, const options::OptionTable& table) {
  RunConfig config;
  train::RunRequest request;
  const options::OptionTable of_train = train::run_option_table(config, request);
  SplitWords out;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const bool is_option = name.starts_with("--");
    const std::string bare = is_option ? name.substr(2) : "";
    const bool resembles = of_train.find_name(bare) == nullptr && !table.meant_by(bare).empty();
    auto& to = is_option && (table.find_name(bare) != nullptr || resembles) ? out.own : out.others;
    to.push_back(words[i]);
    if (takes_next_word(table, words[i]) && i + 1 < words.size()) {
      to.push_back(words[++i]);
    }
  }
  return out;
}

std::string layout_text(const train::ParallelConfig& parallel) {
  return str("--dp ", parallel.dp, " --tp ", parallel.tp, " --pp ", parallel.pp);
}

std::string text_of(const std::array<double, mesh::kNumGroups>& bytes) {
  std::vector<std::string> parts;
  for (const mesh::Group group : mesh::kGroups) {
    if (const double of_group = bytes[static_cast<size_t>(group)]; of_group > 0.0) {
      parts.push_back(str(mesh::group_option(group), " ", megabytes(of_group)));
    }
  }
  return parts.empty() ? "nothing" : join(parts);
}

std::string text_of(const train::RanksOnNodes& ranks) {
  return ranks.nodes() == 1 ? str(counted(ranks.ranks, "rank"), " on one node")
                            : str(ranks.ranks, " ranks on ", ranks.nodes(), " nodes of ", ranks.per_node);
}

Json to_json(const std::array<double, mesh::kNumGroups>& bytes) {
  Json json;
  for (const mesh::Group group : mesh::kGroups) {
    json[std::string(mesh::group_name(group))] = bytes[static_cast<size_t>(group)];
  }
  return json;
}

Json to_json(const train::Traffic& traffic) {
  Json json;
  for (const mesh::Group group : mesh::kGroups) {
    const auto& of_group = traffic[static_cast<size_t>(group)];
    json[std::string(mesh::group_name(group))] = {{"operations", of_group.operations}, {"bytes", of_group.bytes}};
  }
  return json;
}

// By name.
std::vector<std::pair<std::string, int64_t>> classes_of(const train::LibraryBytes& of) {
  return {{"code", of.code}, {"mkl", of.mkl},     {"slots", of.slots}, {"threads", of.threads},
          {"hdf5", of.hdf5}, {"freed", of.freed}, {"nccl", of.nccl}};
}

Json to_json(const train::FullestRank& rank) {
  const train::MemoryPlan& memory = rank.memory;
  Json library_classes;
  for (const auto& [name, bytes] : classes_of(memory.libraries)) {
    library_classes[name] = bytes;
  }
  return {{"replica", rank.replica},
          {"stage", rank.place.stage},
          {"tensor_rank", rank.place.tensor_rank},
          {"bytes", memory.total},
          {"host_bytes", memory.on_host},
          {"classes", train::bytes_by_class(memory.peak)},
          {"libraries", memory.libraries.total()},
          {"library_classes", std::move(library_classes)},
          {"shared", memory.shared}};
}

Json to_json(const Planned& planned, const Planner& planner) {
  const train::ParallelConfig& parallel = planned.config.parallel;
  const train::LayoutReport& report = planned.report;
  Json json = {
      {"dp", parallel.dp},
      {"tp", parallel.tp},
      {"pp", parallel.pp},
      {"nodes", planner.ranks().nodes()},
      {"ranks_per_node", planner.ranks().per_node},
      {"micro_batch_size", parallel.micro_batch_size},
      {"efficiency", report.efficiency()},
      {"balance",
       {{"data", report.data.balance}, {"tensor", report.tensor.balance}, {"pipeline", report.pipeline.balance}}},
      {"micro_batches", report.num_micro_batches},
      {"bubble", report.bubble},
      {"fits", planned.fits},
      {"fullest_rank", to_json(report.fullest)},
      {"bytes_within_nodes_per_step", to_json(planned.least_bytes.within)},
      {"bytes_between_nodes_per_step", to_json(planned.least_bytes.between)}};
  if (planned.time) {
    json["seconds_per_step"] = train::to_json(*planned.time);
    json["samples_per_s"] = planned.samples_per_second();
  }
  return json;
}

// The fullest rank of a stage, and what it moves in a step.
struct PlannedStage {
  train::FullestRank fullest;
  Range units;
  train::Traffic traffic;
};

std::vector<PlannedStage> stages_of(const Planned& planned, const Planner& planner) {
  const train::ComputeTraits compute = planner.compute();
  std::vector<PlannedStage> stages;
  for (const auto& fullest : train::plan_fullest_ranks(planned.config, planned.config.data, compute)) {
    const auto replica = train::plan_replica(planned.config, fullest.replica);
    stages.push_back({fullest, replica.stages[static_cast<size_t>(fullest.place.stage)],
                      train::plan_traffic(planned.config, replica, fullest.place, compute.device)});
  }
  return stages;
}

// Rank by rank as they are numbered, as summary.json has them; none of more than 64.
std::vector<train::FullestRank> ranks_of(const Planned& planned, const Planner& planner) {
  constexpr int kMost = 64;
  const mesh::ParallelDims dims = train::parallel_dims(planned.config.parallel);
  std::vector<train::FullestRank> ranks;
  for (int rank = 0; rank < dims.size() && dims.size() <= kMost; ++rank) {
    const auto [replica, tensor_rank, stage] = dims.coordinate(rank);
    const train::ModelPlace place{stage, tensor_rank};
    ranks.push_back({replica, place,
                     train::plan_memory(planned.config, planned.config.data,
                                        train::plan_replica(planned.config, replica), place, planner.compute())});
  }
  return ranks;
}

// "20.3 MiB: 12.3 MiB; peaks: activations 5 MiB, ...; libraries: code 8 MiB"
std::string taken_text(const train::MemoryPlan& memory) {
  std::vector<std::string> libraries;
  for (const auto& [name, bytes] : classes_of(memory.libraries)) {
    if (bytes > 0) {
      libraries.push_back(str(name, " ", bytes_text(bytes)));
    }
  }
  return str(bytes_text(memory.taken()), ": ", train::memory_text(memory),
             libraries.empty() ? "" : str("; libraries: ", join(libraries)));
}

// A line for those that take the same: "  ranks 0 and 1 take 20.3 MiB: ...".
std::string lines_of(const std::vector<train::FullestRank>& ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> of_text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string text = taken_text(ranks[rank].memory);
    auto same = std::find_if(of_text.begin(), of_text.end(), [&](const auto& each) { return each.first == text; });
    same = same == of_text.end() ? of_text.insert(same, {text, {}}) : same;
    same->second.push_back(static_cast<int>(rank));
  }
  std::string lines;
  for (const auto& [text, those] : of_text) {
    lines += str("  ", comm::rank_list(those), those.size() == 1 ? " takes " : " take ", text, "\n");
  }
  return lines;
}

// One layout: also of each rank, of each stage that tells something, and what makes it fit.
Json to_json_in_full(const Planned& planned, const Planner& planner) {
  Json json = to_json(planned, planner);
  for (const train::FullestRank& rank : ranks_of(planned, planner)) {
    json["ranks"].push_back(to_json(rank));
  }
  for (const auto& [fullest, units, traffic] : stages_of(planned, planner)) {
    json["stages"].push_back(
        {{"stage", fullest.place.stage}, {"units", {units.begin, units.end}}, {"traffic_per_step", to_json(traffic)}});
    json["stages"].back().update(to_json(fullest));
  }
  json["advice"] = planned.fits ? Json(nullptr) : Json(planner.what_fits(planned));
  return json;
}

// One layout: the start report's lines, then memory and traffic of each kind of rank.
std::string text_of(const Planned& planned, const Planner& planner) {
  std::string out = str(layout_text(planned.config.parallel), ", ", text_of(planner.ranks()), "\n");
  for (const std::string& line : planned.report.lines()) {
    out += line + "\n";
  }
  if (const auto ranks = ranks_of(planned, planner); ranks.size() > 1) {
    out += lines_of(ranks);
  }
  for (const auto& [fullest, units, traffic] : stages_of(planned, planner)) {
    out += str("  stage ", fullest.place.stage, "\n    holds   ", train::memory_text(fullest.memory), "\n");
    std::vector<std::string> parts;
    for (const mesh::Group group : mesh::kGroups) {
      const auto& of_group = traffic[static_cast<size_t>(group)];
      if (of_group.operations > 0) {
        parts.push_back(str(mesh::group_option(group), " ", bytes_text(of_group.bytes), " in ", of_group.operations,
                            group == mesh::Group::kPipeline ? " messages" : " operations"));
      }
    }
    out += str("    moves   ", parts.empty() ? "nothing" : join(parts), "\n");
  }
  if (planned.time) {
    out += str("  time      ", train::time_text(*planned.time), "; ", number_text(planned.samples_per_second(), 4),
               " samples/s\n");
  }
  out += str("  a node's ranks send each other in a step at least: ", text_of(planned.least_bytes.within),
             "\n  leaves a node in a step, where each byte crosses once: ", text_of(planned.least_bytes.between), "\n");
  return planned.fits ? out
                      : str(out, "  too large for ", planner.memory_text(), "; ", planner.what_fits(planned), "\n");
}

std::string row(const std::vector<std::string>& cells) {
  constexpr std::array<size_t, 8> kWidths = {6, 6, 6, 13, 6, 9, 12, 12};  // of all but the last
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {  // the last one is a text
    const size_t width = i + 1 < cells.size() ? kWidths.at(i) : 0;
    out += std::string(width > cells[i].size() ? width - cells[i].size() : 2, ' ') + cells[i];
  }
  return out + "\n";
}

// Of layouts that fit alike: by the time of a step where it is known, by efficiency, by what leaves a node.
std::tuple<double, double, double> order_of(const Planned& planned) {
  const auto& between = planned.least_bytes.between;
  return {planned.time ? planned.time->step : 0.0, -planned.report.efficiency(),
          std::accumulate(between.begin(), between.end(), 0.0)};
}

// What lets the best of those fit that come before all that do; where nothing helps and none fits, what the least
// takes.
struct Advice {
  const Planned* layout = nullptr;  // nothing: there is none
  std::string what;
};
Advice advice(const std::vector<Planned>& layouts, const Planner& planner) {
  const bool none_fits = !layouts.front().fits;
  for (const Planned& planned : layouts) {
    if (planned.fits || (!none_fits && order_of(planned) >= order_of(layouts.front()))) {
      continue;
    }
    if (std::string what = planner.what_fits(planned); what.starts_with("fits")) {
      return {&planned, std::move(what)};
    }
  }
  if (!none_fits) {
    return {};
  }
  const Planned& least = *std::min_element(layouts.begin(), layouts.end(), [](const Planned& a, const Planned& b) {
    return a.report.fullest.memory.taken() < b.report.fullest.memory.taken();
  });
  return {&least, planner.what_fits(least)};
}

std::string table_text(const std::vector<Planned>& layouts, const std::string& left_out, const Planner& planner) {
  const bool has_times = layouts.front().time.has_value();
  std::vector<std::string> head = {"dp", "tp", "pp", "fullest rank", "fits", "bubble", "efficiency"};
  if (has_times) {
    head.emplace_back("samples/s");
  }
  head.emplace_back("leaves a node in a step");
  std::string out = row(head);
  for (const Planned& planned : layouts) {
    const train::ParallelConfig& parallel = planned.config.parallel;
    std::vector<std::string> cells = {str(parallel.dp),
                                      str(parallel.tp),
                                      str(parallel.pp),
                                      bytes_text(planned.report.fullest.memory.taken()),
                                      planner.memory_gib() == 0.0 ? "-"
                                      : planned.fits              ? "yes"
                                                                  : "no",
                                      train::percent(planned.report.bubble),
                                      train::percent(planned.report.efficiency())};
    if (has_times) {
      cells.push_back(number_text(planned.samples_per_second(), 4));
    }
    cells.push_back(text_of(planned.least_bytes.between));
    out += row(cells);
  }
  if (const auto [layout, what] = advice(layouts, planner); layout != nullptr) {
    const std::string name = layout_text(layout->config.parallel);
    out += layouts.front().fits ? str(name, ", better than the first, ", what, "\n")
                                : str("none fits into ", planner.memory_text(), "; ", name, ": ", what, "\n");
  }
  const bool are_hosts = layouts.front().report.fullest.memory.libraries.code > 0;
  return str(out, left_out, text_of(planner.ranks()),
             planner.memory_gib() > 0.0 ? "; fits: into " + planner.memory_text() : "",
             are_hosts ? "; fullest rank: its tensors and what libraries take of its process"
                       : "; fullest rank: its tensors and NCCL's buffers on the GPU",
             "; efficiency: the share of the ranks' speed that balance and bubble leave; communication is not in it; "
             "--dp, --tp and --pp show one layout in full, --json all\n");
}

// Every product dp x tp x pp = ranks that the configuration allows: those that fit first, then by order_of().
// `left_out`: a line about the others, or nothing.
std::vector<Planned> all_layouts(const Planner& planner, std::string& left_out) {
  const int ranks = planner.ranks().ranks;
  struct Candidate {
    int dp, tp, pp;
    std::optional<Planned> planned = {};
    std::vector<std::string> problems = {};
  };
  std::vector<Candidate> candidates;
  for (int tp = 1; tp <= ranks; ++tp) {
    for (int pp = 1; ranks % tp == 0 && pp <= ranks / tp; ++pp) {
      if (ranks / tp % pp == 0) {
        candidates.push_back({ranks / tp / pp, tp, pp});
      }
    }
  }
  const int64_t threads = at::get_num_threads();
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {  // each takes every n-th: neighbours take as long
      for (auto i = static_cast<size_t>(thread); i < candidates.size(); i += static_cast<size_t>(threads)) {
        Candidate& one = candidates[i];
        one.planned = planner.plan(one.dp, one.tp, one.pp, one.problems);
      }
    }
  });
  std::vector<Planned> layouts;
  int num_left_out = 0;
  std::string first_left_out;
  std::vector<std::string> of_all;  // problems that every layout has
  for (Candidate& one : candidates) {
    if (one.planned) {
      layouts.push_back(std::move(*one.planned));
      continue;
    }
    if (num_left_out++ == 0) {
      of_all = one.problems;
      first_left_out = str("--dp ", one.dp, " --tp ", one.tp, " --pp ", one.pp, ": ", one.problems.front());
    }
    std::erase_if(of_all, [&](const std::string& problem) {
      return std::find(one.problems.begin(), one.problems.end(), problem) == one.problems.end();
    });
  }
  std::stable_sort(layouts.begin(), layouts.end(), [](const Planned& a, const Planned& b) {
    return std::pair(!a.fits, order_of(a)) < std::pair(!b.fits, order_of(b));
  });
  if (layouts.empty()) {
    refuse(num_left_out > 1 ? of_all : std::vector<std::string>());  // it is not the layouts
    refuse({str("no layout of ", ranks, " ranks is valid; the first one, ", first_left_out)});
  }
  if (num_left_out > 0) {
    left_out = str(num_left_out, " layouts that are not valid are left out; the first one, ", first_left_out, "\n");
  }
  return layouts;
}

// Of --machine, nothing where that is not given. It decides what the options do not say: the device, where the ranks
// are, and the threads of each, a share of the cores as in a run.
std::optional<train::MachineFile> machine_of(RunConfig& config, train::RanksOnNodes& ranks, bool finds_nodes) {
  return same_error_on_all_ranks([&]() -> std::optional<train::MachineFile> {
    if (config.machine.empty()) {
      return std::nullopt;
    }
    auto machine = train::parse_machine_file(train::read_local_file(config.machine), config.machine);
    if (finds_nodes && machine.between_nodes.bytes_per_s > 0.0) {
      ranks.per_node = std::min(ranks.ranks, machine.nearest(ranks.ranks, std::max(config.parallel.threads, 1)).ranks);
    }
    if (config.device == train::DeviceChoice::kAuto && machine.device == "cuda") {
      config.device = train::DeviceChoice::kCuda;
    }
    if (config.parallel.threads == 0 && machine.device == "cpu") {
      config.parallel.threads = std::max(machine.cores / ranks.on_node(), 1);
    }
    train::require_rates(machine, config.machine, config.precision.kind, device_of(config), ranks);
    return machine;
  });
}

// What is to be said where a node has more ranks than it has room for; else empty.
std::string crowding(const std::string& file, const train::MachineFile& machine, int on_node, int threads) {
  const bool is_host = machine.device == "cpu";
  if (int64_t{on_node} * (is_host ? threads : 1) <= machine.cores) {
    return {};
  }
  return str("--machine ", file, ": a node has ", counted(machine.cores, is_host ? "core" : "GPU"), ", and the ",
             on_node, " ranks on it ", is_host ? "take turns" : "are timed as if each had one",
             "; --ranks-per-node puts them on more nodes");
}

int run_plan(const Invocation& invocation) {
  PlanOptions plan;
  const options::OptionTable table = table_of(plan);
  const SplitWords words = split(invocation.words, table);
  options::Settings settings(table);
  read_options(table, words.own, settings);
  refuse(settings.problems());
  LoadedConfig loaded = same_error_on_all_ranks(
      [&] { return train::load_run_config(words.others, options::process_environment(), train::read_local_file); });
  const train::ParallelConfig& parallel = loaded.config.parallel;
  const bool is_one = parallel.dp > 0 || loaded.given.contains("tp") || loaded.given.contains("pp");
  const auto& launch = comm::own_launch();
  const int of_model = parallel.tp * parallel.pp;
  const int ranks = plan.ranks > 0                    ? plan.ranks
                    : launch && launch->num_ranks > 1 ? launch->num_ranks
                                                      : std::max(parallel.dp, 1) * of_model;
  {
    // Statistics change nothing here, and whoever plans may not have the data at all.
    train::DataConfig& data = loaded.config.data;
    if (data.stats.empty() && data.global_means.empty() && data.global_stds.empty()) {
      data.stats = "stats";
    }
    if (!data.train_data.empty() && !std::filesystem::exists(data.train_data) && is_first_process()) {
      log_warning(str("--train-data ", data.train_data,
                      " is not there: shape and number of the data are those of the options"));
    }
    LoadedConfig looked = loaded;
    train::resolve(looked.config, ranks);
    if (const auto shape = same_error_on_all_ranks([&] { return train::look_at_data(looked.config); })) {
      train::follow_data(loaded, *shape);
    }
  }
  train::RanksOnNodes on_nodes{ranks, plan.ranks_per_node > 0 ? plan.ranks_per_node : ranks};
  const auto machine = machine_of(loaded.config, on_nodes, plan.ranks_per_node == 0);
  std::vector<std::string> remarks;
  if (loaded.given.contains("generated-samples") || loaded.given.contains("limit-nsamples")) {
    remarks.push_back(train::small_data(loaded.config, loaded.config.data.known_samples()));
  }
  if (machine) {
    const int threads = std::max(parallel.threads, 1);
    remarks.push_back(train::other_population(loaded.config.machine, *machine, on_nodes.on_node(), threads));
    remarks.push_back(crowding(loaded.config.machine, *machine, on_nodes.on_node(), threads));
    if (machine->device == "cpu" && machine->name != train::this_processor().name) {
      remarks.push_back(str("--machine ", loaded.config.machine, " is of '", shown(machine->name),
                            "': times are of that machine; packed weights and workspaces are those of the kernels for "
                            "this one's processor"));
    }
  }
  for (const std::string& remark : remarks) {
    if (!remark.empty() && is_first_process()) {
      log_warning(remark);
    }
  }
  const double of_machine = machine ? machine->bytes_of_rank(on_nodes.on_node(), parallel.ranks_per_gpu) / 0x1p30 : 0.0;
  const double memory_gib = plan.memory_gib > 0.0 ? plan.memory_gib : of_machine;
  const Planner planner(on_nodes, memory_gib, loaded, machine);
  if (is_one) {
    LoadedConfig resolved = loaded;
    train::resolve(resolved.config, ranks);
    std::vector<std::string> problems;
    const auto planned = planner.plan(parallel.dp, parallel.tp, parallel.pp, problems);
    refuse(problems);
    for (const std::string& remark : train::all_remarks(resolved)) {
      if (is_first_process()) {
        log_warning(remark);  // not among the figures
      }
    }
    print_once(plan.json ? to_json_in_full(*planned, planner).dump(2) + "\n" : text_of(*planned, planner));
    return 0;
  }
  std::string left_out;
  const auto layouts = all_layouts(planner, left_out);
  if (plan.json) {
    Json json = Json::array();
    const auto [of_advice, what] = advice(layouts, planner);
    for (const Planned& planned : layouts) {
      json.push_back(to_json(planned, planner));
      if (&planned == of_advice) json.back()["advice"] = what;
    }
    print_once(json.dump(2) + "\n");
  } else {
    print_once(table_text(layouts, left_out, planner));
  }
  return 0;
}

}  // namespace

std::vector<Command> plan_commands() {
  return {
      {.name = "plan",
       .summary = "memory and traffic of a training, before it runs",
       .run = &run_plan,
       .usage =
           "usage: vit_hybrid plan [options of train] [--ranks N] [--ranks-per-node K] [--memory-gib X]\n\n"
           "Prints, without running anything, what the ranks of a training hold, by class, and what they move; with\n"
           "--machine FILE (of vit_hybrid calibrate, or of configs/machines) also how long its steps take.\n"
           "With --dp, --tp or --pp it does so for that layout, else for all valid layouts of so many ranks.\n",
       .introduction = "\nThese are given on the command line only; beside them it takes the options of `train`, "
                       "from everywhere.\n",
       .options_text = &options_text<PlanOptions, &table_of>}};
}

}  // namespace vit_hybrid::commands
