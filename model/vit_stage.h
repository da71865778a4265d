// VitStage: the layer units of a ViT that one pipeline stage of one tensor rank holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "model/layer.h"
#include "model/recompute.h"
#include "model/vit_options.h"
#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "src/base/partition.h"

namespace vit_hybrid::model {

/// Units [units.begin, units.end) of the ViT. Parameters are views of `buffer`, which outlives the stage and whose
/// specs were made by parameter_specs() for the same units; those of a unit are awaited when forward comes to it.
/// `recompute` is of its blocks. Knows nothing of the pipeline or of data parallelism.
class VitStage {
 public:
  VitStage(const VitOptions& options, Range units, tensor::ParameterBuffer& buffer, comm::Communicator& tensor_group,
           Recompute recompute = Recompute::kNone);
  ~VitStage();

  /// First unit 0: x is the image [B, C, H, W]; else the activation [B, N, D]. Returns [B, N, D], or, when the head is
  /// among the units, its output: patches [B, P, ph pw C_out] (kForecast; see fields_of()) or logits [B, num_classes]
  /// (kClassify). Under grad mode the result carries a graph whose backward adds weight gradients into the buffer. To
  /// be recorded, x must require grad (also the image; its gradient is not computed and stays undefined). Collective
  /// over tensor.
  at::Tensor forward(const at::Tensor& x, const tensor::StepContext& context);
  /// The same of a micro-batch in parts (tensor::cut()), equal but for rounding, and every parameter gets a gradient
  /// from each part. The parts take turns, layer by layer, so that the sum over the tensor axis at the end of one's
  /// layer is on its way while the others compute theirs.
  at::Tensor forward(const at::Tensor& x, std::span<const tensor::StepContext> parts);

 private:
  const tensor::ParameterBuffer& buffer_;
  std::vector<Layers> units_;
  std::vector<Range> parameters_;  // by unit: indices among the specs
};

}  // namespace vit_hybrid::model
