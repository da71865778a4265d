// --init-from: a new training from the weights of a checkpoint, of another grid or with another head too.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "model/vit_options.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/parameter_spec.h"
#include "src/checkpoint/checkpoint_reader.h"

namespace vit_hybrid::train {

struct InitFromOptions {
  model::VitOptions model;  ///< what is trained
  /// Head, last norm and class token may be missing or have another shape: they keep their initial values.
  bool partial = false;
  /// Names of the classes of the data, with commas between them; empty: not known. A head of other classes than these
  /// does not fit.
  std::string class_names = {};
};

/// Writes the parameters of this rank, which are those of `specs`, from the checkpoint's weights; an optimizer's state
/// is not looked at. The positions are resized where the grid of patches differs. Checksums are verified. Returns a
/// line for each thing that was resized, keeps its initial values, or is computed otherwise (GELU). Where the rest does
/// not fit, Error(kUsage) names the model options that differ. Collective over `model_group` (tensor x pipeline),
/// errors agreed.
std::vector<std::string> init_from(const CheckpointReader& checkpoint, const InitFromOptions& options,
                                   const std::vector<tensor::ParameterSpec>& specs, tensor::ParameterWriter& parameters,
                                   const comm::MpiGroup& model_group);

/// The rows and columns of a grid of patches.
struct TokenGrid {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const TokenGrid&) const = default;
};

/// Positions [1, H' W', D] on another grid from those [1, H W, D] of `from`, float64: cubic convolution with a = -0.75
/// (R. Keys, 1981), patch centres at (i + 1/2) H/H' - 1/2, the border repeated.
at::Tensor resize_positions(const at::Tensor& positions, TokenGrid from, TokenGrid to);

}  // namespace vit_hybrid::train
