// Autotuning: which problems and sizes are measured, the choice of the host's kernel, and records.
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "model/vit_costs.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/small_product.h"
#include "src/machine/autotune.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using vit_hybrid::testing::contains;
using Sizes = std::vector<int64_t>;
using kernels::KernelChoice;
using train::SavedKernels;
using namespace vit_hybrid::testing;
using kernels::DeviceTraits;
using kernels::HostLayer;
using kernels::ProductKernel;
using kernels::SumOrder;

namespace {

data::EpochPlan plan_of(int64_t samples, int64_t batch) {
  return data::EpochPlan({samples, batch, data::SampleOrder::kInOrder, data::LastBatch::kKeep, 1}, 0);
}

}  // namespace

TEST_CASE("run kernels: the sizes of all micro-batches of an epoch, walked step by step") {
  for (const int64_t samples : {1, 7, 64, 100, 131}) {
    for (const int64_t batch : {1, 12, 64}) {
      for (const int64_t replicas : {1, 3, 8}) {
        for (const int64_t micro_batch : {1, 3, 16}) {
          const data::EpochPlan plan = plan_of(samples, batch);
          Sizes wanted;
          for (int64_t step = 0; step < plan.num_steps(); ++step) {
            for (int64_t replica = 0; replica < replicas; ++replica) {
              for (const auto& part : data::micro_batches(plan.replica_batch(step, replica, replicas), micro_batch)) {
                wanted.push_back(static_cast<int64_t>(part.size()));
              }
            }
          }
          std::sort(wanted.begin(), wanted.end());
          wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
          CHECK((train::micro_batch_sizes(plan, replicas, micro_batch) == wanted));
          std::set<int64_t> halves;
          for (const int64_t size : wanted) {
            halves.insert({std::max<int64_t>(size / 2, 1), (size + 1) / 2});
          }
          CHECK((train::micro_batch_sizes(plan, replicas, micro_batch, 2) == Sizes(halves.begin(), halves.end())));
        }
      }
    }
  }
}

TEST_CASE("run kernels: nothing is left of an epoch") {
  const data::EpochPlan rest({10, 4, data::SampleOrder::kInOrder, data::LastBatch::kKeep, 1}, 0, 10);
  CHECK(train::micro_batch_sizes(rest, 2, 4).empty());
}

TEST_CASE("run kernels: options of a configuration") {
  train::RunConfig config;
  CHECK((train::kernel_options(config).fp32 == kernels::Fp32Products::kExact));
  CHECK((train::kernel_options(config).order == kernels::SumOrder::kAny));
  config.precision.kind = train::Precision::kTf32;
  config.deterministic = true;
  CHECK((train::kernel_options(config).fp32 == kernels::Fp32Products::kTf32));
  CHECK((train::kernel_options(config).order == kernels::SumOrder::kFixed));
}

TEST_CASE("run kernels: TF32 that the environment forces or forbids") {
  using train::Precision;
  for (const auto precision : {Precision::kFp32, Precision::kFp64, Precision::kBf16, Precision::kFp16}) {
    for (const char* const value : {static_cast<const char*>(nullptr), "", "0"}) {
      CHECK(train::tf32_warning(precision, value).empty());
    }
    CHECK(thrown_error([&] { train::tf32_warning(precision, "1"); }).error_class() == ErrorClass::kUsage);
  }
  CHECK(
      thrown_error([] { train::tf32_warning(Precision::kFp32, "1"); }).message() ==
      "--precision fp32 is to have no TF32, but NVIDIA_TF32_OVERRIDE is '1', and NVIDIA's libraries obey that instead "
      "of this program");
  for (const char* const value : {static_cast<const char*>(nullptr), "", "1"}) {
    CHECK(train::tf32_warning(Precision::kTf32, value).empty());
  }
  CHECK(contains(train::tf32_warning(Precision::kTf32, "0"), "NVIDIA_TF32_OVERRIDE is 0"));
}

