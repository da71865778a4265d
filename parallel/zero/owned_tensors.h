// OwnedTensors: all that a rank owns, for rules that update it at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "parallel/zero/rules/segment_cursor.h"

namespace vit_hybrid::zero {

/// Flat tensors on one device: master weights and state of the owned elements alone, the flat buffers whole; which
/// element belongs to which, and their weight decays, say the segments.
struct OwnedTensors {
  at::Tensor master;              ///< undefined where the parameters are the master weights
  std::vector<at::Tensor> state;  ///< in the order of UpdateRule::state_names()
  at::Tensor parameters;
  at::Tensor gradients;
  at::Tensor segments;  ///< segment_tensor()
};

/// The segments' bytes, [S, sizeof(Segment)], on `device`. Asserts that they ascend from 0 and are aligned.
at::Tensor segment_tensor(const std::vector<Segment>& segments, at::Device device);

/// The array in a segment_tensor(), on its device.
SegmentTable segment_table(const at::Tensor& segments);

}  // namespace vit_hybrid::zero
