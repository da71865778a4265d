// Records of a run: each part asked for, one object a rank, gathered as text, and tables of them in HDF5.
#include "src/report/run_record.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/statistics.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/host_allocator.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/version.h"
#include "src/machine/processor.h"
#include "src/plan/step_work.h"

namespace vit_hybrid::train {

namespace {

// Versions that only the running program can tell.
std::vector<std::pair<std::string, std::string>> loaded_libraries() {
  std::vector<std::pair<std::string, std::string>> out = {{"MPI", comm::mpi_library_version()}};
  for (auto& library : cuda_library_versions()) {
    out.push_back(std::move(library));
  }
  if (std::string nccl = comm::nccl_version(); !nccl.empty()) {
    out.emplace_back("NCCL", std::move(nccl));
  }
  return out;
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

Json build() {
  Json out;
  out["version"] = project_version();
  out["git_commit"] = git_commit();
  out["git_dirty"] = git_dirty();
  out["compiler"] = compiler();
  out["build_type"] = build_type();
  Json& libraries = out["libraries"];
  for (const auto& [name, version] : library_versions()) {
    libraries[name] = version;
  }
  for (const auto& [name, version] : loaded_libraries()) {
    libraries[name] = version;
  }
  return out;
}

Json layout(const RunConfig& config, const comm::MpiSession& session) {
  const ParallelConfig& parallel = config.parallel;
  return {{"ranks", session.place().size},
          {"nodes", session.place().num_nodes},
          {"dp", parallel.dp},
          {"tp", parallel.tp},
          {"pp", parallel.pp},
          {"order", parallel.order},
          {"zero", parallel.zero},
          {"zero_shard_size", parallel.state_shards()},
          {"schedule", parallel.schedule},
          {"global_batch_size", config.global_batch_size},
          {"micro_batch_size", parallel.micro_batch_size}};
}

Json model(const RunConfig& config) {
  const model::VitOptions& options = config.model;
  return {{"preset", config.preset},
          {"task", config.is_forecast() ? "forecast" : "classify"},
          {"image_size", {options.image_height, options.image_width}},
          {"patch_size", {options.patch_height, options.patch_width}},
          {"tokens", options.num_tokens()},
          {"embed_dim", options.embed_dim},
          {"depth", options.depth},
          {"num_heads", options.num_heads},
          {"mlp_hidden", options.mlp_hidden},
          {"parameters", model::num_parameters(options)},
          {"train_flops_per_sample", model::train_flops_per_sample(options)}};
}

Json machine(const comm::MpiSession& session, int node_cores) {
  utsname system{};
  uname(&system);
  return {{"host", session.place().host},
          {"cpu", this_processor().name},
          {"architecture", system.machine},
          {"cores", node_cores},
          {"system", std::string(system.sysname) + " " + system.release}};
}

// Of the whole process, tensors or not.
int64_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

// JSON pointers of all figures of the rows.
std::vector<std::string> paths_of(const Json& rows) {
  std::vector<std::string> paths;
  const std::function<void(const Json&, const std::string&)> add = [&](const Json& value, const std::string& path) {
    if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        add(inner, str(path, "/", key));
      }
    } else if (std::find(paths.begin(), paths.end(), path) == paths.end()) {
      paths.push_back(path);
    }
  };
  for (const Json& row : rows) {
    add(row, "");
  }
  return paths;
}

// One figure of all rows, and its type; texts as numbers of distinct ones.
std::pair<data::Hdf5DatasetSpec, at::Tensor> column_of(const Json& rows, const std::string& path) {
  const Json::json_pointer figure(path);
  const auto value_of = [&](const Json& row) { return row.contains(figure) ? row[figure] : Json(); };
  const auto all = [&](const auto& is) {
    return std::all_of(rows.begin(), rows.end(), [&](const Json& row) { return is(value_of(row)); });
  };
  const bool is_text = !all([](const Json& v) { return v.is_number() || v.is_null(); });
  const bool is_whole = is_text || all([](const Json& v) { return v.is_number_integer(); });
  data::Hdf5DatasetSpec spec{
      .name = {}, .shape = {static_cast<int64_t>(rows.size())}, .type = is_whole ? at::kLong : at::kDouble};
  at::Tensor column = at::empty(spec.shape, spec.type);
  std::map<std::string, int64_t> numbers;
  std::string texts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json value = value_of(rows[i]);
    if (is_text) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      const auto [entry, is_new] = numbers.emplace(text, static_cast<int64_t>(numbers.size()));
      texts += is_new ? text + "\n" : "";
      column.mutable_data_ptr<int64_t>()[i] = entry->second;
    } else if (is_whole) {
      column.mutable_data_ptr<int64_t>()[i] = value.get<int64_t>();
    } else {
      column.mutable_data_ptr<double>()[i] = value.is_null() ? std::nan("") : value.get<double>();
    }
  }
  if (is_text) {
    spec.attributes.emplace_back("texts", texts);
  }
  return {std::move(spec), std::move(column)};
}

