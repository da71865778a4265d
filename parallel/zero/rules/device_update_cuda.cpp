// The optimizer's passes over tensors: types picked, kernels launched on the current stream of the tensors' device.
#include "parallel/zero/rules/device_update.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "parallel/zero/rules/device_update_cuda.h"
#include "parallel/zero/sharding.h"
#include "parallel/zero/step_control.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::zero {

namespace {

static_assert(kSumOfSquaresWorkspace >= 2 * kSquareBlocks);

void check_doubles(const at::Tensor& tensor, int64_t count, const char* what) {
  VH_ASSERT(
      tensor.is_cuda() && tensor.scalar_type() == at::kDouble && tensor.is_contiguous() && tensor.numel() >= count,
      str(what, ": ", tensor.numel(), " of type ", c10::toString(tensor.scalar_type()), " for ", count,
          " doubles on the device"));
}

// Whole allocations, which begin where vectors of 16 bytes may.
void check_whole(const at::Tensor& tensor, int64_t count, const char* what) {
  VH_ASSERT(tensor.is_cuda() && tensor.is_contiguous() && tensor.storage_offset() == 0 && tensor.numel() == count,
            str(what, ": ", tensor.numel(), " elements from ", tensor.storage_offset(), " on ", tensor.device().str(),
                " for ", count));
}

void check_owned(const OwnedTensors& owned) {
  VH_ASSERT(owned.state.size() == 2, str(owned.state.size(), " state tensors for 2"));
  const int64_t count = owned.state[0].numel();
  VH_ASSERT(count % kSegmentAlignment == 0, str(count, " elements"));
  check_whole(owned.state[0], count, "first moments");
  check_whole(owned.state[1], count, "second moments");
  if (owned.master.defined()) {
    check_whole(owned.master, count, "master weights");
  }
  VH_ASSERT(owned.master.defined() == (owned.parameters.scalar_type() != owned.state[0].scalar_type()),
            "parameters of another type than the state's need master weights, and others have none");
  check_whole(owned.parameters, owned.gradients.numel(), "parameters");
  check_whole(owned.gradients, owned.gradients.numel(), "gradients");
  VH_ASSERT(owned.segments.is_cuda() && (owned.segments.size(0) > 0 || count == 0),
            str(owned.segments.size(0), " segments for ", count, " elements"));
}

template <class Master, class Gradient, class Parameter>
void adam_step(const OwnedTensors& owned, const at::Tensor& step, const OptimizerOptions& options) {
  const AdamArrays<Master, Gradient, Parameter> arrays{
      owned.master.defined() ? owned.master.mutable_data_ptr<Master>() : nullptr,
      owned.state[0].mutable_data_ptr<Master>(), owned.state[1].mutable_data_ptr<Master>(),
      owned.gradients.const_data_ptr<Gradient>(), owned.parameters.mutable_data_ptr<Parameter>()};
  launch_adam(arrays, owned.state[0].numel(), adam_constants<Master>(options), scalars_in(step),
              table_in<Segment>(owned.segments), c10::cuda::getCurrentCUDAStream());
}

}  // namespace

void adam_step_cuda(const OwnedTensors& owned, const at::Tensor& step, const OptimizerOptions& options) {
  check_owned(owned);
  VH_ASSERT(step.is_cuda(), "the numbers of the step are on the host");
  const c10::cuda::CUDAGuard guard(owned.parameters.device());
  kernels::with_float_type(owned.parameters.scalar_type(), [&](auto zero) {
    using Parameter = decltype(zero);
    if constexpr (sizeof(Parameter) >= sizeof(float)) {
      adam_step<Parameter, Parameter, Parameter>(owned, step, options);
    } else if (owned.gradients.scalar_type() == at::kFloat) {
      adam_step<float, float, Parameter>(owned, step, options);
    } else {
      adam_step<float, Parameter, Parameter>(owned, step, options);
    }
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void decide_cuda(const at::Tensor& step) {
  VH_ASSERT(step.is_cuda(), "the numbers of the step are on the host");
  const c10::cuda::CUDAGuard guard(step.device());
  launch_decide(scalars_in(step), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void sum_of_squares_cuda(const at::Tensor& values, const CountedTable& ranges, const at::Tensor& workspace,
                         const at::Tensor& sums) {
  if (ranges.last.end == 0) {
    return;
  }
  check_doubles(workspace, kSumOfSquaresWorkspace, "workspace");
  check_doubles(sums, 2, "sums");
  VH_ASSERT(values.is_cuda() && values.is_contiguous() && ranges.last.end <= values.numel(),
            str(values.numel(), " values on ", values.device().str(), " for ranges up to ", ranges.last.end));
  const auto table = ranges.table.defined() ? table_in<CountedRange>(ranges.table) : Table<CountedRange>{};
  const c10::cuda::CUDAGuard guard(values.device());
  kernels::with_float_type(values.scalar_type(), [&](auto zero) {
    const auto* const data = values.const_data_ptr<decltype(zero)>();
    VH_ASSERT(reinterpret_cast<uintptr_t>(data) % 16 == 0, "the values begin inside of a vector");
    launch_sum_of_squares(data, {table, ranges.last}, workspace.mutable_data_ptr<double>(),
                          sums.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace vit_hybrid::zero
