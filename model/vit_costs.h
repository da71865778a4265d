// What follows from VitOptions: the parameters under timm's names, FLOP, and bytes of activations, by formula.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/recompute.h"
#include "model/vit_options.h"
#include "parallel/tensor/parameter_spec.h"
#include "src/base/partition.h"

namespace vit_hybrid::model {

/// The tensor rank's slices of the parameters of the layer units [units.begin, units.end), in forward order.
std::vector<tensor::ParameterSpec> parameter_specs(const VitOptions& options, Range units, int stage, int tensor_rank,
                                                   int tensor_size);

/// Canonical name of the last norm: "norm", or timm's "fc_norm" where the tokens are pooled before it.
std::string final_norm_name(const VitOptions& options);

/// Number of parameters that a tensor rank has of all layer units together, also of models that nobody could hold;
/// exact below 2^53.
double num_slice_parameters(const VitOptions& options, int tensor_rank, int tensor_size);
/// Number of parameters of the whole model; the largest number there is where they are more than 2^62.
int64_t num_parameters(const VitOptions& options);

/// Forward cost of each layer unit in FLOP per sample (docs/workload.md, "Parameters and FLOP"), to cut the stages by.
std::vector<double> unit_costs(const VitOptions& options);
/// Training FLOP per sample: 3 x (blocks + head) + 2 x embedding.
double train_flops_per_sample(const VitOptions& options);

/// Bytes a token that the graph of a block keeps between forward and backward, on the rank of a tensor group of
/// `tensor_size` that has most. With D features, A = heads x d and H of the attention's and the MLP's features on this
/// rank, in elements of `type`:
///   kNone       its input, both norms' output and the first sum (4 D), qkv (3 A), the attention's output (A), the
///               input and the output of GELU (2 H): 16 D for one rank and H = 4 D
///   kSelective  without qkv and the input of GELU: 9 D
///   kFull       its input: D
/// Beside them, unless kFull: two numbers a norm and one a head (fp32 for half-length types), and a byte an element
/// that is dropped or kept by dropout: 2 D + H.
int64_t kept_bytes_per_token(const VitOptions& options, int tensor_size, Recompute recompute, at::ScalarType type);

/// The micro-batches that a stage of a pipeline holds at once: pipeline::ScheduleReport's figures of its rank.
struct HeldMicroBatches {
  int64_t in_flight = 1;       ///< between forward and backward
  int64_t received_early = 0;  ///< whose message from another stage waits for its action
};

/// The peak of this rank's activations in a training step with micro-batches of `micro_batch` samples on a stage of the
/// layer units `units`: what the graphs of all that are in flight keep, what the backward of one block, or of the head
/// and the loss, takes beside, and messages that wait. Workspaces are not counted: those of products and attention, and
/// the copies in fp32 of types that are computed so.
int64_t activation_bytes(const VitOptions& options, Range units, int tensor_size, int64_t micro_batch,
                         Recompute recompute, at::ScalarType type, const HeldMicroBatches& held = {});

}  // namespace vit_hybrid::model
