// The numbers of a step as a tensor.
#include "parallel/zero/step_control.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <type_traits>

#include "parallel/zero/rules/cuda_update.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::zero {

namespace {

constexpr int64_t kCount = sizeof(StepScalars) / sizeof(double);
static_assert(std::is_trivially_copyable_v<StepScalars> && std::is_standard_layout_v<StepScalars>);
static_assert(offsetof(StepScalars, not_finite) == offsetof(StepScalars, squares) + sizeof(double));

}  // namespace

StepControl::StepControl(c10::Device device) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  values_ = at::zeros({kCount}, at::TensorOptions(at::kDouble).device(device));
  sums_ = values_.narrow(0, offsetof(StepScalars, squares) / sizeof(double), 2);
  host_ = device.is_cpu() ? values_ : at::empty({kCount}, at::TensorOptions(at::kDouble).pinned_memory(true));
}

void StepControl::set(const StepScalars& step) {
  *scalars_in(host_) = step;
  if (!values_.is_cpu()) {
    values_.copy_(host_, /*non_blocking=*/true);
  }
}

void StepControl::decide() {
  if (values_.is_cpu()) {
    zero::decide(*scalars_in(values_));
  } else {
    decide_cuda(values_);
  }
}

StepScalars StepControl::read() const {
  if (!values_.is_cpu()) {
    host_.copy_(values_);
  }
  return *scalars_in(host_);
}

StepScalars* scalars_in(const at::Tensor& values) {
  VH_ASSERT(values.scalar_type() == at::kDouble && values.is_contiguous() && values.numel() == kCount,
            "no numbers of a step");
  return reinterpret_cast<StepScalars*>(values.mutable_data_ptr<double>());
}

}  // namespace vit_hybrid::zero
