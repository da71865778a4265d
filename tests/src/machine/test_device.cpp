// The device of a rank on made-up nodes, and where its batches lie on the host.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include "data/loading/prefetch_loader.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/text.h"
#include "src/machine/device.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using data::HostMemory;
using testing::contains;
using testing::thrown_error;

namespace {

using Ranks = std::vector<RankGpus>;

constexpr auto kAuto = DeviceChoice::kAuto;
constexpr auto kCuda = DeviceChoice::kCuda;

GpuSurvey sees(const std::vector<std::string>& gpus) {
  GpuSurvey survey;
  survey.has_cuda = true;
  for (const std::string& gpu : gpus) {
    survey.gpus.push_back({"NVIDIA A100", "GPU-" + gpu, 8, 0});
  }
  if (gpus.empty()) {
    survey.none_reason = "no NVIDIA driver is installed";
  }
  return survey;
}

// Adds a node with one rank for each of `views`.
void add_node(Ranks& ranks, const std::vector<std::vector<std::string>>& views) {
  const int node = ranks.empty() ? 0 : ranks.back().node + 1;
  for (size_t i = 0; i < views.size(); ++i) {
    ranks.push_back({str("n", node), node, static_cast<int>(i), sees(views[i])});
  }
}

Ranks one_node(const std::vector<std::vector<std::string>>& views) {
  Ranks ranks;
  add_node(ranks, views);
  return ranks;
}

// What each rank gets; -1 for the CPU.
std::vector<int> assigned(DeviceChoice choice, int ranks_per_gpu, const Ranks& ranks) {
  std::vector<int> out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    out.push_back(assign_gpu(choice, ranks_per_gpu, ranks, static_cast<int>(i)).value_or(-1));
  }
  return out;
}

// The refusal, which must be the same on every rank.
Error refusal(DeviceChoice choice, int ranks_per_gpu, const Ranks& ranks) {
  const Error first = thrown_error([&] { assign_gpu(choice, ranks_per_gpu, ranks, 0); });
  CHECK(first.error_class() == ErrorClass::kUsage);
  for (size_t i = 1; i < ranks.size(); ++i) {
    const Error other = thrown_error([&] { assign_gpu(choice, ranks_per_gpu, ranks, static_cast<int>(i)); });
    CHECK(std::string(other.what()) == first.what());
  }
  return first;
}

const std::vector<std::string> kFour = {"a", "b", "c", "d"};

}  // namespace

TEST_CASE("device: a GPU a rank by its place on the node, where every rank sees all") {
  Ranks ranks = one_node({kFour, kFour, kFour, kFour});
  CHECK(assigned(kAuto, 1, ranks) == std::vector<int>{0, 1, 2, 3});
  add_node(ranks, {{"e", "f"}, {"e", "f"}});
  CHECK(assigned(kCuda, 1, ranks) == std::vector<int>{0, 1, 2, 3, 0, 1});
  CHECK(assigned(DeviceChoice::kCpu, 1, ranks) == std::vector<int>(6, -1));
}

TEST_CASE("device: ranks of a node may stand anywhere in the world") {
  Ranks ranks = one_node({{"a", "b"}, {"a", "b"}});
  add_node(ranks, {{"c", "d"}, {"c", "d"}});
  std::swap(ranks[1], ranks[2]);  // round robin over the nodes
  CHECK(assigned(kAuto, 1, ranks) == std::vector<int>{0, 0, 1, 1});
}

TEST_CASE("device: the first GPU, where every rank sees its own only") {
  CHECK(assigned(kAuto, 1, one_node({{"a"}, {"b"}, {"c"}})) == std::vector<int>{0, 0, 0});
  CHECK(assigned(kAuto, 2, one_node({{"a"}, {"b"}, {"a"}, {"b"}})) == std::vector<int>{0, 0, 0, 0});
  CHECK(assigned(kAuto, 1, one_node({{"a"}})) == std::vector<int>{0});
}

