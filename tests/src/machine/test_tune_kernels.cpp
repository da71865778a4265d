// What kernels on GPUs are measured for, against the counted arithmetic of the model; which attention kernel takes
// what.
#include "src/machine/autotune.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/kernels/attention/device_attention.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::DeviceTraits;
using kernels::SumOrder;

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
  const auto options = model::preset("vit-b16");
  const auto problems = train::device_problems_of_mesh(options, 1, {2}, {at::kHalf, at::kFloat});
  kernels::KernelTable saved{"here", {}};
  for (const auto& problem : problems.products) {
    saved.choices[problem.name()] = {"apart", "two kernels", 2.0, 2.0};
    saved.choices[problem.without_extra().name()] = {"00ff", "tile 128x256", 1.0, 1.0};
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
  const auto fused = [&](int tensor_size, at::ScalarType gradient, kernels::ProductExtra extra) {
    const auto list = train::device_problems(options, {1, 2}, 0, tensor_size, 2, {at::kHalf, gradient}).products;
    return std::count_if(list.begin(), list.end(), [&](const auto& problem) { return problem.extra == extra; });
  };
  constexpr auto kBias = kernels::ProductExtra::kBias, kBiasGradient = kernels::ProductExtra::kBiasGradient;
  CHECK(fused(1, at::kFloat, kBias) == 4);
  CHECK(fused(2, at::kFloat, kBias) == 2);          // proj and fc2 add theirs after the sum over the ranks
  CHECK(fused(1, at::kFloat, kBiasGradient) == 3);  // that of fc1 comes with GELU's
  CHECK(fused(2, at::kFloat, kBiasGradient) == 1);  // of qkv
  CHECK(fused(1, at::kHalf, kBiasGradient) == 0);   // it would be rounded twice
  const auto tf32 = train::device_problems(options, {1, 2}, 0, 1, 2, {at::kFloat, at::kFloat, half.fp32});
  CHECK(tf32.products.front().name() == "forward+bias R394 M2304 K768 tf32>fp32 16B");
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
  CHECK(taken(at::kBFloat16, 64, gpu(90)) == "cudnn, flash, efficient");
  CHECK(taken(at::kHalf, 64, gpu(80)) == "flash, cudnn, efficient");
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
  const std::string without = "flash, efficient", with = "cudnn, flash, efficient";
  CHECK(taken(at::kHalf, 64, gpu(90, 0)) == without);
  CHECK(taken(at::kHalf, 64, gpu(90, 90501)) == without);
  CHECK(taken(at::kHalf, 64, gpu(90, 90501), SumOrder::kAny, 256) == with);  // a multiple of 128
  CHECK(taken(at::kHalf, 64, gpu(90, 91500)) == without);
  CHECK(taken(at::kHalf, 64, gpu(90, 91501)) == with);
  CHECK(taken(at::kHalf, 64, gpu(90), SumOrder::kAny, 1) == without);
}

TEST_CASE("device attention: with sums in a fixed order there is no cuDNN") {
  CHECK(taken(at::kBFloat16, 64, gpu(90), SumOrder::kFixed) == "flash, efficient");
  CHECK(taken(at::kBFloat16, 64, gpu(90), SumOrder::kFixed, 256) == "flash, efficient");
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
