// Rollout: a model on its own output, out of the last stage into the first.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/datasets/field_roles.h"
#include "data/datasets/normalization.h"
#include "model/vit_options.h"
#include "parallel/mesh/device_mesh.h"
#include "src/train/model_runner.h"

namespace vit_hybrid::train {

/// Trajectories of one replica, which go on together. One of its ranks has their states, the first of the first stage:
/// it gives what inputs are made of and gets what is predicted; the others only take part.
class Rollout {
 public:
  /// All must outlive the rollout but for `increments`, what the model predicts.
  Rollout(ModelRunner& model, mesh::DeviceMesh& mesh, const model::VitOptions& options,
          const data::SampleChannels& channels, const data::IncrementTarget& increments);

  bool has_states() const { return model_.is_first_stage() && mesh_.tensor().rank() == 0; }
  /// Begins `count` trajectories, the same number on all ranks of the replica, with these inputs of the model: [count,
  /// C, H, W], normalised, host; looked at where has_states(). Collective over the replica.
  void begin(int64_t count, const at::Tensor& inputs);
  /// One lead further: the new states [count, C, H, W], normalised, in the type of predictions (float32 or float64) on
  /// the host; undefined but where has_states(). Collective over the replica.
  at::Tensor advance();
  /// What the next inputs have beside states and static fields: [count, C, H, W], the forcings of the data, then
  /// computed ones; looked at where has_states(). Collective over the replica.
  void force(const at::Tensor& forcings);

 private:
  at::Tensor part(Range channels) const { return input_.narrow(1, channels.begin, channels.size()); }
  at::Tensor shared(int64_t channels, const at::Tensor& values);
  void take(const at::Tensor& state);

  ModelRunner& model_;
  mesh::DeviceMesh& mesh_;
  const model::VitOptions& options_;
  data::SampleChannels channels_;
  at::TensorOptions tensors_;
  data::IncrementTarget increments_;
  int64_t count_ = 0;
  at::Tensor input_;  // [count, C, H, W] on the device; first stage only
};

}  // namespace vit_hybrid::train
