// The start record: gathering of its parts.
#include "src/report/start_record.h"

#include <sys/utsname.h>

#include <array>
#include <ctime>

#include "src/base/version.h"
#include "src/machine/loaded_libraries.h"
#include "src/machine/processor.h"

namespace vit_hybrid::train {

namespace {

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
          {"schedule", parallel.schedule},
          {"global_batch_size", config.global_batch_size},
          {"micro_batch_size", parallel.micro_batch_size}};
}

Json model(const RunConfig& config) {
  const model::VitOptions& options = config.model;
  return {{"preset", config.preset},
          {"task", config.is_forecast() ? "forecast" : "classify"},
          {"image_size", {options.image_height, options.image_width}},
          {"patch_size", options.patch_size},
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

}  // namespace

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

}  // namespace vit_hybrid::train
