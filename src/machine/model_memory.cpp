// The least memory that a rank takes by the configuration, and what /proc and /sys/fs/cgroup say there is.
#include "src/machine/model_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

double bytes_of(at::ScalarType type) {
  return static_cast<double>(c10::elementSize(type));
}

double bytes_per_parameter(const StepConfig& config, ModelPurpose purpose) {
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  if (purpose == ModelPurpose::kUse) {
    return bytes_of(policy.compute);
  }
  const auto num_states = zero::optimizer_state_names(config.optimizer).size();
  const double kept = static_cast<double>(num_states) + (policy.has_own_master() ? 1.0 : 0.0);
  const int shards = std::max(config.parallel.state_shards(), 1);
  return bytes_of(policy.compute) + bytes_of(policy.gradient) + kept * bytes_of(policy.master) / shards;
}

// The input of each block is kept under every --recompute.
double micro_batch_bytes(const StepConfig& config) {
  const model::VitOptions& model = config.model;
  const double features = static_cast<double>(model.num_tokens()) * static_cast<double>(model.embed_dim);
  return static_cast<double>(config.parallel.micro_batch_size) * static_cast<double>(model.depth) * features *
         bytes_of(precision_policy(config.precision).compute);
}

std::string double_bytes_text(double bytes) {
  constexpr double kMost = 0x1p62;
  return (bytes > kMost ? "more than " : "") + bytes_text(static_cast<int64_t>(std::min(bytes, kMost)));
}

// The number in a file; the largest there is for "max", for none, and where there is no such file.
int64_t limit_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value && value > 0 ? value : std::numeric_limits<int64_t>::max();
}

// The least limit on the way from a group up to the root of the hierarchy.
int64_t cgroup_limit(const std::filesystem::path& hierarchy, std::filesystem::path group, const char* file) {
  int64_t least = limit_in(hierarchy / file);
  for (; !group.empty(); group = group.parent_path()) {
    least = std::min(least, limit_in(hierarchy / group / file));
  }
  return least;
}

// Of lines like "0::/user.slice/job" (version 2) and "4:memory:/job" (version 1).
int64_t cgroup_limits(const std::string& root) {
  int64_t least = std::numeric_limits<int64_t>::max();
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    if (controllers.empty()) {
      least = std::min(least, cgroup_limit(root + "/sys/fs/cgroup", group, "memory.max"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least = std::min(least, cgroup_limit(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

int64_t machine_bytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kib = 0;
    if (words >> name >> kib && name == "MemTotal:") {
      return kib * 1024;
    }
  }
  return 0;
}

}  // namespace

double generated_bytes(const DataConfig& data, const model::VitOptions& model) {
  const auto num_valid = static_cast<double>(data.generated_for_validation());
  const double samples = static_cast<double>(data.generated_samples) + num_valid;
  const double last_targets = num_valid > 0 ? 2.0 : 1.0;  // each data set's pairs are of one field more
  const double fields = static_cast<double>(model.in_channels) * static_cast<double>(model.image_height) *
                        static_cast<double>(model.image_width) * sizeof(float);
  switch (data.kind) {
    case DataKind::kBuiltin:
      return model.task == model::Task::kForecast ? (samples + last_targets) * fields : samples * sizeof(int64_t);
    case DataKind::kSynthetic:
      return samples * sizeof(int64_t);  // their order
    default:
      return 0.0;
  }
}

RankBytes least_bytes_per_rank(const StepConfig& config, const DataConfig& data, ModelPurpose purpose) {
  const ParallelConfig& parallel = config.parallel;
  const double parameters = model::num_slice_parameters(config.model, 0, parallel.tp);
  const double of_parameters = parameters * bytes_per_parameter(config, purpose) / parallel.pp;
  if (purpose == ModelPurpose::kUse) {
    return {of_parameters, 0.0};
  }
  return {of_parameters + micro_batch_bytes(config) / parallel.pp, generated_bytes(data, config.model)};
}

int64_t node_memory_bytes(const std::string& root) {
  return std::min(machine_bytes(root), cgroup_limits(root));
}

std::string memory_problem(const model::VitOptions& model, const ParallelConfig& parallel, double bytes_per_rank,
                           int ranks, int64_t available, const std::string& where) {
  if (available == 0 || bytes_per_rank * ranks <= static_cast<double>(available)) {
    return {};
  }
  return str("this run takes at least ", double_bytes_text(bytes_per_rank), " a rank (", model::num_parameters(model),
             " parameters: depth ", model.depth, ", embed_dim ", model.embed_dim, ", mlp_hidden ", model.mlp_hidden,
             ", ", model.num_tokens(), " tokens; --tp ", parallel.tp, ", --pp ", parallel.pp, ", micro-batches of ",
             parallel.micro_batch_size, ")", ranks > 1 ? str(", ", ranks, " times on ", where) : " on " + where,
             ", which has ", bytes_text(available));
}

void check_model_memory(const StepConfig& config, const DataConfig& data, c10::Device device, ModelPurpose purpose,
                        const comm::MpiGroup& world) {
  const comm::ProcessPlace& place = comm::process_place();
  const int per_node = std::max(1, place.size / place.num_nodes);
  const RankBytes bytes = least_bytes_per_rank(config, data, purpose);
  const double on_host = device.is_cpu() ? bytes.of_model + bytes.of_data : bytes.of_data;
  comm::agreed(world, [&] {
    std::string problem =
        memory_problem(config.model, config.parallel, on_host, per_node, node_memory_bytes(), "a node");
    const bool is_of_data = !problem.empty() && 2.0 * bytes.of_data > on_host;  // of which each rank has all
    if (problem.empty() && !device.is_cpu()) {
      problem = memory_problem(config.model, config.parallel, bytes.of_model, config.parallel.ranks_per_gpu,
                               device_total_bytes(device), "a GPU");
    }
    if (!problem.empty()) {
      throw Error(ErrorClass::kUsage, problem,
                  is_of_data ? "give fewer --generated-samples and --generated-valid-samples, or a smaller --image-size"
                             : "give a smaller model or micro-batch, or more ranks on more nodes");
    }
  });
}

}  // namespace vit_hybrid::train
