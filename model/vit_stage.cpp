// Makes the layer units of a stage, and runs x, or its parts in turn, through them.
#include "model/vit_stage.h"

#include <ATen/ops/cat.h>

#include <memory>
#include <utility>

#include "model/block.h"
#include "model/heads.h"
#include "model/patch_embedding.h"
#include "model/vit_parameters.h"
#include "parallel/comm/operation.h"
#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

template <class L, class... Arguments>
Layers one_layer(Arguments&&... arguments) {
  Layers layers;
  layers.push_back(std::make_unique<L>(std::forward<Arguments>(arguments)...));
  return layers;
}

Layers make_unit(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
                 Recompute recompute) {
  if (unit == 0) {
    return one_layer<PatchEmbedding>(options, buffer, group);
  }
  if (unit <= options.depth) {
    Layers block = make_block(options, unit, buffer, group, recompute);
    return recompute == Recompute::kFull ? one_layer<RecomputedUnit>(std::move(block)) : std::move(block);
  }
  if (options.task == Task::kForecast) {
    return one_layer<ForecastHead>(options, buffer, group);
  }
  return one_layer<ClassifyHead>(options, buffer, group);
}

// Views of x along the batch. One node: autograd's own would each make a gradient of the whole x.
std::vector<at::Tensor> split(const at::Tensor& x, std::span<const tensor::StepContext> parts) {
  if (parts.size() == 1) {
    return {x};
  }
  std::vector<int64_t> sizes;
  for (const tensor::StepContext& part : parts) {
    sizes.push_back(std::ssize(part.samples));
  }
  return record_jointly("split", x.detach().split_with_sizes(sizes), {x},
                        [](const auto& gradients) { return std::vector<at::Tensor>{at::cat(gradients)}; });
}

at::Tensor join(const std::vector<at::Tensor>& parts) {
  if (parts.size() == 1) {
    return parts[0];
  }
  std::vector<int64_t> sizes;
  for (const at::Tensor& part : parts) {
    sizes.push_back(part.size(0));
  }
  const at::Tensor whole = without_grad([&] { return at::cat(parts); });
  return record("join", whole, parts, [sizes](const at::Tensor& dy) { return dy.split_with_sizes(sizes); });
}

}  // namespace

VitStage::VitStage(const VitOptions& options, Range units, tensor::ParameterBuffer& buffer,
                   comm::Communicator& tensor_group, Recompute recompute)
    : buffer_(buffer) {
  VH_ASSERT(units.begin >= 0 && units.end <= options.num_units(),
            str("units [", units.begin, ", ", units.end, ") of ", options.num_units()));
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    units_.push_back(make_unit(options, unit, buffer, tensor_group, recompute));
    const int64_t begin = parameters_.empty() ? 0 : parameters_.back().end;
    const auto specs = parameter_specs(options, {unit, unit + 1}, 0, tensor_group.rank(), tensor_group.size());
    parameters_.push_back({begin, begin + std::ssize(specs)});
  }
}

VitStage::~VitStage() = default;

at::Tensor VitStage::forward(const at::Tensor& x, const tensor::StepContext& context) {
  return forward(x, std::span(&context, 1));
}

at::Tensor VitStage::forward(const at::Tensor& x, std::span<const tensor::StepContext> parts) {
  std::vector<ResidualStream> streams;
  for (const at::Tensor& part : split(x, parts)) {
    streams.push_back({part});
  }
  for (size_t i = 0; i < units_.size(); ++i) {
    comm::note_work();
    buffer_.await(parameters_[i]);
    for (const auto& layer : units_[i]) {
      for (size_t part = 0; part < parts.size(); ++part) {
        streams[part] = layer->forward(std::move(streams[part]), parts[part]);
      }
    }
  }
  std::vector<at::Tensor> outputs;
  for (size_t part = 0; part < parts.size(); ++part) {
    outputs.push_back(std::move(streams[part]).sum(parts[part]));
  }
  return join(outputs);
}

}  // namespace vit_hybrid::model