TEST_CASE("run kernels: the host's kernel is chosen by the largest layer of a block") {
  using kernels::HostLayer;
  using Passes = HostLayer::Passes;
  train::RunConfig config;
  config.model.image_height = config.model.image_width = 32;
  config.model.patch_height = config.model.patch_width = 4;
  config.model.in_channels = config.model.out_channels = 100;  // larger layers, but one each
  config.model.embed_dim = 96;
  config.model.num_heads = 4;
  config.model.mlp_hidden = 384;
  config.global_batch_size = 12;
  config.parallel.dp = 2;
  config.parallel.micro_batch_size = 2;
  const int64_t tokens = config.model.num_tokens();
  const auto layer = [&] { return train::largest_layer(config, Passes::kForwardAndBackward); };
  CHECK((layer() == HostLayer{2 * tokens, 384, 96, 6 * tokens, Passes::kForwardAndBackward}));
  config.parallel.tp = 2;  // fc1's share is larger than that of qkv, 144
  CHECK((layer() == HostLayer{2 * tokens, 192, 96, 6 * tokens, Passes::kForwardAndBackward}));
  config.parallel.micro_batch_size = 16;  // more than a replica has
  CHECK((layer() == HostLayer{6 * tokens, 192, 96, 6 * tokens, Passes::kForwardAndBackward}));
  CHECK((train::largest_layer(config, Passes::kForward) == HostLayer{6 * tokens, 192, 96, 0, Passes::kForward}));
}

TEST_CASE("run kernels: records show names instead of a library's bytes") {
  CHECK(train::saved_kernels().empty());
  CHECK(train::kernel_choices_json().is_null());
  kernels::kernel_table() = {"GPU", {}};
  kernels::kernel_table().choices["forward R1 M2 K3"] = {"00ff", "tile 24", 2.5, 2.0};
  kernels::kernel_table().choices["attention B1"] = {"flash", "", 1.0, 1.0};
  CHECK(kernels::KernelTable::parse(train::saved_kernels()) == kernels::kernel_table());
  const auto json = train::kernel_choices_json();
  CHECK(json["measured_on"] == "GPU");
  CHECK(json["choices"]["forward R1 M2 K3"]["kernel"] == "cuBLASLt");
  CHECK(json["choices"]["forward R1 M2 K3"]["us"] == 2.5);
  CHECK(json["choices"]["forward R1 M2 K3"]["fastest_us"] == 2.0);
  CHECK(json["choices"]["attention B1"]["kernel"] == "flash");
  kernels::kernel_table() = {};
}

namespace {

constexpr auto kBlocked = ProductKernel::kBlocked;
constexpr auto kLibrary = ProductKernel::kLibrary;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const std::string kMaker = kernels::processor_maker_text();

kernels::KernelChoice choice(ProductKernel usual, double blocked, double library) {
  return kernels::choose_host_kernel(usual, blocked, library);
}

std::string chosen(ProductKernel usual, double blocked, double library) {
  return choice(usual, blocked, library).kernel;
}

// The kernel of the process as it was, at the end of a test that sets another one.
class KeptKernel {
 public:
  ~KeptKernel() { kernels::set_host_kernel(before_); }

 private:
  kernels::HostKernel before_ = kernels::host_kernel();
};

}  // namespace

TEST_CASE("host kernel: the usual one gives way to one that is clearly faster, and to no other") {
  CHECK(chosen(kBlocked, 100.0, 210.0) == "blocked");
  CHECK(chosen(kBlocked, 100.0, 99.0) == "blocked");
  CHECK(chosen(kBlocked, 109.0, 100.0) == "blocked");
  CHECK(chosen(kBlocked, 111.0, 100.0) == "library");
  CHECK(chosen(kLibrary, 210.0, 100.0) == "library");
  CHECK(chosen(kLibrary, 100.0, 109.0) == "library");
  CHECK(chosen(kLibrary, 100.0, 111.0) == "blocked");
}