TEST_CASE("device: ranks that share GPUs") {
  CHECK(assigned(kAuto, 2, one_node({{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}})) == std::vector<int>{0, 0, 1, 1});
  CHECK(assigned(kAuto, 8, one_node(std::vector<std::vector<std::string>>(8, {"a"}))) == std::vector<int>(8, 0));
}

TEST_CASE("device: more ranks than GPUs are refused, with the numbers and what can be done") {
  const Error one = refusal(kAuto, 1, one_node({{"a"}, {"a"}, {"a"}}));
  CHECK(one.message() == "--device auto: n0 has 1 GPU for its 3 ranks");
  CHECK(one.hint() ==
        "start at most 1 there, let them share with --ranks-per-gpu 3 (for tests: it is slow), or give --device cpu");
  const Error shared = refusal(kCuda, 2, one_node(std::vector<std::vector<std::string>>(5, {"a", "b"})));
  CHECK(shared.message() == "--device cuda: n0 has 2 GPUs for its 5 ranks and --ranks-per-gpu is 2");
  CHECK(contains(shared.hint(), "start at most 4 there, let them share with --ranks-per-gpu 3 "));
  Ranks second = one_node({{"a", "b"}, {"a", "b"}});
  add_node(second, {{"c"}, {"c"}});
  CHECK(contains(refusal(kAuto, 1, second).message(), "n1 has 1 GPU for its 2 ranks"));
}

TEST_CASE("device: ranks that see different GPUs are refused, with the list") {
  const Error some = refusal(kAuto, 1, one_node({{"12345678-9", "b"}, {"b"}}));
  CHECK(some.message() ==
        "the ranks of n0 see different GPUs: of its ranks 0 sees GPU-12345678 and GPU-b, 1 sees GPU-b");
  CHECK(contains(some.hint(),
                 "let every rank see all GPUs of its node (srun --gpu-bind=none), or each exactly one of its own"));
  CHECK(contains(refusal(kAuto, 1, one_node({{"a", "b"}, {"b", "a"}})).message(), "see different GPUs"));
  CHECK(contains(refusal(kAuto, 1, one_node({{"a"}, {}})).message(), "0 sees GPU-a, 1 sees none"));
  const Error same = refusal(kAuto, 1, one_node({{"a"}, {"b"}, {"b"}, {"c"}, {"b"}}));
  CHECK(same.message() == "the ranks of n0 see one GPU each, and GPU-b is that of its ranks 1, 2, 4");
  CHECK(contains(same.hint(), "--ranks-per-gpu 3"));
  Ranks many = one_node({{"a", "b"}});
  for (int i = 1; i < 20; ++i) {
    many.push_back({"n0", 0, i, sees({"c"})});
  }
  CHECK(contains(refusal(kAuto, 1, many).message(), "7 sees GPU-c, and 12 more"));
}

TEST_CASE("device: without GPUs auto is the CPU, and cuda is refused with the reason") {
  const Ranks none = one_node({{}, {}});
  CHECK(assigned(kAuto, 1, none) == std::vector<int>{-1, -1});
  CHECK(refusal(kCuda, 1, none).message() ==
        "--device cuda: n0 has no GPU that this program can use: no NVIDIA driver is installed");
  const Ranks no_cuda(2);  // a program without CUDA
  CHECK(assigned(kAuto, 1, no_cuda) == std::vector<int>{-1, -1});
  const Error refused = refusal(kCuda, 1, no_cuda);
  CHECK(refused.message() == "--device cuda: this program was built without CUDA");
  CHECK(contains(refused.hint(), "bin/cuda/vit_hybrid of a build with VIT_HYBRID_ENABLE_CUDA=ON"));
}

TEST_CASE("device: nodes with and without GPUs are refused, by name") {
  Ranks ranks = one_node({{"a"}});
  add_node(ranks, {{}});
  add_node(ranks, {{}});
  CHECK(refusal(kAuto, 1, ranks).message() == "some nodes have GPUs (n0) and some have none (n1, n2)");
  CHECK(assigned(DeviceChoice::kCpu, 1, ranks) == std::vector<int>{-1, -1, -1});
}

