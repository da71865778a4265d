// The formula of activation memory against what the tracker counts in a step.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <ATen/OpMathType.h>
#include <ATen/ops/ones.h>

#include "model/losses.h"
#include "model/vit_costs.h"
#include "src/base/memory_tracker.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::Recompute;
using model::VitOptions;

namespace {

constexpr int64_t kCostedSamples = 4;
constexpr size_t kActivations = static_cast<size_t>(MemoryClass::kActivations);

VitOptions forecaster() {
  VitOptions options;
  options.image_height = 64;
  options.image_width = 64;
  options.patch_height = options.patch_width = 4;
  options.in_channels = 5;
  options.out_channels = 5;
  options.embed_dim = 128;
  options.depth = 6;
  options.num_heads = 4;
  options.mlp_hidden = 512;
  return options;
}

VitOptions classifier_with_dropout() {
  VitOptions options = forecaster();
  options.task = model::Task::kClassify;
  options.num_classes = 10;
  options.dropout = 0.1;
  options.attention_dropout = 0.1;
  options.drop_path = 0.1;
  return options;
}

VitOptions forecaster_with_cut_patches() {
  VitOptions options = forecaster();
  options.patch_height = 5;
  options.patch_width = 3;
  return options;
}

// A third of what the head predicts lies outside of the fields.
VitOptions forecaster_of_many_cut_fields() {
  VitOptions options = forecaster();
  options.patch_height = options.patch_width = 10;
  options.in_channels = options.out_channels = 40;
  options.depth = 1;
  return options;
}

// Attention's gradients are its peak.
VitOptions with_small_mlp() {
  VitOptions options = forecaster();
  options.mlp_hidden = 32;
  return options;
}

Range all_units(const VitOptions& options) {
  return {0, options.num_units()};
}

at::Tensor loss_of(const VitOptions& options, const at::Tensor& output, const at::Tensor& target) {
  return options.task == model::Task::kClassify
             ? model::cross_entropy_loss(output, target, 0.1, kCostedSamples)
             : model::field_loss(model::FieldLoss::kRelativeL2, output, target, options.output_grid(), kCostedSamples);
}

// Of a forward, the loss on the last stage, and a backward, as the pipeline runs them. The first unit is among `units`.
enum class Pass { kForward, kAll };

int64_t measured_peak(const VitOptions& options, Range units, at::ScalarType type, Recompute recompute,
                      int most_parts = 1, Pass pass = Pass::kAll) {
  const MemoryTracker::Attachment attachment;
  const MemoryScope scope(MemoryClass::kData);
  TestStage holder(options, units, test_parameters(options), type, group_of_one());
  model::VitStage stage(options, units, holder.buffer, group_of_one(), recompute);
  const auto parts = tensor::cut(test_context(kCostedSamples, Mode::kTraining), most_parts);
  const at::Tensor images = test_images(options, kCostedSamples).to(type).requires_grad_();
  const at::Tensor target = options.task == model::Task::kClassify
                                ? at::ones({kCostedSamples}, at::kLong)
                                : test_images(options, kCostedSamples).mul(2.0).to(at::toOpMathType(type));
  const MemoryScope activations(MemoryClass::kActivations);
  MemoryTracker::reset_peaks();
  const int64_t before = MemoryTracker::report().current[kActivations];
  at::Tensor output = stage.forward(images, parts);
  if (pass == Pass::kForward) {
    return MemoryTracker::report().peak[kActivations] - before;
  }
  if (units.end == options.num_units()) {
    output = loss_of(options, output, target);
  }
  const auto output_edge = torch::autograd::impl::gradient_edge(output);
  const auto sizes = output.sizes().vec();
  const auto like = output.options();
  output.reset();
  const at::Tensor gradient = at::ones(sizes, like);
  torch::autograd::Engine::get_default_engine().execute({output_edge}, {gradient}, false, false, false,
                                                        {torch::autograd::impl::gradient_edge(images)});
  return MemoryTracker::report().peak[kActivations] - before;
}

// What a block keeps of a token of a sample whose backward has not begun.
int64_t kept_bytes_per_token(const VitOptions& options, model::TensorPlace tensor, Recompute recompute,
                             at::ScalarType type) {
  return model::activation_bytes(options, {1, 2}, tensor, recompute, type, {1, 0, 0}).peak / options.num_tokens();
}

}  // namespace

TEST_CASE("vit_memory: a block's bytes a token") {
  const VitOptions options = forecaster();
  const int64_t dim = 4 * options.embed_dim;
  CHECK(kept_bytes_per_token(options, {}, Recompute::kNone, at::kFloat) == 16 * dim + 8 * 4);
  CHECK(kept_bytes_per_token(options, {}, Recompute::kSelective, at::kFloat) == 9 * dim + 8 * 4);
  CHECK(kept_bytes_per_token(options, {}, Recompute::kFull, at::kFloat) == dim);
  CHECK(kept_bytes_per_token(options, {0, 4}, Recompute::kNone, at::kFloat) == 7 * dim + 5 * 4);
  CHECK(kept_bytes_per_token(options, {}, Recompute::kNone, at::kBFloat16) == 8 * dim + 8 * 4);
  const VitOptions drops = classifier_with_dropout();
  CHECK(kept_bytes_per_token(drops, {1, 2}, Recompute::kNone, at::kFloat) == 10 * dim + 6 * 4 + 4 * 128);
  // The rank with two of three heads, and with 257 hidden features of 513.
  VitOptions odd = options;
  odd.num_heads = 3;
  odd.embed_dim = 96;
  odd.mlp_hidden = 513;
  CHECK(kept_bytes_per_token(odd, {1, 2}, Recompute::kNone, at::kDouble) == 8 * (4 * 96 + 4 * 64 + 2 * 257 + 6));
}

