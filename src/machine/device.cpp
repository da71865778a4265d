// Devices: the nodes of a job, one after the other, and the devices of their ranks.
#include "src/machine/device.h"

#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "parallel/comm/agreement.h"
#include "parallel/comm/watchdog.h"
#include "parallel/zero/rules/update_rule.h"
#include "src/base/device/energy_meter.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/machine/autotune.h"
#include "src/machine/placement.h"

namespace vit_hybrid::train {

namespace {

// Of several replicas: VitProgram.
constexpr int kMessagingMicroBatches = 2;

// Nothing where the micro-batches can be recorded.
std::optional<std::string> obstacle(const StepConfig& config, c10::Device device) {
  const ParallelConfig& parallel = config.parallel;
  const model::VitOptions& model = config.model;
  if (!device.is_cuda()) {
    return "the device is the " + std::string(device.is_cpu() ? "CPU" : device.str());
  }
  if (parallel.pp > 1) {
    return str("with --pp ", parallel.pp,
               " the stages send each other messages in every pass, whose order a schedule decides: they are not ",
               "recorded");
  }
  if (parallel.dp > 1 && config.num_micro_batches() <= kMessagingMicroBatches) {
    return str("with --dp ", parallel.dp, " the first micro-batch of a step waits for parameters, the last one sends ",
               "gradients, and messages are not recorded: there is none between the two");
  }
  if (model.dropout > 0.0 || model.attention_dropout > 0.0 || model.drop_path > 0.0) {
    return "the model drops at random, by keys of the step that a record would repeat";
  }
  if (parallel.schedule == "gpipe" && config.num_micro_batches() > 1) {
    return str("with --schedule gpipe the activations of ", config.num_micro_batches(),
               " micro-batches are held at once, and a record has room for one");
  }
  return std::nullopt;
}

}  // namespace

bool records_micro_batches(const StepConfig& config, c10::Device device) {
  return config.cuda_graph != CudaGraph::kOff && !obstacle(config, device);
}

StepRecording step_recording(const StepConfig& config, c10::Device device) {
  if (config.cuda_graph == CudaGraph::kOff) {
    return {false, false, "started kernel by kernel: --cuda-graph off"};
  }
  if (const auto reason = obstacle(config, device)) {
    if (config.cuda_graph == CudaGraph::kOn) {
      throw Error(ErrorClass::kUsage, "--cuda-graph on: " + *reason,
                  "give --cuda-graph auto, which records where it can, or off");
    }
    return {false, false, "started kernel by kernel: " + *reason};
  }
  if (config.parallel.dp > 1) {
    return {
        true, false,
        str("CUDA graphs: forward and backward of ", config.num_micro_batches() - kMessagingMicroBatches, " of ",
            config.num_micro_batches(),
            " micro-batches are recorded once and started as a whole; the first and "
            "the last one, norm and update are started kernel by kernel: their ranks wait for each other's messages")};
  }
  if (config.parallel.tp > 1) {
    return {true, false,
            str("CUDA graphs: forward and backward are recorded once, with their sums over ", config.parallel.tp,
                " tensor ranks, and started as a whole; norm and update are started kernel by kernel: the norm is a "
                "sum over the ranks")};
  }
  if (zero::make_update_rule(config.optimizer, device.type())->updates_at_once()) {
    return {true, true, "CUDA graphs: forward, backward, norm and update are recorded once and started as a whole"};
  }
  return {true, false,
          str("CUDA graphs: forward and backward are recorded once and started as a whole; norm and update are started "
              "kernel by kernel: the host reads the norm before it starts an update of --optimizer ",
              zero::optimizer_name(config.optimizer.kind))};
}

namespace {

constexpr size_t kMostNamed = 8;  // hosts or ranks in a message

using Node = std::vector<const RankGpus*>;  // in the order of node_rank

// "n1, n2, and 5 more"
std::string some(const std::vector<std::string>& names) {
  if (names.size() <= kMostNamed) {
    return join(names);
  }
  const std::vector<std::string> first(names.begin(), names.begin() + kMostNamed);
  return str(join(first), ", and ", names.size() - kMostNamed, " more");
}

// "GPU-5d3c1a2b": what tells two of them apart.
std::string short_uuid(const Gpu& gpu) {
  return gpu.uuid.substr(0, 12);
}

std::vector<Node> nodes_of(const std::vector<RankGpus>& ranks) {
  std::map<int, Node> nodes;
  for (const RankGpus& rank : ranks) {
    nodes[rank.node].push_back(&rank);
  }
  std::vector<Node> out;
  for (auto& [number, node] : nodes) {
    std::sort(node.begin(), node.end(), [](auto* a, auto* b) { return a->node_rank < b->node_rank; });
    out.push_back(std::move(node));
  }
  return out;
}

bool has_gpus(const Node& node) {
  return std::any_of(node.begin(), node.end(), [](const RankGpus* rank) { return !rank->survey.gpus.empty(); });
}

bool same_gpus(const RankGpus& a, const RankGpus& b) {
  const auto& x = a.survey.gpus;
  const auto& y = b.survey.gpus;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](auto& g, auto& h) { return g.uuid == h.uuid; });
}