// By mesh::Group: bytes that all ranks together have sent from node to node.
std::vector<double> bytes_between_nodes(const comm::MpiGroup& world) {
  std::vector<double> bytes(mesh::kNumGroups, 0.0);
  for (const auto& axis : comm::statistics()) {
    if (const auto group = mesh::group_named(axis.axis)) {
      bytes[static_cast<size_t>(*group)] += static_cast<double>(axis.bytes_between_nodes);
    }
  }
  world.sum(bytes);
  return bytes;
}

// The least of these, of gradients and parameters in all steps; else zeros.
std::vector<double> least_between_nodes(const StepConfig& config, const CommunicationOf& run, c10::DeviceType device) {
  std::vector<double> least(mesh::kNumGroups, 0.0);
  const bool are_equal = std::all_of(run.nodes.begin(), run.nodes.end(), [&](int n) { return n == run.nodes.front(); });
  if (device == c10::DeviceType::CPU && config.parallel.pp == 1 && are_equal) {
    const auto of_node = plan_least_bytes(config, run.replica, run.nodes.front(), device).between;
    const double times = static_cast<double>(run.nodes.size()) * static_cast<double>(run.steps);
    for (const mesh::Group group : {mesh::Group::kData, mesh::Group::kShard, mesh::Group::kReplica}) {
      least[static_cast<size_t>(group)] = times * of_node[static_cast<size_t>(group)];
    }
  }
  return least;
}

Json operations_of(const comm::AxisStatistics& axis) {
  Json operations = Json::object();
  for (int i = 0; i < comm::kNumOperations; ++i) {
    const auto& count = axis.counts[static_cast<size_t>(i)];
    if (count.operations > 0 && axis.group_size > 1) {  // a group of one moves nothing
      operations[std::string(comm::operation_name(static_cast<comm::Operation>(i)))] = {
          {"operations", count.operations}, {"bytes", count.bytes}};
    }
  }
  return operations;
}

}  // namespace

std::string program_text() {
  std::string text = version_text();
  for (const auto& [name, version] : loaded_libraries()) {
    text += str(name, " ", version, "\n");
  }
  return text + (cuda_library_versions().empty() ? "built without CUDA: computes on processors only\n" : "");
}

Json start_record(const RunConfig& config, const comm::MpiSession& session, int node_cores) {
  Json record = {{"kind", "start"}, {"date", date_text()}, {"name", config.name}};
  record.update(build());
  record["layout"] = layout(config, session);
  record["model"] = model(config);
  record["machine"] = machine(session, node_cores);
  record["seed"] = config.seed;
  record["precision"] = precision_name(config.precision.kind);
  record["is_builtin_default"] = config.is_builtin_default;
  return record;
}

Json bytes_by_class(const ClassBytes& bytes) {
  Json json;
  for (size_t i = 0; i < bytes.size(); ++i) {
    json[std::string(memory_class_name(static_cast<MemoryClass>(i)))] = bytes[i];
  }
  return json;
}