TEST_CASE("host kernel: what is no time decides nothing, and is not kept") {
  for (const double no_time : {kNan, kInf, -kInf, 0.0, -1.0}) {
    for (const auto usual : {kBlocked, kLibrary}) {
      for (const auto& choice : {choice(usual, no_time, 100.0), choice(usual, 100.0, no_time)}) {
        CHECK(choice.kernel == kernels::host_kernel_name(usual));
        CHECK(choice.microseconds == 0.0);
        CHECK(choice.fastest == 0.0);
        CHECK(choice.text == kMaker + "; not measured: the times that were measured say nothing");
      }
    }
  }
}

TEST_CASE("host kernel: the choice says by how much, and holds its time and the least") {
  const std::string library = kernels::library_name();
  CHECK(choice(kBlocked, 100.0, 214.6) ==
        kernels::KernelChoice{"blocked", "measured: 2.15 times as fast as " + library, 100.0, 100.0});
  CHECK(choice(kBlocked, 130.0, 100.0) ==
        kernels::KernelChoice{"library", "measured: 1.30 times as fast as own blocks", 100.0, 100.0});
  CHECK(choice(kBlocked, 105.0, 100.0) ==
        kernels::KernelChoice{
            "blocked", kMaker + "; measured: " + library + " is 1.05 times as fast, and is taken from 1.1 times on",
            105.0, 100.0});
  CHECK(choice(kLibrary, 100.0, 104.0).text ==
        kMaker + "; measured: own blocks are 1.04 times as fast, and are taken from 1.1 times on");
  CHECK(kernels::unmeasured_host_kernel(kLibrary, "why") ==
        kernels::KernelChoice{"library", kMaker + "; not measured: why", 0.0, 0.0});
}

TEST_CASE("host kernel: names") {
  for (const auto kernel : {kLibrary, kBlocked}) {
    CHECK(kernels::host_kernel_named(kernels::host_kernel_name(kernel)) == kernel);
  }
  CHECK_FALSE(kernels::host_kernel_named("").has_value());
  CHECK_FALSE(kernels::host_kernel_named("converted").has_value());
}

TEST_CASE("host kernel: of a layer so much is measured that it takes each thread some milliseconds") {
  const auto flops = [](const HostLayer& layer) {
    return 2.0 * static_cast<double>(layer.rows * layer.outputs * layer.inputs);
  };
  const HostLayer small{100, 64, 32, 400};
  CHECK((kernels::measured_part(small, 1) == small));
  const HostLayer huge{4050, 5120, 1280, 8100};
  for (const int threads : {1, 2, 16}) {
    const HostLayer part = kernels::measured_part(huge, threads);
    CHECK(part.rows == std::min<int64_t>(4050, 256 * threads));
    CHECK(part.inputs == 1280);
    CHECK(part.outputs % 64 == 0);
    CHECK(flops(part) <= 3e8 * threads);
    CHECK(flops(part) > 2e8 * threads);
    CHECK(part.rows_per_packing == 8100);
  }
  CHECK((kernels::measured_part(huge, 1000) == huge));
  CHECK(kernels::measured_part({4050, 100000, 1000000, 0}, 1).outputs == 64);
  CHECK(kernels::measured_part({4050, 10, 1000000, 0}, 1).outputs == 10);
}

