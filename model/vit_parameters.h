// The parameters of a ViT under timm's names: ParameterSpecs of a rank's slices, and how many numbers they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/vit_options.h"
#include "parallel/tensor/parameter_spec.h"
#include "src/base/partition.h"

namespace vit_hybrid::model {

/// The tensor rank's slices of the parameters of the layer units [units.begin, units.end), in forward order.
std::vector<tensor::ParameterSpec> parameter_specs(const VitOptions& options, Range units, int stage, int tensor_rank,
                                                   int tensor_size);

/// How many numbers each of these has, for who needs neither names nor shapes: blocks are alike, and listed once.
std::vector<int64_t> slice_sizes(const VitOptions& options, Range units, int tensor_rank, int tensor_size);

/// Canonical name of the last norm: "norm", or timm's "fc_norm" where the tokens are pooled before it.
std::string final_norm_name(const VitOptions& options);

/// Number of parameters that a tensor rank has of all layer units together, also of models that nobody could hold;
/// exact below 2^53.
double num_slice_parameters(const VitOptions& options, int tensor_rank, int tensor_size);
/// Number of parameters of the whole model; the largest number there is where they are more than 2^62.
int64_t num_parameters(const VitOptions& options);

}  // namespace vit_hybrid::model
