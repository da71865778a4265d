// Device and threads of a rank: what the machine offers.
#include "src/machine/device.h"

#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/make_communicator.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/machine/gpu_assignment.h"
#include "src/machine/step_recording.h"

namespace vit_hybrid::train {

namespace {

Json to_json(const GpuSurvey& survey) {
  Json gpus = Json::array();
  for (const Gpu& gpu : survey.gpus) {
    gpus.push_back(Json::array({gpu.name, gpu.uuid, gpu.major, gpu.minor}));
  }
  return Json::array({survey.has_cuda, survey.is_broken, survey.none_reason, gpus});
}

GpuSurvey survey_from(const Json& json) {
  GpuSurvey survey;
  json[0].get_to(survey.has_cuda);
  json[1].get_to(survey.is_broken);
  json[2].get_to(survey.none_reason);
  for (const Json& gpu : json[3]) {
    survey.gpus.push_back({gpu[0], gpu[1], gpu[2], gpu[3]});
  }
  return survey;
}

// What every rank sees, by rank.
std::vector<RankGpus> gather(const GpuSurvey& survey, const comm::MpiGroup& world) {
  const comm::ProcessPlace& place = comm::process_place();
  const Json mine = Json::array({place.host, place.node, place.node_rank, to_json(survey)});
  std::vector<RankGpus> ranks;
  for (const std::string& text : world.all_gather(mine.dump())) {
    const Json json = Json::parse(text);
    ranks.push_back({json[0], json[1], json[2], survey_from(json[3])});
  }
  return ranks;
}

std::optional<int> agreed_gpu(const RunConfig& config, const GpuSurvey& survey, const comm::MpiGroup& world) {
  if (config.device == DeviceChoice::kCpu) {
    return std::nullopt;
  }
  // Without CUDA in the program all ranks know as much as each other.
  const auto ranks = survey.has_cuda ? gather(survey, world) : std::vector<RankGpus>(1);
  try {
    return assign_gpu(config.device, config.parallel.ranks_per_gpu, ranks, survey.has_cuda ? world.rank() : 0);
  } catch (const Error& error) {
    throw comm::AgreedError(error, "", world.rank() == 0);  // every rank has found it
  }
}

// Before NCCL starts. What the user has set stays.
void let_ranks_share(int rank) {
  for (const auto& [name, value] : nccl_sharing_variables(comm::nccl_version(), rank)) {
    setenv(name.c_str(), value.c_str(), 0);
  }
}

// Makes it the current device of this thread, on a stream of the thread's own (work on the default one can neither be
// recorded nor run beside that of others), and has it do something.
void begin_to_use(c10::Device device, const Gpu& gpu) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  try {
    const c10::impl::VirtualGuardImpl gpus(device.type());
    gpus.setDevice(device);
    gpus.exchangeStream(gpus.getStreamFromGlobalPool(device, /*isHighPriority=*/false));
    static_cast<void>(at::zeros({1}, at::TensorOptions(at::kFloat).device(device)).item<float>());
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw Error(ErrorClass::kUsage,
                str("the GPU ", gpu.name, ", of compute capability ", gpu.major, ".", gpu.minor,
                    ", cannot be used: ", text.substr(0, text.find('\n'))),
                "it may be in use by others, or too old or too new for the CUDA of this program; see nvidia-smi");
  }
}

}  // namespace

c10::Device choose_device(const RunConfig& config, const comm::MpiGroup& world) {
  const GpuSurvey survey = config.device == DeviceChoice::kCpu ? GpuSurvey() : survey_gpus();
  const std::optional<int> number = agreed_gpu(config, survey, world);
  const Gpu* const gpu = number ? &survey.gpus[static_cast<size_t>(*number)] : nullptr;
  const c10::Device device =
      number ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*number)) : c10::Device(c10::kCPU);
  comm::agreed(world, [&] {
    if (const auto problem = precision_problem(config.precision.kind, gpu)) {
      throw Error(*problem);
    }
    static_cast<void>(batch_memory(config.data.pin_memory, device));
    static_cast<void>(records_steps(config, device));
    if (gpu != nullptr) {
      begin_to_use(device, *gpu);
    }
  });
  if (config.device == DeviceChoice::kAuto && survey.has_cuda && !number) {
    log_warning(
        "the device is the CPU: " + (survey.none_reason.empty() ? "not every node has a GPU" : survey.none_reason) +
        "; --device cuda would refuse that");
  }
  if (gpu != nullptr && config.parallel.ranks_per_gpu > 1) {
    let_ranks_share(world.rank());
  }
  return device;
}

comm::TransportOptions transport_options(const RunConfig& config) {
  comm::TransportOptions options;
  options.connection_seconds = config.parallel.timeout;
  return options;
}

data::HostMemory batch_memory(PinMemory choice, c10::Device device) {
  if (choice == PinMemory::kOn && !device.is_cuda()) {
    throw Error(ErrorClass::kUsage,
                str("--pin-memory on: the device is ", device.str(),
                    ", and page-locked batches are for copies to a GPU, of which there are none"),
                "give --pin-memory auto, which page-locks them where there is a GPU, or off");
  }
  const bool pins = choice != PinMemory::kOff && device.is_cuda();
  return pins ? data::HostMemory::kPinned : data::HostMemory::kPageable;
}

// The tensor may be given up while the copy is under way: see TensorPool::take().
}  // namespace vit_hybrid::train
