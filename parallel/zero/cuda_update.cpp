// The optimizer's passes over tensors: types picked, kernels launched on the current stream of the tensors' device.
#include "parallel/zero/cuda_update.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "parallel/zero/update_kernels_cuda.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

namespace {

static_assert(kSumOfSquaresWorkspace >= 2 * kSquareBlocks);

AdamConstants adam_constants(const OptimizerOptions& options) {
  return {options.beta1, options.beta2, options.eps, options.kind == OptimizerKind::kAdamW};
}

void check_doubles(const at::Tensor& tensor, int64_t count, const char* what) {
  VH_ASSERT(
      tensor.is_cuda() && tensor.scalar_type() == at::kDouble && tensor.is_contiguous() && tensor.numel() >= count,
      str(what, ": ", tensor.numel(), " of type ", c10::toString(tensor.scalar_type()), " for ", count,
          " doubles on the device"));
}

SegmentTable table_of(const Segments& segments) {
  if (!segments.bounds.defined()) {
    return {segments.value, nullptr, nullptr, 1};
  }
  const int64_t count = segments.values.numel();
  check_doubles(segments.values, 1, "values of segments");
  VH_ASSERT(segments.bounds.is_cuda() && segments.bounds.scalar_type() == at::kLong &&
                segments.bounds.is_contiguous() && segments.bounds.numel() == count + 1,
            str(segments.bounds.numel(), " bounds of ", count, " segments"));
  return {segments.value, segments.bounds.const_data_ptr<int64_t>(), segments.values.const_data_ptr<double>(), count};
}

template <class Master, class Gradient, class Parameter>
void adam_step(const UpdateTensors& tensors, const StepNumbers& step, const AdamConstants& constants,
               const SegmentTable& weight_decay, CUstream_st* stream) {
  const AdamArrays<Master, Gradient, Parameter> arrays{
      tensors.weights.mutable_data_ptr<Master>(), tensors.state[0].mutable_data_ptr<Master>(),
      tensors.state[1].mutable_data_ptr<Master>(), tensors.gradients.const_data_ptr<Gradient>(),
      tensors.parameters.defined() ? tensors.parameters.mutable_data_ptr<Parameter>() : nullptr};
  launch_adam(arrays, tensors.weights.numel(), step, constants, weight_decay, stream);
}

// With the types of gradients and parameters in a run of half precision `Half`.
template <class Half>
void half_adam_step(const UpdateTensors& tensors, const StepNumbers& step, const AdamConstants& constants,
                    const SegmentTable& weight_decay, CUstream_st* stream) {
  if (tensors.gradients.scalar_type() == at::kFloat) {
    adam_step<float, float, Half>(tensors, step, constants, weight_decay, stream);
  } else {
    adam_step<float, Half, Half>(tensors, step, constants, weight_decay, stream);
  }
}

void check_update(const UpdateTensors& tensors) {
  VH_ASSERT(tensors.state.size() == 2, str(tensors.state.size(), " state tensors for 2"));
  for (const at::Tensor& tensor : {tensors.state[0], tensors.state[1], tensors.gradients, tensors.parameters}) {
    VH_ASSERT(
        !tensor.defined() || (tensor.is_cuda() && tensor.is_contiguous() && tensor.numel() == tensors.weights.numel() &&
                              tensors.weights.is_contiguous()),
        str(tensor.numel(), " elements on ", tensor.device().str(), " for ", tensors.weights.numel(), " weights"));
  }
}

void update(const UpdateTensors& tensors, const StepNumbers& step, const OptimizerOptions& options,
            const Segments& weight_decay) {
  check_update(tensors);
  const c10::cuda::CUDAGuard guard(tensors.weights.device());
  CUstream_st* const stream = c10::cuda::getCurrentCUDAStream();
  const AdamConstants constants = adam_constants(options);
  const SegmentTable decay = table_of(weight_decay);
  const at::ScalarType parameters =
      tensors.parameters.defined() ? tensors.parameters.scalar_type() : tensors.weights.scalar_type();
  switch (parameters) {
    case at::kDouble:
      adam_step<double, double, double>(tensors, step, constants, decay, stream);
      break;
    case at::kFloat:
      adam_step<float, float, float>(tensors, step, constants, decay, stream);
      break;
    case at::kBFloat16:
      half_adam_step<c10::BFloat16>(tensors, step, constants, decay, stream);
      break;
    case at::kHalf:
      half_adam_step<c10::Half>(tensors, step, constants, decay, stream);
      break;
    default:
      VH_ASSERT(false, str("parameters of type ", c10::toString(parameters)));
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void begin_adam_step_cuda(const at::Tensor& step, const OptimizerOptions& options) {
  check_doubles(step, kNumStepSlots, "step");
  const c10::cuda::CUDAGuard guard(step.device());
  launch_count_adam_step(step.mutable_data_ptr<double>(), adam_constants(options), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void adam_step_cuda(const UpdateTensors& tensors, const at::Tensor& step, const OptimizerOptions& options,
                    const Segments& weight_decay) {
  check_doubles(step, kNumStepSlots, "step");
  StepNumbers numbers;
  numbers.on_device = step.const_data_ptr<double>();
  update(tensors, numbers, options, weight_decay);
}

void adam_step_cuda(const UpdateTensors& tensors, const StepScalars& step, const OptimizerOptions& options,
                    const Segments& weight_decay) {
  StepNumbers numbers;
  numbers.values[kStepNumber] = static_cast<double>(step.number - 1);
  numbers.values[kStepLr] = step.lr;
  numbers.values[kStepGradientScale] = step.gradient_scale;
  count_adam_step(numbers.values, adam_constants(options));
  update(tensors, numbers, options, weight_decay);
}

void sum_of_squares_cuda(const at::Tensor& values, const Segments& counts, const at::Tensor& workspace,
                         const at::Tensor& sums) {
  check_doubles(workspace, kSumOfSquaresWorkspace, "workspace");
  check_doubles(sums, 2, "sums");
  VH_ASSERT(values.is_cuda() && values.is_contiguous(), "values must be contiguous and on the device");
  const c10::cuda::CUDAGuard guard(values.device());
  const SegmentTable table = table_of(counts);
  const auto launch = [&](const auto* data) {
    launch_sum_of_squares(data, values.numel(), table, workspace.mutable_data_ptr<double>(),
                          sums.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream());
  };
  switch (values.scalar_type()) {
    case at::kDouble:
      launch(values.const_data_ptr<double>());
      break;
    case at::kFloat:
      launch(values.const_data_ptr<float>());
      break;
    case at::kBFloat16:
      launch(values.const_data_ptr<c10::BFloat16>());
      break;
    case at::kHalf:
      launch(values.const_data_ptr<c10::Half>());
      break;
    default:
      VH_ASSERT(false, str("values of type ", c10::toString(values.scalar_type())));
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace vit_hybrid::zero
