// GpuAssignment: the nodes of a job, one after the other.
#include "src/machine/gpu_assignment.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "src/base/text.h"

namespace vit_hybrid::train {

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

std::string counted(size_t count, const std::string& noun) {
  return str(count, " ", noun, count == 1 ? "" : "s");
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
              "let every rank see all GPUs of its node, or each exactly one of its own (CUDA_VISIBLE_DEVICES, or srun "
              "--gpus-per-task=1), or give --device cpu");
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

}  // namespace vit_hybrid::train