TEST_CASE("host kernel: it computes what is large and fp32, or is converted to that") {
  const KeptKernel kept;
  const at::Tensor large = at::zeros({1024, 64}, at::kFloat);
  CHECK(kernels::is_large_product(1024, 1024, 1));
  CHECK_FALSE(kernels::is_large_product(1024, 1023, 1));
  for (const auto kernel : {kLibrary, kBlocked}) {
    if (kernel == kBlocked && !kernels::has_block_kernel()) {
      MESSAGE("skipped: no block kernel of oneDNN's here");
      continue;
    }
    kernels::set_host_kernel({kernel, "because of this"});
    CHECK(kernels::choose_product_kernel(large, 1024) == kernel);
    CHECK(kernels::choose_product_kernel(large.narrow(0, 0, 8), 1024) == kLibrary);
    CHECK(kernels::choose_product_kernel(large.to(at::kHalf), 1024) == ProductKernel::kConverted);
    CHECK(kernels::choose_product_kernel(large.to(at::kDouble), 1024) == kLibrary);
    for (const auto type : {at::kFloat, at::kHalf}) {
      const std::string text = kernels::product_kernel_text(at::kCPU, type, kernels::GeluKind::kErf);
      CHECK_MESSAGE(contains(text, "(because of this"), text);
      CHECK_MESSAGE(contains(text, "own blocks around oneDNN's fp32") == (kernel == kBlocked), text);
    }
    CHECK_FALSE(
        contains(kernels::product_kernel_text(at::kCPU, at::kDouble, kernels::GeluKind::kErf), "because of this"));
  }
  CHECK(kernels::multiplies_in_fp32(at::kFloat));
  CHECK(kernels::multiplies_in_fp32(at::kHalf));
  CHECK(kernels::multiplies_in_fp32(at::kBFloat16) == !kernels::has_bf16_block_kernel());
  CHECK_FALSE(kernels::multiplies_in_fp32(at::kDouble));
}

TEST_CASE("host kernel: where the model's products are too small for it, the library is said first") {
  const KeptKernel kept;
  kernels::set_host_kernel({kLibrary, "small", true});
  const std::string of_library = kernels::product_kernel_text(at::kCPU, at::kFloat, kernels::GeluKind::kErf);
  CHECK_MESSAGE(contains(of_library, ": the BLAS of LibTorch"), of_library);
  CHECK_MESSAGE(contains(of_library, "(small)"), of_library);
  if (kernels::has_block_kernel()) {
    kernels::set_host_kernel({kBlocked, "small", true});
    const std::string of_both = kernels::product_kernel_text(at::kCPU, at::kFloat, kernels::GeluKind::kErf);
    CHECK_MESSAGE(contains(of_both, ": the BLAS of LibTorch"), of_both);
    CHECK_MESSAGE(contains(of_both, "(small; larger ones: own blocks around oneDNN's fp32 kernel)"), of_both);
  }
}

TEST_CASE("host kernel: both give the same products but for rounding, and one from a packed weight") {
  if (!kernels::has_block_kernel()) {
    MESSAGE("skipped: no block kernel of oneDNN's here");
    return;
  }
  const KeptKernel kept;
  const at::Tensor x = normal_tensor({301, 200}, 1).to(at::kFloat), dy = normal_tensor({301, 150}, 2).to(at::kFloat);
  const at::Tensor matrix = normal_tensor({150, 200}, 3).to(at::kFloat);
  const double bound = 1.2e-7 * std::sqrt(301.0);
  for (const auto kernel : {kLibrary, kBlocked}) {
    kernels::set_host_kernel({kernel, {}});
    const at::Tensor values = matrix.clone();
    kernels::PackedWeight weight(values);
    const at::Tensor forward = kernels::linear_forward(x, weight, 1, {});
    const at::Tensor gradient = at::zeros({150, 200}, at::kFloat);
    kernels::add_weight_gradient(gradient, dy, x, {});
    const at::Tensor wide = matrix.to(at::kDouble);
    CHECK(relative_error(forward, at::mm(x.to(at::kDouble), wide.t())) <= bound);
    CHECK(relative_error(kernels::linear_backward_input(dy, weight, 1), at::mm(dy.to(at::kDouble), wide)) <= bound);
    CHECK(relative_error(gradient, at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble))) <= bound);
    // Both may round alike (as MKL does on some processors), so what tells them apart is what they read: new values of
    // the same version are not seen by blocks, which multiply by the copy that they packed.
    values.zero_();
    CHECK(kernels::linear_forward(x, weight, 1, {}).equal(forward) == (kernel == kBlocked));
  }
}