TEST_CASE("device: why the CUDA runtime has no GPU to offer") {
  using Kind = CudaRefusal::Kind;
  const GpuSurvey old = explain({Kind::kDriverTooOld, "", 12040, 13000}, nullptr);
  CHECK(old.is_broken);
  CHECK(old.none_reason == "the NVIDIA driver is one for CUDA 12.4, older than the CUDA 13.0 of this program");
  const GpuSurvey no_driver = explain({Kind::kDriverTooOld, "", 0, 13000}, nullptr);
  CHECK_FALSE(no_driver.is_broken);
  CHECK(no_driver.none_reason == "no NVIDIA driver is installed");
  CHECK(explain({Kind::kNoDevice, "", 13000, 13000}, nullptr).none_reason == "the NVIDIA driver finds no GPU");
  CHECK(contains(explain({Kind::kNoDevice, "", 13000, 13000}, "7").none_reason, "(CUDA_VISIBLE_DEVICES is '7')"));
  CHECK(explain({Kind::kOther, "system not yet initialized", 13000, 13000}, nullptr).is_broken);
  // Where there is a driver that does not fit, not even auto goes to the CPU.
  const Ranks ranks = {{"n0", 0, 0, sees({"a"})}, {"n1", 1, 0, old}};
  const Error refused = refusal(kAuto, 1, ranks);
  CHECK(
      refused.message() ==
      "--device auto: the GPUs of n1 cannot be used: the NVIDIA driver is one for CUDA 12.4, older than the CUDA 13.0 "
      "of this program");
}

TEST_CASE("device: bf16 and TF32 begin with compute capability 8.0") {
  const Gpu v100{"Tesla V100-SXM2-32GB", "GPU-a", 7, 0};
  const Gpu h200{"NVIDIA H200", "GPU-b", 9, 0};
  const auto message = [](Precision precision, const Gpu* gpu) {
    const auto problem = precision_problem(precision, gpu);
    return problem ? problem->message() : "";
  };
  CHECK(message(Precision::kBf16, &v100) ==
        "--precision bf16: Tesla V100-SXM2-32GB has compute capability 7.0, and bf16 begins with 8.0");
  CHECK(contains(message(Precision::kTf32, &v100), "tf32 begins with 8.0"));
  for (const Precision fine : {Precision::kFp64, Precision::kFp32, Precision::kFp16}) {
    CHECK(message(fine, &v100).empty());
    CHECK(message(fine, nullptr).empty());
  }
  CHECK(message(Precision::kBf16, nullptr).empty());
  CHECK(message(Precision::kTf32, nullptr).empty());
  CHECK(message(Precision::kBf16, &h200).empty());
  CHECK(message(Precision::kTf32, &h200).empty());
}