std::string option_text(DeviceChoice choice) {
  return choice == DeviceChoice::kCuda ? "--device cuda" : "--device auto";
}

[[noreturn]] void refuse_number(DeviceChoice choice, int ranks_per_gpu, const Node& node) {
  const size_t gpus = node.front()->survey.gpus.size();
  const size_t needed = (node.size() + gpus - 1) / gpus;
  const std::string each = ranks_per_gpu > 1 ? str(" and --ranks-per-gpu is ", ranks_per_gpu) : "";
  throw Error(ErrorClass::kUsage,
              str(option_text(choice), ": ", node.front()->host, " has ", counted(gpus, "GPU"), " for its ",
                  counted(node.size(), "rank"), each),
              str("start at most ", gpus * static_cast<size_t>(ranks_per_gpu), " there, let them share with ",
                  "--ranks-per-gpu ", needed, " (for tests: it is slow), or give --device cpu"));
}

[[noreturn]] void refuse_views(const Node& node) {
  std::vector<std::string> views;
  for (const RankGpus* rank : node) {
    std::vector<std::string> gpus;
    for (const Gpu& gpu : rank->survey.gpus) {
      gpus.push_back(short_uuid(gpu));
    }
    views.push_back(str(rank->node_rank, " sees ", gpus.empty() ? "none" : join(gpus, " and ")));
  }
  throw Error(ErrorClass::kUsage,
              str("the ranks of ", node.front()->host, " see different GPUs: of its ranks ", some(views)),
              "let every rank see all GPUs of its node (srun --gpu-bind=none), or each exactly one of its own "
              "(CUDA_VISIBLE_DEVICES), or give --device cpu");
}

[[noreturn]] void refuse_shared(const Node& node, const Gpu& gpu, const std::vector<std::string>& sharers) {
  throw Error(ErrorClass::kUsage,
              str("the ranks of ", node.front()->host, " see one GPU each, and ", short_uuid(gpu),
                  " is that of its ranks ", some(sharers)),
              str("give each its own, let them share with --ranks-per-gpu ", sharers.size(),
                  " (for tests: it is slow), or give --device cpu"));
}

// Of a node whose ranks see one GPU each, not all the same.
void check_own_gpus(int ranks_per_gpu, const Node& node) {
  std::map<std::string, std::vector<std::string>> sharers;
  for (const RankGpus* rank : node) {
    const Gpu& gpu = rank->survey.gpus.front();
    sharers[gpu.uuid].push_back(str(rank->node_rank));
    if (sharers[gpu.uuid].size() > static_cast<size_t>(ranks_per_gpu)) {
      for (const RankGpus* later : node) {
        if (later->node_rank > rank->node_rank && later->survey.gpus.front().uuid == gpu.uuid) {
          sharers[gpu.uuid].push_back(str(later->node_rank));
        }
      }
      refuse_shared(node, gpu, sharers[gpu.uuid]);
    }
  }
}

