// The MLP of a block, its hidden features cut over the tensor axis.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "model/vit_options.h"
#include "parallel/comm/communicator.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/parameter_buffer.h"
#include "src/kernels/dropout.h"

namespace vit_hybrid::model {

/// fc2(gelu(fc1(x))); fc1 column-parallel, fc2 row-parallel.
class Mlp {
 public:
  /// Parameters blocks.<unit - 1>.mlp.*
  Mlp(const VitOptions& options, int64_t unit, tensor::ParameterBuffer& buffer, comm::Communicator& group,
      tensor::Keep keep = tensor::Keep::kPreActivation);
  /// x [B, N, D], the same on all tensor ranks -> a branch that is the same on all. The graph keeps x and, for the
  /// hidden features of this rank, the output of GELU and, as `keep` says, its input. Collective over tensor.
  Branch forward(const at::Tensor& x, const tensor::StepContext& context);

 private:
  // fc2(dropout(gelu(fc1(x)))) in either way, equal but for rounding: GELU's backward a kernel of its own, or the end
  // of fc2's product, with nothing between them.
  tensor::RegionSum forward_with_own_gelu(const at::Tensor& x, const tensor::StepContext& context);
  tensor::RegionSum forward_with_fused_gelu(const at::Tensor& x, const tensor::StepContext& context);

  VitOptions options_;
  Range hidden_;  ///< of this tensor rank
  kernels::DropKey hidden_drop_;
  kernels::DropKey output_drop_;
  tensor::Keep keep_;
  tensor::ColumnParallelLinear fc1_;
  tensor::RowParallelLinear fc2_;
};

}  // namespace vit_hybrid::model
