// Forward and backward of the linear layers.
#include "parallel/tensor/linear.h"

#include "parallel/tensor/mappings.h"
#include "parallel/tensor/own_node.h"

namespace vit_hybrid::tensor {

at::Tensor Linear::forward(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = without_grad([&] { return products_.forward(x, Terms::kWeightAndBias); });
  return record("Linear", y, {x}, [this, x, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    products_.add_bias_gradient(dy, context);
    products_.add_weight_gradient(dy, x, context);
    return std::vector<at::Tensor>{products_.backward_input(dy)};
  });
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = without_grad([&] { return products_.forward(x, Terms::kWeightAndBias); });
  return record("ColumnParallelLinear", y, {x}, [this, x, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    const at::Tensor dx = products_.backward_input(dy);
    comm::Work sum = start_region_sum(dx, group_);
    products_.add_bias_gradient(dy, context);
    products_.add_weight_gradient(dy, x, context);
    sum.wait();
    return std::vector<at::Tensor>{dx};
  });
}

at::Tensor RowParallelLinear::forward(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = without_grad([&] {
    const at::Tensor sum = products_.forward(x, Terms::kWeight);
    start_region_sum(sum, group_).wait();
    return products_.has_bias() ? sum.add_(products_.bias()) : sum;
  });
  return record("RowParallelLinear", y, {x}, [this, x, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    products_.add_bias_gradient(dy, context);
    products_.add_weight_gradient(dy, x, context);
    return std::vector<at::Tensor>{products_.backward_input(dy)};
  });
}

}  // namespace vit_hybrid::tensor