// Whether the ranks of a node see all its GPUs; else they see one each. Refuses everything else, and too many ranks.
bool sees_all(DeviceChoice choice, int ranks_per_gpu, const Node& node) {
  const RankGpus& first = *node.front();
  const auto all_of = [&](auto&& is) { return std::all_of(node.begin(), node.end(), is); };
  if (all_of([&](const RankGpus* rank) { return same_gpus(*rank, first); })) {
    if (node.size() > first.survey.gpus.size() * static_cast<size_t>(ranks_per_gpu)) {
      refuse_number(choice, ranks_per_gpu, node);
    }
    return true;
  }
  if (!all_of([](const RankGpus* rank) { return rank->survey.gpus.size() == 1; })) {
    refuse_views(node);
  }
  check_own_gpus(ranks_per_gpu, node);
  return false;
}

void refuse_broken(DeviceChoice choice, const std::vector<RankGpus>& ranks) {
  const auto broken = std::find_if(ranks.begin(), ranks.end(), [](auto& rank) { return rank.survey.is_broken; });
  if (broken != ranks.end()) {
    throw Error(
        ErrorClass::kUsage,
        str(option_text(choice), ": the GPUs of ", broken->host, " cannot be used: ", broken->survey.none_reason),
        "have the driver mended or renewed, use a program built with an older CUDA, or give --device cpu");
  }
}

// True where all nodes have GPUs, false where none has any; refuses a mixture.
bool all_have_gpus(const std::vector<Node>& nodes) {
  std::vector<std::string> with;
  std::vector<std::string> without;
  for (const Node& node : nodes) {
    (has_gpus(node) ? with : without).push_back(node.front()->host);
  }
  if (!with.empty() && !without.empty()) {
    throw Error(ErrorClass::kUsage,
                str("some nodes have GPUs (", some(with), ") and some have none (", some(without), ")"),
                "use nodes of one kind, or give --device cpu");
  }
  return without.empty();
}

Json to_json(const GpuSurvey& survey) {
  Json gpus = Json::array();
  for (const Gpu& gpu : survey.gpus) {
    gpus.push_back(Json::array({gpu.name, gpu.uuid, gpu.major, gpu.minor}));
  }
  return Json::array({survey.has_cuda, survey.is_broken, survey.none_reason, gpus, survey.num_on_node});
}

GpuSurvey survey_from(const Json& json) {
  GpuSurvey survey;
  json[0].get_to(survey.has_cuda);
  json[1].get_to(survey.is_broken);
  json[2].get_to(survey.none_reason);
  for (const Json& gpu : json[3]) {
    survey.gpus.push_back({gpu[0], gpu[1], gpu[2], gpu[3]});
  }
  json[4].get_to(survey.num_on_node);
  return survey;
}

// What every rank sees, by rank; on rank 0.
std::vector<RankGpus> gather(const GpuSurvey& survey, const comm::MpiGroup& world) {
  const comm::ProcessPlace& place = comm::process_place();
  const Json mine = Json::array({place.host, place.node, place.node_rank, to_json(survey)});
  std::vector<RankGpus> ranks;
  for (const std::string& text : world.gather(mine.dump())) {
    const Json json = Json::parse(text);
    ranks.push_back({json[0], json[1], json[2], survey_from(json[3])});
  }
  return ranks;
}