Json gather_rank_reports(const RankReport& report, c10::Device device, const comm::MpiGroup& world) {
  const MemoryReport memory = MemoryTracker::report();
  const std::string host = comm::process_place().host;
  Json slow = Json::array();
  for (const SlowSpell& spell : report.slow) {
    slow.push_back(to_json(spell, world.rank(), host));
  }
  const Json own = {{"rank", world.rank()},
                    {"host", host},
                    {"stage", report.stage},
                    {"seconds", to_json(report.seconds)},
                    {"own_seconds", to_json(report.work)},
                    {"slow", std::move(slow)},
                    {"memory",
                     {{"predicted", bytes_by_class(report.predicted.peak)},
                      {"predicted_total", report.predicted.total},
                      {"peak", bytes_by_class(memory.peak)},
                      {"at_peak", bytes_by_class(memory.at_peak)},
                      {"total_peak", memory.total_peak},
                      {"predicted_process", device.is_cpu() ? Json(report.predicted.process()) : Json(nullptr)},
                      {"process_start", report.process_start},
                      {"process_peak", peak_resident_bytes()},
                      {"allocator_peak", device.is_cpu() ? host_allocator_peak() : device_peak_bytes(device)}}}};
  Json ranks = Json::array();
  for (const std::string& text : world.gather(own.dump())) {
    ranks.push_back(Json::parse(text));
  }
  return ranks;
}

Json communication_record(const StepConfig& config, const CommunicationOf& run, c10::DeviceType device,
                          const comm::MpiGroup& world) {
  const Traffic predicted = plan_traffic(config, run.replica, run.place, device);
  const auto sent = bytes_between_nodes(world), least = least_between_nodes(config, run, device);
  Json json = Json::array();
  for (const auto& axis : comm::statistics()) {
    json.push_back({{"axis", axis.axis},
                    {"ranks", axis.group_size},
                    {"blocked_seconds", axis.blocked_seconds},
                    {"hidden_seconds", device == c10::DeviceType::CPU ? Json(axis.hidden_seconds) : Json(nullptr)},
                    {"rank_0", operations_of(axis)}});
    const auto group = mesh::group_named(axis.axis);
    if (!group || axis.group_size == 1) {
      continue;
    }
    const auto index = static_cast<size_t>(*group);
    json.back()["predicted_per_step"]["bytes"] = predicted[index].bytes;
    if (*group != mesh::Group::kPipeline) {  // whose messages are counted where they come, too, and some start together
      json.back()["predicted_per_step"]["operations"] = predicted[index].operations;
    }
    if (least[index] > 0.0) {
      json.back()["between_nodes"] = {{"bytes", sent[index]}, {"least", least[index]}};
    }
  }
  return json;
}

std::string communication_line(const Json& communication) {
  std::vector<std::string> parts;
  for (const Json& axis : communication) {
    if (axis["ranks"] > 1 && !axis["hidden_seconds"].is_null()) {
      parts.push_back(str(axis["axis"].get<std::string>(), " ", number_text(axis["blocked_seconds"].get<double>(), 3),
                          " s blocked, ", number_text(axis["hidden_seconds"].get<double>(), 3), " s hidden"));
    }
  }
  return parts.empty() ? "" : "communication of rank 0: " + join(parts, "; ");
}

void put_ranks(Json& record, const Json& ranks) {
  if (ranks.size() <= kMostRankRows) {
    record["ranks"] = ranks;
  } else {
    record["ranks_file"] = kRanksFile;
  }
}

void write_rank_rows(const std::string& path, const std::vector<std::pair<std::string, Json>>& tables) {
  std::vector<data::Hdf5DatasetSpec> specs;
  std::vector<at::Tensor> values;
  for (const auto& [name, rows] : tables) {
    for (const std::string& figure : paths_of(rows)) {
      auto [spec, column] = column_of(rows, figure);
      spec.name = name + figure;
      specs.push_back(std::move(spec));
      values.push_back(std::move(column));
    }
  }
  const comm::MpiGroup self = comm::MpiGroup::alone();
  data::Hdf5Writer file(self, path, specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    file.write(specs[i].name, std::array<int64_t, 1>{0}, values[i]);
  }
  file.finish();
}

}  // namespace vit_hybrid::train
