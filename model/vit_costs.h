// Costs of a ViT by formula: FLOP, and bytes of activations.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "model/recompute.h"
#include "model/vit_options.h"
#include "src/base/partition.h"

namespace vit_hybrid::model {

/// Forward cost of each layer unit in FLOP per sample (docs/workload.md, "Parameters and FLOP"), to cut the stages by.
std::vector<double> unit_costs(const VitOptions& options);
/// Training FLOP per sample: 3 x (blocks + head) + 2 x embedding.
double train_flops_per_sample(const VitOptions& options);

/// A rank of a tensor group.
struct TensorPlace {
  int rank = 0;
  int size = 1;
};

/// How many of the layer units are blocks.
int64_t num_blocks(const VitOptions& options, Range units);

enum class LinearRole { kPatches, kQkv, kProjection, kFc1, kFc2, kFieldHead, kClassHead };

/// A linear layer of a tensor rank, of which the rows are those of one micro-batch.
struct LinearLayer {
  LinearRole role = LinearRole::kPatches;
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
};

/// Those of the layer units for `samples` samples, in forward's order.
std::vector<LinearLayer> linear_layers(const VitOptions& options, Range units, TensorPlace tensor, int64_t samples);

/// Samples of the micro-batches that a stage of a pipeline holds at once.
struct HeldSamples {
  int64_t in_flight = 0;       ///< between forward and backward
  int64_t in_backward = 0;     ///< of these, of the one whose backward runs
  int64_t received_early = 0;  ///< whose message from another stage waits for its action
};

struct ActivationBytes {
  int64_t peak = 0;
  int64_t in_attention = 0;  ///< at most in its backwards; 0 of a stage without blocks
  int64_t in_embedding = 0;  ///< in its backward; 0 of a stage without it
};

/// The activations of this rank in a training step on a stage of the layer units `units`: what the graphs of all
/// samples in flight keep, what the backward of one block, the embedding, or the head and the loss takes beside, and
/// messages that wait. Workspaces are not counted: those of products and attention, and the copies in fp32 of types
/// that are computed so.
ActivationBytes activation_bytes(const VitOptions& options, Range units, TensorPlace tensor, Recompute recompute,
                                 at::ScalarType type, const HeldSamples& held);

/// Of these in the forward of a micro-batch of so many samples that follows others: what its blocks keep and, while it
/// still has a graph, the last of them. 0 unless units are computed again, where a smaller one's backward takes less.
int64_t forward_activation_bytes(const VitOptions& options, Range units, TensorPlace tensor, Recompute recompute,
                                 at::ScalarType type, int64_t samples);

}  // namespace vit_hybrid::model