std::optional<int> agreed_gpu(DeviceChoice choice, int ranks_per_gpu, const GpuSurvey& survey,
                              const comm::MpiGroup& world) {
  if (choice == DeviceChoice::kCpu) {
    return std::nullopt;
  }
  if (!survey.has_cuda) {  // then all ranks know as much as each other
    try {
      return assign_gpu(choice, ranks_per_gpu, std::vector<RankGpus>(1), 0);
    } catch (const Error& error) {
      throw comm::AgreedError(error, "", world.rank() == 0);
    }
  }
  constexpr int64_t kNone = -1;
  std::vector<int64_t> numbers;  // by rank
  try {
    const auto ranks = gather(survey, world);
    comm::agreed_on_rank_0(world, [&] {
      for (int rank = 0; rank < world.size(); ++rank) {
        numbers.push_back(assign_gpu(choice, ranks_per_gpu, ranks, rank).value_or(kNone));
      }
      if (const std::string warning = binding_warning(ranks); numbers.front() != kNone && !warning.empty()) {
        log_warning(warning);
      }
    });
  } catch (const comm::AgreedError& error) {
    throw comm::AgreedError(error, "", error.speaks());  // it is the job's, not rank 0's
  }
  const int64_t number = world.scatter(numbers);
  return number == kNone ? std::nullopt : std::optional(static_cast<int>(number));
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

// An option that would do nothing.
void check_ctas(const ParallelConfig& parallel, c10::Device device) {
  if (parallel.dp_max_ctas != 0 && !device.is_cuda()) {
    throw Error(ErrorClass::kUsage,
                str("--dp-max-ctas ", parallel.dp_max_ctas, ": the device is ", device.str(),
                    ", and thread blocks are what NCCL takes of a GPU"),
                "leave it out, or train on GPUs");
  }
}

void check_sum_blocks(const ParallelConfig& parallel, c10::Device device) {
  if (parallel.sum_blocks != "auto" && !device.is_cpu()) {
    throw Error(ErrorClass::kUsage,
                str("--sum-blocks ", parallel.sum_blocks, ": the device is ", device.str(),
                    ", where NCCL decides on the order of sums"),
                "leave it out, or train on CPUs");
  }
}

}  // namespace

std::optional<int> assign_gpu(DeviceChoice choice, int ranks_per_gpu, const std::vector<RankGpus>& ranks, int rank) {
  const RankGpus& own = ranks[static_cast<size_t>(rank)];
  if (choice == DeviceChoice::kCpu || (choice == DeviceChoice::kAuto && !own.survey.has_cuda)) {
    return std::nullopt;
  }
  if (!own.survey.has_cuda) {
    throw Error(ErrorClass::kUsage, "--device cuda: this program was built without CUDA",
                "use bin/cuda/vit_hybrid of a build with VIT_HYBRID_ENABLE_CUDA=ON (cmake --preset cuda), or give "
                "--device cpu");
  }
  refuse_broken(choice, ranks);
  const std::vector<Node> nodes = nodes_of(ranks);
  if (!all_have_gpus(nodes)) {
    if (choice == DeviceChoice::kAuto) {
      return std::nullopt;
    }
    const RankGpus& first = ranks.front();
    throw Error(ErrorClass::kUsage,
                str("--device cuda: ", first.host, " has no GPU that this program can use: ", first.survey.none_reason),
                "start it on a node with GPUs, or give --device cpu");
  }
  int number = 0;
  for (const Node& node : nodes) {
    const bool by_place = sees_all(choice, ranks_per_gpu, node);  // of every node: all ranks refuse alike
    if (node.front()->node == own.node && by_place) {
      number = own.node_rank / ranks_per_gpu;
    }
  }
  return number;
}

std::string binding_warning(const std::vector<RankGpus>& ranks) {
  if (ranks.size() == 1) {
    return {};
  }
  for (const Node& node : nodes_of(ranks)) {
    const RankGpus& first = *node.front();
    const int on_node = first.survey.num_on_node;
    const bool is_bound = first.survey.gpus.size() == 1 &&
                          (on_node > 1 || std::any_of(node.begin(), node.end(),
                                                      [&](const auto* rank) { return !same_gpus(*rank, first); }));
    if (is_bound) {
      const bool is_alone = node.size() == 1;
      return str(
          is_alone ? "the rank of " : "the ranks of ", first.host, " see", is_alone ? "s one GPU" : " one GPU each",
          on_node > 1 ? str(" of ", on_node) : "", ": where Slurm has bound them so (--gpus-per-task, ",
          "--gpu-bind), GPUs cannot reach each other's memory, and NCCL goes through the host's; let every rank ",
          "see all GPUs of its node (srun --gpus-per-node=", is_alone ? on_node : std::ssize(node),
          " --gpu-bind=none)");
    }
  }
  return {};
}

std::optional<Error> precision_problem(Precision precision, const Gpu* gpu) {
  const bool wants_ampere = precision == Precision::kTf32 || precision == Precision::kBf16;
  if (!wants_ampere || gpu == nullptr || gpu->major >= 8) {
    return std::nullopt;
  }
  const std::string name = precision == Precision::kTf32 ? "tf32" : "bf16";
  return Error(ErrorClass::kUsage,
               str("--precision ", name, ": ", gpu->name, " has compute capability ", gpu->major, ".", gpu->minor,
                   ", and ", name, " begins with 8.0"),
               "give --precision fp16, which it has, or fp32");
}