TEST_CASE("host kernel: the timer measures each kernel, and leaves that of the process as it was") {
  const KeptKernel kept;
  kernels::set_host_kernel({kLibrary, "as before"});
  const auto microseconds = kernels::host_kernel_timer({256, 96, 64, 256});
  CHECK(microseconds(kLibrary) > 0.0);
  CHECK((kernels::host_kernel() == kernels::HostKernel{kLibrary, "as before"}));
  if (kernels::has_block_kernel()) {
    CHECK(microseconds(kBlocked) > 0.0);
    CHECK((kernels::host_kernel() == kernels::HostKernel{kLibrary, "as before"}));
  }
}

TEST_CASE("host kernel: packing counts by the rows that share it, and an evaluation has no backward") {
  if (!kernels::has_block_kernel()) {
    MESSAGE("skipped: no block kernel of oneDNN's here");
    return;
  }
  const auto plain = kernels::host_kernel_timer({256, 512, 512, 0});
  const auto packing =
      kernels::host_kernel_timer({256, 512, 512, 1});  // as much as 256 rows would share with no others
  const auto forward = kernels::host_kernel_timer({256, 512, 512, 0, HostLayer::Passes::kForward});
  // The least of many rounds in turns: whatever else runs on the machine, it leaves some of them alone.
  double without = kInf, with = kInf, of_forward = kInf;
  const auto is_told = [&] { return with > 3.0 * without && of_forward < 0.7 * without; };
  for (int round = 0; round < 5 || (round < 200 && !is_told()); ++round) {
    without = std::min(without, plain(kBlocked));
    with = std::min(with, packing(kBlocked));
    of_forward = std::min(of_forward, forward(kBlocked));
  }
  CHECK(with > 3.0 * without);
  CHECK(of_forward < 0.7 * without);
}

namespace {

double flops(const train::DeviceProblems& problems) {
  double sum = 0.0;
  for (const auto& product : problems.products) {
    sum += product.flops();
  }
  for (const auto& attention : problems.attentions) {
    sum += attention.flops();
  }
  return sum;
}

DeviceTraits gpu(int capability, int64_t cudnn = 91600) {
  DeviceTraits traits;
  traits.name = "GPU";
  traits.capability = capability;
  traits.cudnn_version = cudnn;
  return traits;
}

// The names of the kernels, the likely fastest first.
std::string taken(at::ScalarType type, int64_t head_dim, const DeviceTraits& traits, SumOrder order = SumOrder::kAny,
                  int64_t tokens = 197) {
  std::vector<std::string> names;
  for (const auto kernel : kernels::device_attentions({64, tokens, 12, head_dim, type}, traits, order)) {
    names.push_back(kernels::device_attention_name(kernel));
  }
  return join(names);
}

}  // namespace

TEST_CASE("device problems: their arithmetic is that of a training step, in every tensor degree") {
  for (const auto& options : {model::preset("vit-b16"), small_forecaster(), small_classifier(model::Pooling::kMean)}) {
    const Range units{0, options.num_units()};
    for (const int tensor_size : {1, 3, 8}) {
      double split = 0.0, replicated = 0.0;
      for (int rank = 0; rank < tensor_size; ++rank) {
        split += flops(train::device_problems(options, {1, options.depth + 1}, rank, tensor_size, 5, {}));
        replicated = flops(train::device_problems(options, {0, 1}, rank, tensor_size, 5, {})) +
                     flops(train::device_problems(options, {options.depth + 1, units.end}, rank, tensor_size, 5, {}));
      }
      CHECK(split + replicated == doctest::Approx(5.0 * model::train_flops_per_sample(options)).epsilon(1e-12));
    }
  }
}

