// Small models and their data for tests.
#include "tests/support/vit_harness.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "model/vit_parameters.h"
#include "src/base/random.h"
#include "tests/support/compare.h"

namespace vit_hybrid::testing {

namespace {

constexpr int64_t kBucketElements = 1 << 10;

// The view of `x` that starts at `offset` and has `size`.
at::Tensor box_of(at::Tensor x, const tensor::Shape& offset, const tensor::Shape& size) {
  for (size_t dim = 0; dim < offset.size(); ++dim) {
    x = x.narrow(static_cast<int64_t>(dim), offset[dim], size[dim]);
  }
  return x;
}

model::VitOptions small_model() {
  model::VitOptions options;
  options.image_height = 12;
  options.image_width = 20;
  options.patch_height = options.patch_width = 4;
  options.in_channels = 3;
  options.out_channels = 3;
  options.embed_dim = 24;
  options.depth = 2;
  options.num_heads = 8;
  options.mlp_hidden = 50;
  return options;
}

tensor::ParameterBuffer make_buffer(const model::VitOptions& options, Range units, at::ScalarType type,
                                    const comm::Communicator& group) {
  auto specs = model::parameter_specs(options, units, 0, group.rank(), group.size());
  auto layout = tensor::make_flat_layout(specs, kBucketElements, 1);
  return {std::move(specs), std::move(layout), type, type, at::kCPU};
}

}  // namespace

model::VitOptions small_forecaster() {
  return small_model();
}

model::VitOptions small_classifier(model::Pooling pooling) {
  model::VitOptions options = small_model();
  options.task = model::Task::kClassify;
  options.pooling = pooling;
  options.image_width = 16;
  options.num_classes = 7;
  return options;
}

model::VitOptions with_cut_patches(model::VitOptions options) {
  options.patch_height = 5;
  options.patch_width = 6;
  return options;
}

model::VitOptions with_tanh(model::VitOptions options) {
  options.gelu = kernels::GeluKind::kTanh;
  return options;
}

model::VitOptions with_dropout(model::VitOptions options, double drop_path) {
  options.dropout = 0.2;
  options.attention_dropout = 0.1;
  options.drop_path = drop_path;
  return options;
}

at::Tensor normal_tensor(at::IntArrayRef shape, uint64_t seed) {
  at::Tensor x = at::empty(shape, at::TensorOptions(at::kDouble));
  const RandomStream stream(seed, Purpose::kTest);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.mutable_data_ptr<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  }
  return x;
}

NamedTensors test_parameters(const model::VitOptions& options) {
  NamedTensors parameters;
  for (const auto& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    const bool norm_weight = spec.name.find("norm") != std::string::npos && spec.name.ends_with("weight");
    const at::Tensor draws = normal_tensor(spec.global_shape, name_key(spec.name.c_str()));
    parameters[spec.name] = norm_weight ? draws.mul(0.1).add(1.0) : draws.mul(0.2);
  }
  return parameters;
}

at::Tensor test_images(const model::VitOptions& options, int64_t num_samples) {
  return normal_tensor({num_samples, options.in_channels, options.image_height, options.image_width}, 11);
}

tensor::StepContext test_context(int64_t num_samples, Mode mode) {
  tensor::StepContext context;
  context.seed = 42;
  context.step = 7;
  context.mode = mode;
  for (int64_t n = 0; n < num_samples; ++n) {
    context.samples.push_back(100 + 3 * n);
  }
  return context;
}

at::Tensor scatter_local(const tensor::ParameterSpec& spec, const at::Tensor& whole) {
  at::Tensor local = at::zeros(spec.local_shape, whole.options());
  for (const auto& box : spec.boxes) {
    box_of(local, box.local_offset, box.size).copy_(box_of(whole, box.global_offset, box.size));
  }
  return local;
}

at::Tensor gather_global(const tensor::ParameterSpec& spec, const at::Tensor& local, comm::Communicator& group) {
  if (spec.replicated_over_tensor) {
    return local.clone();
  }
  // Every element is held by one rank: the sum with the others' zeros is exact.
  at::Tensor whole = at::zeros(spec.global_shape, local.options());
  for (const auto& box : spec.boxes) {
    box_of(whole, box.global_offset, box.size).copy_(box_of(local, box.local_offset, box.size));
  }
  group.all_reduce(whole, comm::ReduceOp::kSum).wait();
  return whole;
}

TestStage::TestStage(const model::VitOptions& options, Range units, const NamedTensors& parameters, at::ScalarType type,
                     comm::Communicator& group)
    : buffer(make_buffer(options, units, type, group)), stage(options, units, buffer, group) {
  for (const auto& spec : buffer.specs()) {
    buffer.parameter(spec.name).value.copy_(scatter_local(spec, parameters.at(spec.name)));
  }
  buffer.bump_version();
}

NamedTensors TestStage::gradients(comm::Communicator& group) const {
  NamedTensors gradients;
  for (const auto& spec : buffer.specs()) {
    gradients[spec.name] = gather_global(spec, buffer.parameter(spec.name).gradient, group);
  }
  return gradients;
}

std::vector<int64_t> output_shape(const model::VitOptions& options, int64_t num_samples) {
  if (options.task == model::Task::kClassify) {
    return {num_samples, options.num_classes};
  }
  return {num_samples, options.num_tokens(), options.patch_height * options.patch_width * options.out_channels};
}

Outcome run_ours(const model::VitOptions& options, const NamedTensors& parameters, const at::Tensor& images,
                 const at::Tensor& output_gradient, const tensor::StepContext& context, at::ScalarType type,
                 comm::Communicator& group) {
  TestStage ours(options, {0, options.num_units()}, parameters, type, group);
  const at::Tensor input = images.to(type, false, true).requires_grad_();
  const at::Tensor output = ours.stage.forward(input, context);
  torch::autograd::backward({output}, {output_gradient.to(type)});
  return {output.detach(), ours.gradients(group)};
}

Outcome run_reference(const model::VitOptions& options, const NamedTensors& parameters, const at::Tensor& images,
                      const at::Tensor& output_gradient, const tensor::StepContext& context, at::ScalarType type) {
  ReferenceVit reference(options, type, parameters);
  const at::Tensor output = reference.head_output(images.to(type), context);
  torch::autograd::backward({output}, {output_gradient.to(type)});
  return {output.detach(), reference.gradients()};
}

WorstError worst_gradient_error(const NamedTensors& gradients, const NamedTensors& reference) {
  WorstError worst;
  if (gradients.size() != reference.size()) {
    return {std::numeric_limits<double>::infinity(), "the number of parameters"};
  }
  for (const auto& [name, gradient] : gradients) {
    const auto found = reference.find(name);
    const double error = found == reference.end() ? std::numeric_limits<double>::infinity()
                                                  : gradient_error(name, gradient, found->second);
    if (error > worst.error) {
      worst = {error, name};
    }
  }
  return worst;
}

}  // namespace vit_hybrid::testing
