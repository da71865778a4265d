// The optimizer's and the input's kernels on a GPU against ATen operations in fp64, on the same device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "data/normalize_batch.h"
#include "parallel/zero/cuda_update.h"
#include "tests/gpu/own_gpu.h"
#include "tests/support/compare.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using namespace vit_hybrid::zero;

namespace {

at::TensorOptions on_gpu(at::ScalarType type) {
  static const c10::Device device = own_gpu();
  return at::TensorOptions(type).device(device);
}

// `count` values that begin `offset` elements after an aligned address.
at::Tensor shifted(const at::Tensor& values, int64_t offset) {
  const at::Tensor memory = at::zeros({values.numel() + offset}, values.options());
  return memory.narrow(0, offset, values.numel()).copy_(values);
}

struct Types {
  at::ScalarType master, gradient, parameter;
};

Segments thirds(int64_t count, double first, double second) {
  return {0.0, at::tensor({int64_t{0}, count / 3, count}, on_gpu(at::kLong)),
          at::tensor({first, second}, on_gpu(at::kDouble))};
}

void check_adam(const Types& types, int64_t count, int64_t offset, OptimizerKind kind) {
  CAPTURE(count);
  CAPTURE(offset);
  const bool casts = types.parameter != types.master;
  const at::Tensor start = at::randn({count}, on_gpu(at::kDouble));
  UpdateTensors tensors{shifted(start.to(types.master), offset),
                        {},
                        {shifted(at::zeros({count}, on_gpu(types.master)), offset),
                         shifted(at::zeros({count}, on_gpu(types.master)), offset)},
                        casts ? shifted(start.to(types.parameter), offset) : at::Tensor()};
  at::Tensor w = tensors.weights.to(at::kDouble).clone(), m = at::zeros_like(w), v = at::zeros_like(w);
  OptimizerOptions options;
  options.kind = kind;
  const bool decoupled = kind == OptimizerKind::kAdamW;
  const Segments decay = thirds(count, 0.0, 0.1);
  const at::Tensor decays = (at::arange(count, on_gpu(at::kLong)) >= count / 3).to(at::kDouble) * 0.1;
  const at::Tensor step = at::zeros({kNumStepSlots}, on_gpu(at::kDouble));
  step.select(0, kStepLr).fill_(0.01);
  step.select(0, kStepGradientScale).fill_(0.25);
  for (int number = 1; number <= 3; ++number) {
    tensors.gradients = shifted(at::randn({count}, on_gpu(at::kDouble)).to(types.gradient), offset);
    begin_adam_step_cuda(step, options);
    if (number < 3) {
      adam_step_cuda(tensors, step, options, decay);
    } else {  // the host may know as much
      adam_step_cuda(tensors, StepScalars{number, 0.01, 0.25}, options, decay);
    }
    const at::Tensor gradient = tensors.gradients.to(at::kDouble) * 0.25 + (decoupled ? decays * 0.0 : decays * w);
    m = m * options.beta1 + gradient * (1.0 - options.beta1);
    v = v * options.beta2 + gradient * gradient * (1.0 - options.beta2);
    const at::Tensor root = (v / (1.0 - std::pow(options.beta2, number))).sqrt() + options.eps;
    const at::Tensor decayed = decoupled ? w * (decays * -0.01 + 1.0) : w;
    w = decayed - m / root * (0.01 / (1.0 - std::pow(options.beta1, number)));
  }
  const double bound = types.master == at::kDouble ? 1e-13 : 1e-6;
  CHECK(step.select(0, kStepNumber).item<double>() == 3.0);
  CHECK(relative_error(tensors.weights, w) <= bound);
  CHECK(relative_error(tensors.state[0], m) <= bound);
  CHECK(relative_error(tensors.state[1], v) <= bound);
  if (casts) {
    CHECK(tensors.parameters.equal(tensors.weights.to(types.parameter)));
  }
  // A skipped step changes nothing, whatever the gradients are.
  step.select(0, kStepSkip).fill_(1.0);
  tensors.gradients.fill_(std::numeric_limits<double>::infinity());
  const at::Tensor before = tensors.weights.clone();
  begin_adam_step_cuda(step, options);
  adam_step_cuda(tensors, step, options, decay);
  CHECK(tensors.weights.equal(before));
  CHECK(step.select(0, kStepNumber).item<double>() == 3.0);
}

}  // namespace

TEST_CASE("gpu kernels: Adam's step in one pass is that of fp64, for every type and alignment") {
  const std::vector<Types> all = {{at::kDouble, at::kDouble, at::kDouble},    {at::kFloat, at::kFloat, at::kFloat},
                                  {at::kFloat, at::kFloat, at::kBFloat16},    {at::kFloat, at::kFloat, at::kHalf},
                                  {at::kFloat, at::kBFloat16, at::kBFloat16}, {at::kFloat, at::kHalf, at::kHalf}};
  for (const Types& types : all) {
    for (const int64_t offset : {0, 1}) {
      check_adam(types, 1 << 20, offset, OptimizerKind::kAdamW);
      check_adam(types, 12347, offset, OptimizerKind::kAdam);
    }
  }
}

TEST_CASE("gpu kernels: sums of squares count finite values and those that are not, with the same bits each time") {
  const at::Tensor workspace = at::empty({kSumOfSquaresWorkspace}, on_gpu(at::kDouble));
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {int64_t{1}, int64_t{12347}, int64_t{5} << 20}) {
      const at::Tensor values = at::randn({count}, on_gpu(at::kDouble)).to(type);
      values.narrow(0, count / 2, 1).fill_(std::numeric_limits<double>::infinity());
      const at::Tensor finite =
          at::where(values.isfinite(), values.to(at::kDouble), at::zeros({}, on_gpu(at::kDouble)));
      const at::Tensor sums = at::zeros({2}, on_gpu(at::kDouble)), again = at::zeros_like(sums);
      sum_of_squares_cuda(values, {1.0, {}, {}}, workspace, sums);
      sum_of_squares_cuda(values, {1.0, {}, {}}, workspace, again);
      CHECK(sums.equal(again));
      CHECK(relative_error(sums[0], finite.square().sum()) <= 1e-12);
      CHECK(sums[1].item<double>() == 1.0);
      const at::Tensor tail = at::zeros_like(sums);
      sum_of_squares_cuda(values, thirds(count, 0.0, 1.0), workspace, tail);
      CHECK(relative_error(tail[0], finite.narrow(0, count / 3, count - count / 3).square().sum()) <= 1e-12);
    }
  }
}

TEST_CASE("gpu kernels: normalized batches have the bits of the host") {
  const at::Tensor mean = at::randn({3}, on_gpu(at::kFloat)), std = at::randn({3}, on_gpu(at::kFloat)).abs() + 0.5;
  for (const int64_t width : {7, 224}) {
    const at::Tensor fields = at::randn({5, 3, 33, width}, on_gpu(at::kFloat));
    const at::Tensor images = at::randint(0, 256, {5, 33, width, 3}, on_gpu(at::kByte));
    for (const at::Tensor& batch : {fields, images}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        const at::Tensor there = data::normalize_batch(batch, mean, std, type);
        CHECK(there.cpu().equal(data::normalize_batch(batch.cpu(), mean.cpu(), std.cpu(), type)));
      }
    }
  }
}