TEST_CASE("device problems: saved choices are taken over with those of the products alone that they are made of") {
  auto options = model::preset("vit-b16");
  options.gelu = kernels::GeluKind::kTanh;
  const auto problems = train::device_problems_of_mesh(options, 1, {2}, {at::kHalf, at::kFloat});
  kernels::KernelTable saved{"here", {}};
  for (const auto& problem : problems.products) {
    const auto part = problem.without_extra();  // of GELU and a bias the bias, of which the product alone is a part
    for (const auto& plain : {part, part.without_extra()}) {
      saved.choices[plain.name()] = {"00ff", "tile 128x256", 1.0, 1.0};
    }
  }
  for (const auto& problem : problems.products) {
    saved.choices[problem.name()] = {"apart", "two kernels", 2.0, 2.0};
  }
  REQUIRE(saved.choices.size() > problems.products.size());
  kernels::KernelTable resumed{"here", {}};
  CHECK(resumed.adopt(saved, problems.names_with_parts()));
  CHECK((resumed == saved));
}

TEST_CASE("device problems: gradients have their own type, tf32 is named, nothing is empty") {
  const auto options = model::preset("vit-b16");
  const train::ProductTypes half{at::kBFloat16, at::kFloat, kernels::Fp32Products::kTf32};
  const auto problems = train::device_problems(options, {0, options.num_units()}, 0, 1, 2, half);
  for (const auto& problem : problems.products) {
    const bool is_gradient = problem.kind == kernels::ProductKind::kWeightGradient;
    CHECK(kernels::short_name(problem.result) == (is_gradient ? "fp32" : "bf16"));
    CHECK((problem.fp32 == kernels::Fp32Products::kExact));  // there is no fp32 product in it
    CHECK(problem.flops() > 0.0);
  }
  const auto fused_in = [&](Range units, int tensor_size, at::ScalarType gradient, kernels::ProductExtra extra) {
    const auto list = train::device_problems(options, units, 0, tensor_size, 2, {at::kHalf, gradient}).products;
    return std::count_if(list.begin(), list.end(), [&](const auto& problem) { return problem.extra == extra; });
  };
  const auto fused = [&](int tensor_size, at::ScalarType gradient, kernels::ProductExtra extra) {
    return fused_in({1, 2}, tensor_size, gradient, extra);
  };
  constexpr auto kBias = kernels::ProductExtra::kBias, kBiasGradient = kernels::ProductExtra::kBiasGradient;
  CHECK(fused(1, at::kFloat, kBias) == 4);
  CHECK(fused(2, at::kFloat, kBias) == 2);  // proj and fc2 add theirs after the sum over the ranks
  // Of qkv: that of fc1 comes with GELU's, those of proj and fc2 with the norm's behind them.
  CHECK(fused(1, at::kFloat, kBiasGradient) == 1);
  CHECK(fused(2, at::kFloat, kBiasGradient) == 1);
  CHECK(fused(1, at::kHalf, kBiasGradient) == 0);  // it would be rounded twice
  // Several ranks hold patch projection and head whole, and must come to the same bits.
  for (const Range unit : {Range{0, 1}, Range{options.depth + 1, options.num_units()}}) {
    for (const int tensor_size : {1, 2}) {
      CHECK(fused_in(unit, tensor_size, at::kFloat, kBias) == 1);
      CHECK(fused_in(unit, tensor_size, at::kFloat, kBiasGradient) == (tensor_size == 1 ? 1 : 0));
    }
  }
  const auto tf32 = train::device_problems(options, {1, 2}, 0, 1, 2, {at::kFloat, at::kFloat, half.fp32});
  CHECK(tf32.products.front().name() == "forward+bias R394 M2304 K768 tf32>fp32 16B");
  auto with_tanh = options;
  with_tanh.gelu = kernels::GeluKind::kTanh;
  const auto names = [&](const train::ProductTypes& types) {
    std::string text;
    for (const auto& problem : train::device_problems(with_tanh, {1, 2}, 0, 1, 2, types).products) {
      text += problem.has_gelu() ? problem.name() + "; " : "";
    }
    return text;
  };
  CHECK(names(half) ==
        "forward+bias+gelu R394 M3072 K768 bf16>bf16 16B; "
        "backward-input+gelu-gradient R394 M768 K3072 bf16>bf16 16B; ");
  CHECK(names({at::kFloat, at::kFloat, kernels::Fp32Products::kExact}).empty());
  CHECK(names({at::kFloat, at::kFloat, kernels::Fp32Products::kTf32}).find("tf32>fp32") != std::string::npos);
  // Dropout stands between the two, so that the gradient of fc1's bias comes with GELU's backward again.
  with_tanh.dropout = 0.1;
  CHECK(names(half) == "forward+bias+gelu R394 M3072 K768 bf16>bf16 16B; ");
  const auto nothing = train::device_problems(options, {0, options.num_units()}, 0, 1, 0, {});
  CHECK(nothing.products.empty());
}

