// LibTorch's attention kernels as we call them on a GPU, against softmax and products in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/base/text.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/cublaslt.h"
#include "src/kernels/gemm/device_products.h"
#include "src/machine/autotune.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/gpu/kernel_scope.h"
#include "tests/support/gpu/own_gpu.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::DeviceAttention;
using kernels::SumOrder;

namespace {

c10::Device gpu() {
  static const c10::Device device = own_gpu();
  return device;
}

struct Values {
  at::Tensor out;
  at::Tensor dqkv;
};

at::Tensor plain_attention(const at::Tensor& qkv, int64_t num_heads) {
  const auto [q, k, v] = kernels::split_heads(qkv, num_heads);
  const at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(3)));
  return kernels::merge_heads(at::matmul(at::softmax(scores, -1), v));
}

template <class Attention>
Values values_of(const at::Tensor& qkv, const at::Tensor& dout, const Attention& attention) {
  const at::Tensor input = qkv.detach().clone().requires_grad_();
  const at::Tensor out = attention(input);
  out.backward(dout);
  return {out.detach(), input.grad()};
}

// Every kernel that takes the problem; returns how many there were.
size_t check_kernels(const kernels::AttentionProblem& problem, SumOrder order, double bound) {
  const auto options = at::TensorOptions(at::kDouble).device(gpu());
  const int64_t dim = problem.heads * problem.head_dim;
  const at::Tensor qkv = at::randn({problem.samples, problem.tokens, 3 * dim}, options).to(problem.type);
  const at::Tensor dout = at::randn({problem.samples, problem.tokens, dim}, options).to(problem.type);
  const Values wanted = values_of(qkv.to(at::kDouble), dout.to(at::kDouble),
                                  [&](const at::Tensor& x) { return plain_attention(x, problem.heads); });
  const auto kernels = kernels::device_attentions(problem, kernels::device_traits(gpu()), order);
  for (const DeviceAttention kernel : kernels) {
    const std::string name = str(problem.name(), " ", kernels::device_attention_name(kernel));
    CAPTURE(name);
    const auto attention = [&](const at::Tensor& x) { return kernels::device_attention(x, problem.heads, kernel); };
    const Values values = values_of(qkv, dout, attention);
    CHECK(relative_error(values.out, wanted.out) <= bound);
    CHECK(relative_error(values.dqkv, wanted.dqkv) <= bound);
    if (kernel != DeviceAttention::kComposite) {
      CHECK(values.dqkv.is_contiguous());
      // The forward of evaluation keeps nothing, and gives the same; cuDNN's is another graph, with bits of its own.
      const at::Tensor alone = attention(qkv);
      CHECK((kernel == DeviceAttention::kCudnn ? relative_error(alone, wanted.out) <= bound : alone.equal(values.out)));
    }
    for (int round = 0; round < 3 && order == SumOrder::kFixed; ++round) {
      CHECK(values_of(qkv, dout, attention).dqkv.equal(values.dqkv));
    }
  }
  return kernels.size();
}

}  // namespace

TEST_SUITE_BEGIN("one rank");

TEST_CASE("gpu attention: every kernel that takes a shape, forward and backward") {
  const KernelScope scope({kernels::Fp32Products::kExact, SumOrder::kAny});
  size_t most = 0;
  for (const int64_t tokens : {197, 256, 15, 1}) {
    for (const int64_t head_dim : {64, 48, 80, 20}) {
      most = std::max(most, check_kernels({2, tokens, 3, head_dim, at::kHalf}, SumOrder::kAny, 2e-3));
      check_kernels({2, tokens, 3, head_dim, at::kFloat}, SumOrder::kAny, 2e-5);
    }
    if (kernels::device_traits(gpu()).capability >= 80) {
      check_kernels({1, tokens, 3, 64, at::kBFloat16}, SumOrder::kAny, 2e-2);
    }
  }
  check_kernels({2, 37, 3, 8, at::kDouble}, SumOrder::kAny, 1e-12);
  CHECK(most >= (kernels::device_traits(gpu()).capability >= 80 ? 2 : 1));
}

TEST_CASE("gpu attention: sums in a fixed order give the same bits each time") {
  const KernelScope scope({kernels::Fp32Products::kExact, SumOrder::kFixed});
  for (const int64_t tokens : {197, 1024}) {
    check_kernels({4, tokens, 6, 64, at::kHalf}, SumOrder::kFixed, 2e-3);
    check_kernels({2, tokens, 3, 64, at::kFloat}, SumOrder::kFixed, 2e-5);
  }
}

TEST_CASE("gpu attention: the measured kernel is the one that runs") {
  const KernelScope scope({kernels::Fp32Products::kExact, SumOrder::kAny});
  const kernels::AttentionProblem problem{2, 197, 3, 64, at::kHalf};
  kernels::measure_attention(problem, gpu());
  const kernels::KernelChoice* choice = kernels::kernel_table().find(problem.name());
  REQUIRE(choice != nullptr);
  CHECK(choice->microseconds > 0.0);
  const at::Tensor qkv = at::randn({2, 197, 3 * 192}, at::TensorOptions(at::kHalf).device(gpu()));
  for (const DeviceAttention kernel :
       kernels::device_attentions(problem, kernels::device_traits(gpu()), SumOrder::kAny)) {
    kernels::kernel_table().choices[problem.name()] = {kernels::device_attention_name(kernel), "", 1.0, 1.0};
    CHECK(kernels::device_attention(qkv, 3).equal(kernels::device_attention(qkv, 3, kernel)));
  }
}

TEST_CASE("gpu kernels: a training computes no product that was not measured before it") {
  const KernelScope scope({kernels::Fp32Products::kExact, SumOrder::kAny});
  const comm::MpiGroup own = comm::MpiGroup::world().split(comm::MpiGroup::world().rank());
  Experiment experiment;
  experiment.options.model = small_forecaster();
  experiment.options.precision = zero::make_precision_policy("fp16");
  experiment.global_batches = {9, 4, 1};
  const auto problems = train::device_problems_of_mesh(experiment.options.model, 1, {3, 2, 1}, {at::kHalf, at::kFloat});
  const auto tune = [&](const std::string& saved, train::SavedKernels use) {
    return train::tune_kernels(problems, saved, use, gpu(), own);
  };
  const std::string first = tune("", train::SavedKernels::kUse);
  const size_t num_choices = kernels::kernel_table().choices.size();
  CHECK(num_choices >= problems.products.size() + problems.attentions.size());
  const std::string all_measured = str("kernels of ", num_choices, " shapes measured on rank 0 in ");
  CHECK_MESSAGE(contains(first, all_measured), first);
  run(experiment, Layout{}, own, gpu());
  const auto unmeasured = kernels::DeviceProducts::of(gpu()).unmeasured();
  CAPTURE(join(unmeasured));
  CHECK(unmeasured.empty());
  const std::string saved = kernels::kernel_table().text();
  const std::string resumed = tune(saved, train::SavedKernels::kUse);
  CHECK_MESSAGE(contains(resumed, "kernels of 0 shapes measured"), resumed);
  CHECK_MESSAGE(contains(resumed, str(", ", num_choices, " as saved")), resumed);
  CHECK(kernels::kernel_table().text() == saved);
  const std::string again = tune(saved, train::SavedKernels::kMeasureAgain);
  CHECK_MESSAGE(contains(again, all_measured), again);
}

TEST_SUITE_END();
