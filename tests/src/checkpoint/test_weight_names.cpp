// Names of weights in other programs, against lists of the names that those programs print.
#include <doctest/doctest.h>

#include <set>

#include "model/vit_parameters.h"
#include "src/base/text.h"
#include "src/checkpoint/exchange.h"
#include "tests/support/thrown_error.h"
#include "tests/support/vit_harness.h"

namespace vit_hybrid::train {
namespace {

using model::Pooling;
using testing::small_classifier;
using testing::small_forecaster;

std::set<std::string> names_of(WeightNames names, const model::VitOptions& options) {
  std::set<std::string> out;
  for (const auto& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    out.insert(foreign_name(names, spec.name));
  }
  return out;
}

model::VitOptions one_block(model::VitOptions options) {
  options.depth = 1;
  return options;
}

// sorted(torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=1, num_heads=2, hidden_dim=16,
// mlp_dim=40, num_classes=5).state_dict()), torchvision 0.26.
const std::set<std::string> kTorchvisionPrints = {
    "class_token",
    "conv_proj.bias",
    "conv_proj.weight",
    "encoder.layers.encoder_layer_0.ln_1.bias",
    "encoder.layers.encoder_layer_0.ln_1.weight",
    "encoder.layers.encoder_layer_0.ln_2.bias",
    "encoder.layers.encoder_layer_0.ln_2.weight",
    "encoder.layers.encoder_layer_0.mlp.0.bias",
    "encoder.layers.encoder_layer_0.mlp.0.weight",
    "encoder.layers.encoder_layer_0.mlp.3.bias",
    "encoder.layers.encoder_layer_0.mlp.3.weight",
    "encoder.layers.encoder_layer_0.self_attention.in_proj_bias",
    "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
    "encoder.layers.encoder_layer_0.self_attention.out_proj.bias",
    "encoder.layers.encoder_layer_0.self_attention.out_proj.weight",
    "encoder.ln.bias",
    "encoder.ln.weight",
    "encoder.pos_embedding",
    "heads.head.bias",
    "heads.head.weight",
};

// The names of a block, of timm 1.0 and of NERSC's ViT alike.
const std::set<std::string> kBlock = {
    "blocks.0.attn.proj.bias", "blocks.0.attn.proj.weight", "blocks.0.attn.qkv.bias", "blocks.0.attn.qkv.weight",
    "blocks.0.mlp.fc1.bias",   "blocks.0.mlp.fc1.weight",   "blocks.0.mlp.fc2.bias",  "blocks.0.mlp.fc2.weight",
    "blocks.0.norm1.bias",     "blocks.0.norm1.weight",     "blocks.0.norm2.bias",    "blocks.0.norm2.weight",
};

std::set<std::string> with_block(std::set<std::string> names) {
  names.insert(kBlock.begin(), kBlock.end());
  return names;
}

}  // namespace

TEST_CASE("weight names: the lists of the other programs") {
  CHECK(names_of(WeightNames::kTorchvision, one_block(small_classifier(Pooling::kToken))) == kTorchvisionPrints);
  CHECK(names_of(WeightNames::kTimm, one_block(small_classifier(Pooling::kToken))) ==
        with_block({"cls_token", "head.bias", "head.weight", "norm.bias", "norm.weight", "patch_embed.proj.bias",
                    "patch_embed.proj.weight", "pos_embed"}));
  CHECK(names_of(WeightNames::kTimm, one_block(small_classifier(Pooling::kMean))) ==
        with_block({"fc_norm.bias", "fc_norm.weight", "head.bias", "head.weight", "patch_embed.proj.bias",
                    "patch_embed.proj.weight", "pos_embed"}));
  CHECK(names_of(WeightNames::kNersc, one_block(small_forecaster())) ==
        with_block({"head.weight", "norm.bias", "norm.weight", "patch_embed.proj.bias", "patch_embed.proj.weight",
                    "pos_embed"}));
}

TEST_CASE("weight names: there and back for every weight of deep models") {
  for (auto options : {small_forecaster(), small_classifier(Pooling::kToken), small_classifier(Pooling::kMean)}) {
    options.depth = 123;
    for (const auto names : {WeightNames::kTimm, WeightNames::kTorchvision, WeightNames::kNersc}) {
      if (!no_counterpart(names, options).empty()) {
        continue;
      }
      const auto specs = model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1);
      CHECK(names_of(names, options).size() == specs.size());
      for (const auto& spec : specs) {
        CHECK(our_name(names, foreign_name(names, spec.name)) == spec.name);
        CHECK(our_name(names, "module._orig_mod." + foreign_name(names, spec.name)) == spec.name);
      }
    }
  }
}

TEST_CASE("weight names: other names are nobody's") {
  for (const char* name : {"", "#", "blocks..norm1.weight", "blocks.01.norm1.weight", "blocks.-1.norm1.weight",
                           "blocks.1x.norm1.weight", "blocks.9999999.norm1.weight", "blocks.1.norm1.weight2",
                           "xblocks.1.norm1.weight", "blocks.1.norm3.weight", "head.weigh", "dist_token", "module."}) {
    for (const auto names : {WeightNames::kTimm, WeightNames::kTorchvision, WeightNames::kNersc}) {
      CHECK_MESSAGE(our_name(names, name).empty(), name);
    }
  }
  CHECK(
      (testing::thrown_error([] { foreign_name(WeightNames::kTimm, "none"); }).error_class() == ErrorClass::kInternal));
}

TEST_CASE("weight names: models without a counterpart say why") {
  auto square = small_classifier(Pooling::kToken);
  square.image_width = square.image_height;
  CHECK(no_counterpart(WeightNames::kTorchvision, square).empty());
  CHECK(no_counterpart(WeightNames::kTorchvision, small_classifier(Pooling::kToken)).find("square") !=
        std::string::npos);
  CHECK(no_counterpart(WeightNames::kTorchvision, small_classifier(Pooling::kMean)).find("mean") != std::string::npos);
  CHECK(no_counterpart(WeightNames::kTorchvision, small_forecaster()).find("fields") != std::string::npos);
  CHECK(no_counterpart(WeightNames::kNersc, square).find("classifier") != std::string::npos);
  CHECK(no_counterpart(WeightNames::kNersc, small_forecaster()).empty());
  auto cut = small_forecaster();
  cut.image_height += 1;
  auto oblong = square;
  oblong.patch_height = 2 * oblong.patch_width;
  for (const auto& patches : {cut, oblong}) {
    CHECK(no_counterpart(WeightNames::kTimm, patches).empty());
  }
  CHECK(no_counterpart(WeightNames::kNersc, cut) == "its patches are squares that divide the image");
  CHECK(no_counterpart(WeightNames::kTorchvision, oblong) == "its patches are squares that divide the image");
  auto tanh = small_forecaster();
  tanh.gelu = kernels::GeluKind::kTanh;
  CHECK(no_counterpart(WeightNames::kNersc, tanh).find("tanh") != std::string::npos);
  CHECK(no_counterpart(WeightNames::kTimm, tanh).empty());
  for (const auto& options : {small_forecaster(), square, small_classifier(Pooling::kMean)}) {
    CHECK(no_counterpart(WeightNames::kTimm, options).empty());
  }
}

}  // namespace vit_hybrid::train
