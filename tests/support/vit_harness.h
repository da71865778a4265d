// What tests of the model need: small models, whole parameters and inputs from keyed draws, and slices of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "model/vit_options.h"
#include "model/vit_stage.h"
#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "tests/support/reference_vit.h"

namespace vit_hybrid::testing {

/// A forecaster of 3 x 12 x 20 fields, patch 4 (15 tokens), 2 blocks of 24 features, 8 heads and 50 hidden features:
/// nothing divides.
model::VitOptions small_forecaster();
/// A classifier of 3 x 12 x 16 images into 7 classes, otherwise the same.
model::VitOptions small_classifier(model::Pooling pooling);

/// The same model with patches of 5 x 6, which divide neither side.
model::VitOptions with_cut_patches(model::VitOptions options);
/// The same model with GELU's tanh.
model::VitOptions with_tanh(model::VitOptions options);
/// The same model with dropout of 0.2, 0.1 of attention, and `drop_path`.
model::VitOptions with_dropout(model::VitOptions options, double drop_path);

/// Normal draws, double, on the host: a function of `seed` alone.
at::Tensor normal_tensor(at::IntArrayRef shape, uint64_t seed);

/// Values for every parameter of the model, whole, double, all of them different and none of them neutral (norm weights
/// around 1).
NamedTensors test_parameters(const model::VitOptions& options);
/// B images of the model's shape, double.
at::Tensor test_images(const model::VitOptions& options, int64_t num_samples);
/// A training context for samples 100, 103, 106, ...; micro-batch 0.
tensor::StepContext test_context(int64_t num_samples, Mode mode);

/// The slice of `whole` that a rank with this spec holds.
at::Tensor scatter_local(const tensor::ParameterSpec& spec, const at::Tensor& whole);
/// The whole tensor from the slices of all ranks of the group, on every rank. Collective over the group.
at::Tensor gather_global(const tensor::ParameterSpec& spec, const at::Tensor& local, comm::Communicator& group);

/// Units of a model on one rank of a tensor group, with parameters from whole tensors.
struct TestStage {
  TestStage(const model::VitOptions& options, Range units, const NamedTensors& parameters, at::ScalarType type,
            comm::Communicator& group);
  /// The gradients of all its parameters, whole. Collective over the group.
  NamedTensors gradients(comm::Communicator& group) const;

  tensor::ParameterBuffer buffer;
  model::VitStage stage;
};

/// What one forward and backward gave.
struct Outcome {
  at::Tensor output;
  NamedTensors gradients;
};

/// Forward and backward from the gradient `output_gradient` (double; cast) of all units by ours, or by the reference.
Outcome run_ours(const model::VitOptions& options, const NamedTensors& parameters, const at::Tensor& images,
                 const at::Tensor& output_gradient, const tensor::StepContext& context, at::ScalarType type,
                 comm::Communicator& group);
Outcome run_reference(const model::VitOptions& options, const NamedTensors& parameters, const at::Tensor& images,
                      const at::Tensor& output_gradient, const tensor::StepContext& context, at::ScalarType type);

/// Shape of the last unit's output for B samples: patches of a forecast, logits.
std::vector<int64_t> output_shape(const model::VitOptions& options, int64_t num_samples);

/// The largest gradient_error over all parameters, and the name it belongs to. The names must be the same.
struct WorstError {
  double error = 0.0;
  std::string name;
};
WorstError worst_gradient_error(const NamedTensors& gradients, const NamedTensors& reference);

}  // namespace vit_hybrid::testing
