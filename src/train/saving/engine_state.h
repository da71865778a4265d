// The state of a rank's engine as pieces of the model's global tensors, for checkpoints; and the histograms of these.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/vit_options.h"
#include "parallel/mesh/device_mesh.h"
#include "parallel/tensor/parameter_spec.h"
#include "src/checkpoint/format.h"
#include "src/report/metrics_log.h"
#include "src/train/engine.h"

namespace vit_hybrid::train {

/// The groups of datasets of an engine's checkpoint, in the order of StatePiece::values: the parameters, and one for
/// each state that its optimizer keeps of them.
std::vector<std::string> state_groups(Engine& engine);

/// A box of one parameter and of its optimizer state that this rank owns.
struct StatePiece {
  int parameter = 0;  ///< index among the specs of this rank
  tensor::BoxMapping box;
  std::vector<at::Tensor> values;  ///< master, then the state: views (any strides, any device) of shape box.size
};

/// The state that this rank answers for: over all ranks each element of each tensor exactly once. Under stage 0 the
/// data ranks share what they all own; tensor rank 0 alone has what the tensor ranks all hold. Flat views, as
/// OwnedState's.
std::vector<zero::OwnedState> written_state(Engine& engine, const mesh::DeviceMesh& mesh);

/// What this rank owns: its shards under ZeRO-1, all of its slices under stage 0.
std::vector<StatePiece> owned_pieces(Engine& engine);

/// The pieces that this rank writes: written_state().
std::vector<StatePiece> written_pieces(Engine& engine, const mesh::DeviceMesh& mesh);

/// Name and shape of a parameter of the whole model.
struct GlobalTensor {
  std::string name;
  std::vector<int64_t> shape;
};
/// All of them, in forward order.
std::vector<GlobalTensor> global_tensors(const model::VitOptions& options);

/// Of the master weights as they are after the last step, and of that step's gradient: reduced, before clipping,
/// without `loss_scale`, by which it is divided. In forward order, on all ranks; each element of each global tensor is
/// counted once, so that counts, least and most are those of one process with these values, and the sums are so up to
/// rounding. Two reductions for all of them. Collective over the world.
std::vector<ParameterHistograms> parameter_histograms(Engine& engine, const model::VitOptions& model,
                                                      mesh::DeviceMesh& mesh, double loss_scale);

}  // namespace vit_hybrid::train