TEST_CASE("vit_memory: micro-batches in flight, and stages") {
  const VitOptions options = forecaster();
  const auto bytes = [&](Range units, int64_t in_flight) {
    return model::activation_bytes(options, units, {}, Recompute::kNone, at::kFloat, {2 * in_flight, 2, 0}).peak;
  };
  const int64_t block = 2 * options.num_tokens() * kept_bytes_per_token(options, {}, Recompute::kNone, at::kFloat);
  CHECK(bytes({1, 4}, 3) - bytes({1, 4}, 2) == 3 * block);
  CHECK(bytes({1, 4}, 1) - bytes({1, 3}, 1) == block);
  CHECK(bytes({0, 3}, 1) == bytes({3, 5}, 1));
  CHECK(model::activation_bytes(options, {1, 4}, {}, Recompute::kNone, at::kFloat, {4, 2, 6}).peak - bytes({1, 4}, 2) ==
        3 * 2 * options.num_tokens() * options.embed_dim * 4);
}

TEST_CASE("vit_memory: the formula is the tracker's peak within one per cent") {
  constexpr double kBound = 0.01;
  for (const VitOptions& options : {forecaster(), forecaster_with_cut_patches(), forecaster_of_many_cut_fields(),
                                    classifier_with_dropout(), with_small_mlp()}) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const auto recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        const auto formula = static_cast<double>(model::activation_bytes(options, all_units(options), {}, recompute,
                                                                         type, {kCostedSamples, kCostedSamples, 0})
                                                     .peak);
        const auto measured = static_cast<double>(measured_peak(options, all_units(options), type, recompute));
        CAPTURE(options.dropout);
        CAPTURE(options.mlp_hidden);
        CAPTURE(std::string(at::toString(type)));
        CAPTURE(static_cast<int>(recompute));
        CHECK(measured / formula == doctest::Approx(1.0).epsilon(kBound));
      }
    }
  }
}

// Beside others in flight it may take more than any backward.
TEST_CASE("vit_memory: the forward of blocks that are computed again") {
  VitOptions with_dropout = with_small_mlp();
  with_dropout.dropout = 0.1;
  VitOptions with_large_mlp = classifier_with_dropout();
  with_large_mlp.mlp_hidden = 1024;
  for (const VitOptions& options : {forecaster(), with_small_mlp(), with_dropout, with_large_mlp}) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Range units{0, options.num_units() - 1};
      const auto formula = static_cast<double>(
          model::forward_activation_bytes(options, units, {}, Recompute::kFull, type, kCostedSamples));
      const auto measured =
          static_cast<double>(measured_peak(options, units, type, Recompute::kFull, 1, Pass::kForward));
      CAPTURE(options.dropout);
      CAPTURE(options.mlp_hidden);
      CAPTURE(std::string(at::toString(type)));
      CHECK(measured / formula == doctest::Approx(1.0).epsilon(0.01));
    }
  }
  CHECK(model::forward_activation_bytes(forecaster(), {1, 3}, {}, Recompute::kNone, at::kFloat, 4) == 0);
}

// As the first of more stages than blocks.
TEST_CASE("vit_memory: a stage of the embedding alone") {
  VitOptions with_dropout = forecaster();
  with_dropout.dropout = 0.1;
  VitOptions classifier = classifier_with_dropout();
  classifier.dropout = 0.0;
  for (const VitOptions& options :
       {forecaster(), forecaster_with_cut_patches(), with_dropout, classifier, classifier_with_dropout()}) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const auto formula = static_cast<double>(
          model::activation_bytes(options, {0, 1}, {}, Recompute::kNone, type, {kCostedSamples, kCostedSamples, 0})
              .peak);
      const auto measured = static_cast<double>(measured_peak(options, {0, 1}, type, Recompute::kNone));
      CAPTURE(options.dropout);
      CAPTURE(options.has_class_token());
      CAPTURE(std::string(at::toString(type)));
      CHECK(measured / formula == doctest::Approx(1.0).epsilon(0.01));
    }
  }
}

// Backward works on one part at a time, beside a gradient that waits for its part's turn.
TEST_CASE("vit_memory: with micro-batches in parts the formula is an upper bound, and no bad one") {
  for (const VitOptions& options : {forecaster(), classifier_with_dropout(), with_small_mlp()}) {
    for (const auto recompute : {Recompute::kNone, Recompute::kSelective}) {
      const auto formula = static_cast<double>(model::activation_bytes(options, all_units(options), {}, recompute,
                                                                       at::kFloat, {kCostedSamples, kCostedSamples, 0})
                                                   .peak);
      const auto measured = static_cast<double>(measured_peak(options, all_units(options), at::kFloat, recompute, 2));
      CAPTURE(options.dropout);
      CAPTURE(options.mlp_hidden);
      CAPTURE(static_cast<int>(recompute));
      CHECK(measured <= formula);
      CHECK(measured >= 0.8 * formula);
    }
  }
}
