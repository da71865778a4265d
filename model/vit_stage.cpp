// Makes the layer units of a stage and runs x through them.
#include "model/vit_stage.h"

#include "model/block.h"
#include "model/heads.h"
#include "model/patch_embedding.h"
#include "model/vit_parameters.h"
#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

std::unique_ptr<Unit> make_unit(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer,
                                comm::Communicator& group, Recompute recompute) {
  if (unit == 0) {
    return std::make_unique<PatchEmbedding>(options, buffer, group);
  }
  if (unit <= options.depth) {
    auto block = std::make_unique<Block>(options, unit, buffer, group, recompute);
    if (recompute == Recompute::kFull) {
      return std::make_unique<RecomputedUnit>(std::move(block));
    }
    return block;
  }
  if (options.task == Task::kForecast) {
    return std::make_unique<ForecastHead>(options, buffer, group);
  }
  return std::make_unique<ClassifyHead>(options, buffer, group);
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
  ResidualStream stream{x};
  for (size_t i = 0; i < units_.size(); ++i) {
    comm::note_work();
    buffer_.await(parameters_[i]);
    stream = units_[i]->forward(std::move(stream), context);
  }
  return stream.sum(context);
}

}  // namespace vit_hybrid::model