std::vector<std::pair<std::string, std::string>> nccl_sharing_variables(const std::string& nccl_version, int rank) {
  // Since 2.30 it is a setting; before, NCCL takes ranks for those of different hosts that have different names. Of one
  // host, they must do without NVLink's multicast, which is between GPUs, and with few blocks, because the kernels of
  // all ranks wait for each other and must be on the GPU together.
  char* end = nullptr;
  const long major = std::strtol(nccl_version.c_str(), &end, 10);
  const long minor = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
  if (major > 2 || (major == 2 && minor >= 30)) {
    return {{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}, {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_MAX_CTAS", "4"}};
  }
  return {{"NCCL_HOSTID", str("rank", rank)}};
}

c10::Device choose_device(DeviceChoice choice, int ranks_per_gpu, Precision precision, const comm::MpiGroup& world) {
  GpuSurvey survey = choice == DeviceChoice::kCpu ? GpuSurvey() : survey_gpus();
  if (survey.gpus.size() == 1) survey.num_on_node = GpuMeter::num_on_machine();
  const std::optional<int> number = agreed_gpu(choice, ranks_per_gpu, survey, world);
  const Gpu* const gpu = number ? &survey.gpus[static_cast<size_t>(*number)] : nullptr;
  const c10::Device device =
      number ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*number)) : c10::Device(c10::kCPU);
  comm::agreed(world, [&] {
    if (const auto problem = precision_problem(precision, gpu)) {
      throw Error(*problem);
    }
    if (gpu != nullptr) {
      begin_to_use(device, *gpu);
    }
  });
  if (choice == DeviceChoice::kAuto && survey.has_cuda && !number) {
    log_warning(
        "the device is the CPU: " + (survey.none_reason.empty() ? "not every node has a GPU" : survey.none_reason) +
        "; --device cuda would refuse that");
  }
  if (gpu != nullptr && ranks_per_gpu > 1) {
    let_ranks_share(world.rank());
  }
  return device;
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

ReadAhead read_ahead(const DataConfig& data, c10::Device device, int num_threads) {
  constexpr int kFewest = 2, kMost = 8;
  const int of_device = device.is_cpu() ? kFewest : std::clamp(num_threads / 2, kFewest, kMost);
  const int threads = data.io_threads >= 0 ? data.io_threads : of_device;
  return {threads, data.prefetch_depth > 0 ? data.prefetch_depth : std::max(threads, kFewest)};
}

comm::TransportOptions transport_options(const ParallelConfig& parallel) {
  constexpr double kMost = 64.0;  // MiB; beyond, NCCL chooses nothing else
  comm::TransportOptions options;
  options.connection_seconds = parallel.timeout;
  options.most_blocks = parallel.dp_max_ctas;
  if (parallel.ranks_per_gpu > 1) {
    options.warm_up_bytes = 0;
  } else if (parallel.bucket_mb > 0.0) {
    options.warm_up_bytes = static_cast<int64_t>(std::min(parallel.bucket_mb, kMost) * (1 << 20));
  }
  return options;
}

Machine set_up_machine(const StepConfig& config, const DataConfig& data, ModelPurpose purpose,
                       const comm::MpiGroup& world) {
  const ParallelConfig& parallel = config.parallel;
  comm::set_watch_limit(parallel.timeout);
  const auto placements = set_threads(parallel.threads, world);
  const c10::Device device = choose_device(config.device, parallel.ranks_per_gpu, config.precision.kind, world);
  comm::agreed(world, [&] {
    static_cast<void>(batch_memory(data.pin_memory, device));
    static_cast<void>(step_recording(config, device));
    check_ctas(parallel, device);
    check_sum_blocks(parallel, device);
  });
  check_model_memory(config, data, device, purpose, world);
  set_kernel_options(config, device, world);
  if (device.is_cpu()) {
    report_placement(placements);
  }
  return {device, placements.own.node_cores};
}

}  // namespace vit_hybrid::train