TEST_CASE("device: what makes NCCL take ranks that share a GPU") {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  CHECK(nccl_sharing_variables("2.28.9", 5) == Variables{{"NCCL_HOSTID", "rank5"}});
  const Variables of_one_host = {
      {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}, {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_MAX_CTAS", "4"}};
  CHECK(nccl_sharing_variables("2.30.1", 5) == of_one_host);
  CHECK(nccl_sharing_variables("3.0.0", 0) == of_one_host);
}

TEST_CASE("device: batches are page-locked where a GPU takes them") {
  const c10::Device cpu(c10::kCPU);
  const c10::Device gpu(c10::kCUDA, 0);
  CHECK((batch_memory(PinMemory::kAuto, cpu) == HostMemory::kPageable));
  CHECK((batch_memory(PinMemory::kOff, cpu) == HostMemory::kPageable));
  CHECK((batch_memory(PinMemory::kAuto, gpu) == HostMemory::kPinned));
  CHECK((batch_memory(PinMemory::kOn, gpu) == HostMemory::kPinned));
  CHECK((batch_memory(PinMemory::kOff, gpu) == HostMemory::kPageable));
}

TEST_CASE("device: ranks that see one GPU each are warned of what binding may cost") {
  CHECK(binding_warning(one_node({kFour, kFour, kFour, kFour})).empty());
  CHECK(binding_warning(one_node({{"a"}})).empty());
  CHECK(binding_warning(one_node({{"a"}, {"a"}})).empty());  // they share it
  CHECK(binding_warning(one_node({{}, {}})).empty());
  Ranks two_nodes = one_node({{"a"}});
  add_node(two_nodes, {{"b"}, {"c"}});
  CHECK(contains(binding_warning(two_nodes), "the ranks of n1 see one GPU each"));
  CHECK(contains(binding_warning(two_nodes), "srun --gpus-per-node=2 --gpu-bind=none"));
  // Where the driver knows more than they see, also one that is alone on its node, and those that share theirs. A job of
  // one rank has nobody to reach.
  const auto with_on_node = [](Ranks ranks, int count) {
    for (RankGpus& rank : ranks)
      rank.survey.num_on_node = count;
    return ranks;
  };
  CHECK(binding_warning(with_on_node(one_node({{"a"}}), 1)).empty());
  CHECK(binding_warning(with_on_node(one_node({{"a"}}), 4)).empty());
  Ranks two_alone = one_node({{"a"}});
  add_node(two_alone, {{"b"}});
  const std::string alone = binding_warning(with_on_node(two_alone, 4));
  CHECK(contains(alone, "the rank of n0 sees one GPU of 4: "));
  CHECK(contains(alone, "srun --gpus-per-node=4 --gpu-bind=none"));
  CHECK(
      contains(binding_warning(with_on_node(one_node({{"a"}, {"a"}}), 4)), "the ranks of n0 see one GPU each of 4: "));
}

TEST_CASE("device: a tensor is converted on its way") {
  const at::Tensor x = at::full({3}, 1.5, at::kFloat);
  CHECK(at::equal(data::to_device(x, c10::kCPU, at::kDouble), at::full({3}, 1.5, at::kDouble)));
  CHECK(data::to_device(x, c10::kCPU, at::kFloat).is_same(x));
}

TEST_CASE("device: the first operations of a group are as large as a bucket, but small where ranks share a GPU") {
  ParallelConfig parallel;
  parallel.timeout = 7.0;
  CHECK(transport_options(parallel).connection_seconds == 7.0);
  CHECK(transport_options(parallel).warm_up_bytes == int64_t{25} << 20);
  parallel.bucket_mb = 0.5;
  CHECK(transport_options(parallel).warm_up_bytes == int64_t{1} << 19);
  parallel.bucket_mb = 1e30;
  CHECK(transport_options(parallel).warm_up_bytes == int64_t{64} << 20);
  parallel.ranks_per_gpu = 2;
  CHECK(transport_options(parallel).warm_up_bytes == 0);
  CHECK(transport_options(parallel).most_blocks == 0);
  parallel.dp_max_ctas = 8;
  CHECK(transport_options(parallel).most_blocks == 8);
}

TEST_CASE("device: data are read as far ahead as the device wants them, or as was asked for") {
  const auto ahead = [](int threads, int batches, c10::Device device, int num_threads) {
    DataConfig data;
    data.io_threads = threads;
    data.prefetch_depth = batches;
    const ReadAhead result = read_ahead(data, device, num_threads);
    return std::pair(result.threads, result.batches);
  };
  constexpr int kAutoThreads = -1, kAutoBatches = 0;
  const c10::Device cpu = c10::kCPU, gpu(c10::kCUDA, 0);
  CHECK(ahead(kAutoThreads, kAutoBatches, cpu, 64) == std::pair(2, 2));
  CHECK(ahead(kAutoThreads, kAutoBatches, gpu, 1) == std::pair(2, 2));
  CHECK(ahead(kAutoThreads, kAutoBatches, gpu, 12) == std::pair(6, 6));
  CHECK(ahead(kAutoThreads, kAutoBatches, gpu, 64) == std::pair(8, 8));
  CHECK(ahead(kAutoThreads, 3, gpu, 64) == std::pair(8, 3));
  CHECK(ahead(5, kAutoBatches, cpu, 1) == std::pair(5, 5));
  CHECK(ahead(0, kAutoBatches, gpu, 64) == std::pair(0, 2));
}
