// ParameterWriter: where the values of a rank's parameters are put, by initialisation and by checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace vit_hybrid::tensor {

/// Stands for all places that hold a parameter: the buffer's view, and the master weights where they are others.
class ParameterWriter {
 public:
  virtual ~ParameterWriter() = default;
  /// Calls `fill` with a tensor of the local shape of spec `parameter`, which holds its values and takes new ones, in
  /// the widest type that they are kept in. Local.
  virtual void write(int parameter, const std::function<void(const at::Tensor& values)>& fill) = 0;
};

}  // namespace vit_hybrid::tensor