TEST_CASE("device problems: a mesh has those of all its ranks, each once") {
  auto options = small_forecaster();  // 8 heads and 50 hidden features: three ranks have parts of two sizes
  const auto mesh = train::device_problems_of_mesh(options, 3, {4, 1}, {});
  const auto names = mesh.names();
  for (int rank = 0; rank < 3; ++rank) {
    for (const int64_t samples : {4, 1}) {
      for (const auto& name : train::device_problems(options, {0, options.num_units()}, rank, 3, samples, {}).names()) {
        CHECK(std::count(names.begin(), names.end(), name) == 1);
      }
    }
  }
  options.attention_dropout = 0.1;
  CHECK(train::device_problems_of_mesh(options, 3, {4}, {}).attentions.empty());
}

TEST_CASE("device attention: each kernel is asked only for what it takes") {
  CHECK(taken(at::kBFloat16, 64, gpu(90)) == "short, cudnn, flash, efficient");
  CHECK(taken(at::kHalf, 64, gpu(80)) == "short, flash, cudnn, efficient");
  CHECK(taken(at::kBFloat16, 80, gpu(90)) == "short, cudnn, flash, efficient");
  CHECK(taken(at::kBFloat16, 48, gpu(100)) == "cudnn, flash, efficient");
  CHECK(taken(at::kBFloat16, 160, gpu(90)) == "flash, efficient");  // more than cuDNN's 128
  CHECK(taken(at::kBFloat16, 256, gpu(80)) == "flash, efficient");
  CHECK(taken(at::kBFloat16, 256, gpu(89)) == "efficient");  // its shared memory is too small
  CHECK(taken(at::kBFloat16, 264, gpu(90)) == "efficient");
  CHECK(taken(at::kBFloat16, 20, gpu(90)) == "composite");  // no multiple of 8
  CHECK(taken(at::kFloat, 20, gpu(90)) == "efficient");
  CHECK(taken(at::kFloat, 18, gpu(90)) == "composite");
  CHECK(taken(at::kDouble, 64, gpu(90)) == "composite");
}

TEST_CASE("device attention: V100 has fp16 and fp32 without bf16") {
  CHECK(taken(at::kHalf, 64, gpu(70)) == "efficient");
  CHECK(taken(at::kHalf, 20, gpu(70)) == "composite");
  CHECK(taken(at::kFloat, 18, gpu(70)) == "efficient");
  CHECK(taken(at::kBFloat16, 64, gpu(70)) == "composite");
}

TEST_CASE("device attention: cuDNN where its backward is right") {
  const std::string without = "short, flash, efficient", with = "short, cudnn, flash, efficient";
  CHECK(taken(at::kHalf, 64, gpu(90, 0)) == without);
  CHECK(taken(at::kHalf, 64, gpu(90, 90501)) == without);
  CHECK(taken(at::kHalf, 64, gpu(90, 90501), SumOrder::kAny, 256) == with);  // a multiple of 128
  CHECK(taken(at::kHalf, 64, gpu(90, 91500)) == without);
  CHECK(taken(at::kHalf, 64, gpu(90, 91501)) == with);
  CHECK(taken(at::kHalf, 64, gpu(90), SumOrder::kAny, 1) == without);
}

