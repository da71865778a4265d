// Forward and backward of the linear layers.
#include "parallel/tensor/linear.h"

#include "parallel/tensor/mappings.h"
#include "src/kernels/own_node.h"

namespace vit_hybrid::tensor {

at::Tensor Linear::forward(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = kernels::without_grad([&] { return products_.forward(x, Terms::kWeightAndBias); });
  return kernels::record("Linear", y, {x}, [this, x, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    products_.add_gradients(dy, x, Terms::kWeightAndBias, context);
    return std::vector<at::Tensor>{products_.backward_input(dy)};
  });
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = kernels::without_grad([&] { return products_.forward(x, Terms::kWeightAndBias); });
  return kernels::record("ColumnParallelLinear", y, {x}, [this, x, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    const at::Tensor dx = products_.backward_input(dy);
    comm::Work sum = start_region_sum(dx, group_);
    products_.add_gradients(dy, x, Terms::kWeightAndBias, context);
    sum.wait();
    return std::vector<at::Tensor>{dx};
  });
}

at::Tensor ColumnParallelLinear::forward_gelu(const at::Tensor& x, const StepContext& context, Keep keep) {
  at::Tensor pre_activation;
  const bool kept = keep == Keep::kPreActivation && kernels::records({x});
  const at::Tensor y =
      kernels::without_grad([&] { return products_.forward_gelu(x, kept ? &pre_activation : nullptr); });
  return kernels::record(
      "ColumnParallelLinearGelu", y, {x}, [this, x, pre_activation, &context](const at::Tensor& gradient) {
        const at::Tensor z = pre_activation.defined() ? pre_activation : products_.forward(x, Terms::kWeightAndBias);
        const at::Tensor dz = products_.backward_gelu(gradient.contiguous(), z, context);
        const at::Tensor dx = products_.backward_input(dz);
        comm::Work sum = start_region_sum(dx, group_);
        products_.add_gradients(dz, x, Terms::kWeight, context);
        sum.wait();
        return std::vector<at::Tensor>{dx};
      });
}

at::Tensor RowParallelLinear::forward(const at::Tensor& x, const StepContext& context) {
  // The product of a single rank is the whole sum: it takes the bias along, and its gradient.
  const Terms of_product = group_.size() == 1 ? Terms::kWeightAndBias : Terms::kWeight;
  const at::Tensor y = kernels::without_grad([&] {
    const at::Tensor sum = products_.forward(x, of_product);
    start_region_sum(sum, group_).wait();
    return of_product == Terms::kWeight && products_.has_bias() ? sum.add_(products_.bias()) : sum;
  });
  return kernels::record("RowParallelLinear", y, {x}, [this, x, of_product, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    if (of_product == Terms::kWeight) {
      // The bias is the same on all ranks, and so must be the bits of its gradient: what is fused with the product of
      // the weight depends on the rank's part of it.
      products_.add_bias_gradient(dy, context);
    }
    products_.add_gradients(dy, x, of_product, context);
    return std::vector<at::Tensor>{products_.backward_input(dy)};
  });
}

}  // namespace vit_hybrid::tensor
