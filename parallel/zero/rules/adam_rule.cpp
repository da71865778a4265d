// Adam by one pass over memory, on the host and on a GPU.
#include "parallel/zero/rules/adam_rule.h"

#include "parallel/zero/rules/adam_kernel.h"
#include "parallel/zero/rules/cuda_update.h"
#include "parallel/zero/rules/host_arrays.h"
#include "parallel/zero/rules/update_loops.h"
#include "src/base/error.h"

namespace vit_hybrid::zero {

void AdamRule::apply_to_owned(const OwnedTensors& owned, const at::Tensor& step) const {
  adam_step_cuda(owned, step, options_);
}

void AdamRule::apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
                     double /*trust*/) const {
  VH_ASSERT(on_host_, "on a GPU all is updated at once");
  check_stretch(tensors, 2);
  with_type(tensors, [&](auto zero) {
    using T = decltype(zero);
    const auto constants = adam_constants<T>(options_);
    auto c = adam_coefficients(constants, step);
    set_weight_decay(c, adam_decay(constants, step), weight_decay);
    T* const weights = tensors.weights.data_ptr<T>();
    T* const exp_avg = tensors.state[0].data_ptr<T>();
    T* const exp_avg_sq = tensors.state[1].data_ptr<T>();
    update_stretch<T>(tensors, [&](int64_t begin, int64_t count, const T* gradients) {
      adam_loop(weights + begin, exp_avg + begin, exp_avg_sq + begin, gradients, count, c);
    });
  });
}

}  // namespace vit_hybrid::zero
