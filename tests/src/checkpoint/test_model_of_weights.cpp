// Models read off the shapes of weights: every preset is found again, and every misfit is named.
#include <doctest/doctest.h>

#include "model/vit_parameters.h"
#include "src/checkpoint/exchange.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::train {
namespace {

using testing::contains;
using testing::thrown_error;

WeightShapes shapes_of(const model::VitOptions& options) {
  WeightShapes shapes;
  for (const auto& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    shapes[spec.name] = spec.global_shape;
  }
  return shapes;
}

std::string refusal(const model::VitOptions& options, const WeightShapes& shapes) {
  const Error error = thrown_error([&] { check_weights(options, shapes, "f"); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  return error.message();
}

std::string untold(const WeightShapes& shapes) {
  const Error error = thrown_error([&] { model_of_weights(shapes, "f"); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  return error.message();
}

}  // namespace

TEST_CASE("model of weights: every preset but its heads is found again") {
  for (const std::string& name : model::preset_names()) {
    CAPTURE(name);
    const auto options = model::preset(name);
    const auto shapes = shapes_of(options);
    auto told = model_of_weights(shapes, "f");
    CHECK(told.num_heads == 0);
    if (options.task == model::Task::kForecast) {
      CHECK(told.image_height == 0);
      told.image_height = options.image_height;
      told.image_width = options.image_width;
    }
    told.num_heads = options.num_heads;
    CHECK((told.task == options.task));
    CHECK(told.image_height == options.image_height);
    CHECK(told.image_width == options.image_width);
    CHECK(told.embed_dim == options.embed_dim);
    CHECK(told.depth == options.depth);
    CHECK(told.mlp_hidden == options.mlp_hidden);
    CHECK(told.in_channels == options.in_channels);
    CHECK(told.patch_height == options.patch_height);
    CHECK(told.patch_width == options.patch_width);
    check_weights(told, shapes, "f");
  }
}

TEST_CASE("model of weights: pooling, and images that are no square") {
  const auto mean = testing::small_classifier(model::Pooling::kMean);
  const auto told = model_of_weights(shapes_of(mean), "f");
  CHECK((told.pooling == model::Pooling::kMean));
  CHECK(told.num_classes == 7);
  CHECK(told.image_height == 0);  // 3 x 4 tokens
}

TEST_CASE("model of weights: what does not fit is named") {
  const auto options = testing::small_forecaster();
  const auto good = shapes_of(options);
  auto shapes = good;
  shapes.erase("blocks.1.attn.proj.bias");
  CHECK(contains(refusal(options, shapes), "no weight blocks.1.attn.proj.bias [24]"));
  shapes = good;
  shapes["blocks.0.mlp.fc2.weight"] = {24, 51};
  CHECK(contains(refusal(options, shapes), "blocks.0.mlp.fc2.weight is [24, 51], the model's is [24, 50]"));
  shapes = good;
  shapes["head.bias"] = {48};
  CHECK(contains(refusal(options, shapes), "head.bias [48] has no place"));

  auto deep = options;
  deep.depth = int64_t{1} << 40;
  CHECK(contains(refusal(deep, good), "of 2 blocks, the model's depth is 1099511627776"));

  CHECK(contains(untold({}), "no weight patch_embed.proj.weight"));
  shapes = good;
  shapes["patch_embed.proj.weight"] = {24, 3, 4};
  CHECK(contains(untold(shapes), "[24, 3, 4]"));
  shapes["patch_embed.proj.weight"] = {24, 3, int64_t{1} << 60, int64_t{1} << 60};
  CHECK(contains(untold(shapes), "which no ViT's is"));
  shapes["patch_embed.proj.weight"] = {24, 3, 0, 0};
  CHECK(contains(untold(shapes), "which no ViT's is"));
  shapes = good;
  shapes["head.weight"] = {47, 24};
  CHECK(contains(untold(shapes), "no multiple of 16"));
}

}  // namespace vit_hybrid::train
