// Pooling, norms and linears of the heads.
#include "model/heads.h"
#include "model/vit_parameters.h"

#include <ATen/ops/mean.h>

namespace vit_hybrid::model {

ForecastHead::ForecastHead(const VitOptions& options, tensor::ParameterBuffer& buffer,
                           const comm::Communicator& tensor_group)
    : norm_(buffer, final_norm_name(options), options.norm_eps),
      head_(buffer, "head", tensor::Terms::kWeight, tensor_group) {}

at::Tensor ForecastHead::forward(const at::Tensor& x, const tensor::StepContext& context) {
  return head_.forward(norm_.forward(x, context), context);
}

ClassifyHead::ClassifyHead(const VitOptions& options, tensor::ParameterBuffer& buffer,
                           const comm::Communicator& tensor_group)
    : options_(options),
      norm_(buffer, final_norm_name(options), options.norm_eps),
      head_(buffer, "head", tensor::Terms::kWeightAndBias, tensor_group) {}

at::Tensor ClassifyHead::forward(const at::Tensor& x, const tensor::StepContext& context) {
  const at::Tensor pooled = options_.pooling == Pooling::kToken ? x.select(1, 0).contiguous() : x.mean(1);
  return head_.forward(norm_.forward(pooled, context), context);
}

}  // namespace vit_hybrid::model
