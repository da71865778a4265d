// Pooling, norms and linears of the heads.
#include "model/heads.h"

#include <ATen/ops/mean.h>

#include <utility>

#include "model/vit_parameters.h"

namespace vit_hybrid::model {

ForecastHead::ForecastHead(const VitOptions& options, tensor::ParameterBuffer& buffer,
                           const comm::Communicator& tensor_group)
    : norm_(buffer, final_norm_name(options), options.norm_eps),
      head_(buffer, "head", tensor::Terms::kWeight, tensor_group) {}

ResidualStream ForecastHead::forward(ResidualStream stream, const tensor::StepContext& context) {
  return {head_.forward(norm_.fork(std::move(stream), context).normed, context)};
}

ClassifyHead::ClassifyHead(const VitOptions& options, tensor::ParameterBuffer& buffer,
                           const comm::Communicator& tensor_group)
    : options_(options),
      norm_(buffer, final_norm_name(options), options.norm_eps),
      head_(buffer, "head", tensor::Terms::kWeightAndBias, tensor_group) {}

ResidualStream ClassifyHead::forward(ResidualStream stream, const tensor::StepContext& context) {
  const at::Tensor x = std::exchange(stream, {}).sum(context);
  // A copy also of one sample's, whose view would keep all tokens.
  const at::Tensor pooled =
      options_.pooling == Pooling::kToken ? x.select(1, 0).clone(at::MemoryFormat::Contiguous) : x.mean(1);
  return {head_.forward(norm_.forward(pooled, context), context)};
}

}  // namespace vit_hybrid::model