TEST_CASE("device attention: with sums in a fixed order there is no cuDNN") {
  CHECK(taken(at::kBFloat16, 64, gpu(90), SumOrder::kFixed) == "short, flash, efficient");
  CHECK(taken(at::kBFloat16, 64, gpu(90), SumOrder::kFixed, 256) == "short, flash, efficient");
}

TEST_CASE("device attention: tokens are padded to 16 where all chosen kernels are our own, else to 64") {
  kernels::KernelTable& table = kernels::kernel_table();
  const kernels::KernelTable before = table;
  CHECK(kernels::device_attention_tile(at::kHalf) == 64);
  table.choices["attention B64 N197 h12 d64 fp16"] = {"short", "", 1.0, 1.0};
  table.choices["attention B64 N197 h12 d64 bf16"] = {"cudnn", "", 1.0, 1.0};
  CHECK(kernels::device_attention_tile(at::kHalf) == 16);
  CHECK(kernels::device_attention_tile(at::kBFloat16) == 64);
  table.choices["attention B64 N1025 h12 d64 fp16"] = {"flash", "", 1.0, 1.0};
  CHECK(kernels::device_attention_tile(at::kHalf) == 64);
  table = before;
}

TEST_CASE("device attention: the short kernel where a block's shared memory holds the keys and values of a head") {
  // 227, 163 and 99 KiB; a token takes 2 x 128 bytes and two numbers (head_dim 80: 2 x 176), in tiles of 16, and each
  // of four warps a tile of 16 rows.
  struct Limit {
    int capability;
    int64_t head_dim, tokens;
  };
  for (const auto& [capability, head_dim, tokens] : {Limit{90, 64, 848}, Limit{100, 64, 848}, Limit{90, 80, 608},
                                                     Limit{80, 64, 592}, Limit{86, 64, 352}, Limit{89, 80, 240}}) {
    CAPTURE(capability);
    CAPTURE(head_dim);
    const auto begin = [&](int64_t count) {
      return taken(at::kHalf, head_dim, gpu(capability), SumOrder::kAny, count).substr(0, 5);
    };
    CHECK(begin(tokens) == "short");
    CHECK(begin(tokens + 1) != "short");
  }
}

TEST_CASE("device attention: numbers of samples that nobody measured take the kernel of the nearest that was") {
  kernels::KernelTable table{"GPU", {}};
  const auto kernel = [&](int64_t samples, int64_t tokens = 197) {
    const auto found = kernels::find_attention(table, {samples, tokens, 12, 64, at::kHalf});
    return found ? kernels::device_attention_name(*found) : std::string("none");
  };
  CHECK(kernel(64) == "none");
  const auto choose = [&](const kernels::AttentionProblem& problem, const std::string& name) {
    table.choices[problem.name()] = {name, "", 1.0, 1.0};
  };
  choose({64, 197, 12, 64, at::kHalf}, "flash");
  choose({1024, 197, 12, 64, at::kHalf}, "efficient");
  CHECK(kernel(64) == "flash");
  CHECK(kernel(1) == "flash");
  CHECK(kernel(543) == "flash");
  CHECK(kernel(544) == "efficient");  // as far from both
  CHECK(kernel(100000) == "efficient");
  choose({2, 197, 12, 64, at::kHalf}, "cudnn");
  CHECK(kernel(2) == "cudnn");
  CHECK(kernel(3) == "cudnn");
  // All else is another problem.
  choose({7, 197, 1, 64, at::kHalf}, "composite");
  choose({7, 197, 12, 32, at::kHalf}, "composite");
  choose({7, 197, 12, 64, at::kBFloat16}, "composite");
  choose({7, 7, 12, 64, at::kHalf}, "composite");
  table.choices["attention Bx N197 h12 d64 fp16"] = {"composite", "", 1.0, 1.0};
  CHECK(kernel(7) == "cudnn");
  CHECK(kernel(7, 97) == "none");
  CHECK(kernel(7, 7) == "composite");
}
