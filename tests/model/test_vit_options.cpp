// Presets, parameter lists, costs and checks of VitOptions against the published numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "model/vit_costs.h"
#include "model/vit_parameters.h"
#include "src/base/error.h"

using namespace vit_hybrid;
using model::VitOptions;

TEST_CASE("vit_options: the presets have the published numbers of parameters") {
  const std::map<std::string, int64_t> published = {
      {"weather-short", 13'186'176},
      {"weather-base", 13'186'176},
      {"weather-d12", 23'832'960},
      {"weather-mp", 157'926'400},
      {"weather-mp-patch4", 168'401'920},
      {"vit-b16", 86'567'656},
      {"vit-l16", 304'326'632},
      {"vit-h14", 632'045'800},
      {"vit-g14", 1'012'611'432},
      {"vit-gg14", 1'844'440'680},
      {"vit-ti16", 5'717'416},
      {"vit-s16", 22'050'664},
  };
  CHECK(model::preset_names().size() == published.size());
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    CHECK(model::num_parameters(model::preset(name)) == count);
  }
  VitOptions wide = model::preset("weather-d12");
  wide.embed_dim = 1536;
  wide.mlp_hidden = 4 * 1536;
  CHECK(model::num_parameters(wide) == 350'135'808);
  // makani's public ViT on ERA5's own grid; with square patches its last row is cut.
  VitOptions era5 = model::preset("weather-d12");
  era5.image_height = 721;
  era5.image_width = 1440;
  era5.patch_height = 7;
  era5.in_channels = 77;
  era5.out_channels = 73;
  CHECK(model::num_parameters(era5) == 31'639'680);
  era5.patch_height = 8;
  CHECK(era5.num_tokens() == 91 * 180);
  CHECK(model::validate(era5, 1, 1).empty());
}

TEST_CASE("vit_options: training cost of a sample is the published one") {
  const std::map<std::string, double> published_gflop = {
      {"weather-short", 731}, {"weather-d12", 1443}, {"weather-mp", 6141}, {"weather-mp-patch4", 53400},
      {"vit-b16", 105.2},     {"vit-l16", 369.0},    {"vit-h14", 1003},
  };
  for (const auto& [name, gflop] : published_gflop) {
    CAPTURE(name);
    const double ours = model::train_flops_per_sample(model::preset(name)) * 1e-9;
    CHECK(std::abs(ours - gflop) / gflop < 1e-3);  // published with three or four digits
  }
}

TEST_CASE("vit_options: a cost for every layer unit, together the forward pass") {
  const VitOptions options = model::preset("weather-short");
  const auto costs = model::unit_costs(options);
  REQUIRE(costs.size() == 8);
  const double tokens = 4050;
  const double embedding = 2 * tokens * 20 * 64 * 384;
  CHECK(costs.front() == embedding);
  CHECK(costs.back() == embedding);  // as many outputs as inputs
  for (size_t unit = 1; unit <= 6; ++unit) {
    CHECK(costs[unit] == 24 * tokens * 384 * 384 + 4 * tokens * tokens * 384);
  }
}

TEST_CASE("vit_options: an unknown preset names the nearest one") {
  try {
    model::preset("vit-l61");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    CHECK(error.message().find("vit-l61") != std::string::npos);
    CHECK(error.message().find("weather-mp-patch4") != std::string::npos);
    CHECK(error.hint() == "did you mean 'vit-l16'?");
  }
}

TEST_CASE("vit_options: names are timm's, and the slices of a tensor group tile the model") {
  VitOptions options = model::preset("vit-s16");  // 6 heads
  options.depth = 1;
  const Range all{0, options.num_units()};
  std::vector<std::string> names;
  for (const auto& spec : model::parameter_specs(options, all, 3, 0, 1)) {
    names.push_back(spec.name);
    CHECK(spec.stage == 3);
  }
  CHECK(names == std::vector<std::string>{"patch_embed.proj.weight",
                                          "patch_embed.proj.bias",
                                          "cls_token",
                                          "pos_embed",
                                          "blocks.0.norm1.weight",
                                          "blocks.0.norm1.bias",
                                          "blocks.0.attn.qkv.weight",
                                          "blocks.0.attn.qkv.bias",
                                          "blocks.0.attn.proj.weight",
                                          "blocks.0.attn.proj.bias",
                                          "blocks.0.norm2.weight",
                                          "blocks.0.norm2.bias",
                                          "blocks.0.mlp.fc1.weight",
                                          "blocks.0.mlp.fc1.bias",
                                          "blocks.0.mlp.fc2.weight",
                                          "blocks.0.mlp.fc2.bias",
                                          "norm.weight",
                                          "norm.bias",
                                          "head.weight",
                                          "head.bias"});

  for (const int tensor_size : {2, 3, 4, 6}) {
    std::map<std::string, int64_t> held;
    for (int rank = 0; rank < tensor_size; ++rank) {
      for (const auto& spec : model::parameter_specs(options, all, 0, rank, tensor_size)) {
        const bool cut = spec.name.find("qkv") != std::string::npos || spec.name.find("fc1") != std::string::npos ||
                         spec.name.ends_with("proj.weight") || spec.name.ends_with("fc2.weight");
        const bool whole = !cut || spec.name.starts_with("patch_embed");
        CAPTURE(spec.name);
        CHECK(spec.replicated_over_tensor == whole);
        held[spec.name] += whole && rank > 0 ? 0 : tensor::num_elements(spec.local_shape);
      }
    }
    const int64_t total = std::accumulate(held.begin(), held.end(), int64_t{0},
                                          [](int64_t sum, const auto& item) { return sum + item.second; });
    CHECK(total == model::num_parameters(options));
  }
}

TEST_CASE("vit_options: mean pooling has fc_norm and no class token, the forecaster no head bias") {
  VitOptions options = model::preset("vit-b16");
  options.pooling = model::Pooling::kMean;
  std::set<std::string> names;
  for (const auto& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    names.insert(spec.name);
  }
  CHECK(names.count("fc_norm.weight") == 1);
  CHECK(names.count("norm.weight") == 0);
  CHECK(names.count("cls_token") == 0);
  CHECK(names.count("head.bias") == 1);
  const auto head = model::parameter_specs(VitOptions{}, {7, 8}, 0, 0, 1);
  REQUIRE(head.size() == 3);
  CHECK(head[2].name == "head.weight");
  CHECK(head[2].global_shape == tensor::Shape{20 * 64, 384});
}

TEST_CASE("vit_options: the initial distributions and the decay groups") {
  const VitOptions options = model::preset("vit-b16");
  using Kind = tensor::Distribution::Kind;
  for (const auto& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    CAPTURE(spec.name);
    const bool vector = spec.global_shape.size() == 1 || spec.name == "cls_token" || spec.name == "pos_embed";
    CHECK((spec.decay == tensor::DecayGroup::kVector) == vector);
    if (spec.name.starts_with("patch_embed")) {
      CHECK(spec.initial.kind == Kind::kUniform);
      CHECK(spec.initial.value == 1.0 / std::sqrt(3.0 * 16 * 16));
    } else if (!vector || spec.name == "pos_embed") {
      CHECK(spec.initial.kind == Kind::kTruncatedNormal);
      CHECK(spec.initial.value == 0.02);
      CHECK(spec.initial.limit == 2.0);
    } else if (spec.name == "cls_token") {
      CHECK(spec.initial.value == 1e-6);
    } else {
      CHECK(spec.initial.kind == Kind::kConstant);
      CHECK(spec.initial.value == (spec.name.ends_with("weight") ? 1.0 : 0.0));
    }
  }
}

namespace {

bool mentions(const std::vector<std::string>& problems, const std::string& text) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const auto& problem) { return problem.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("vit_options: every norm of every preset has eps 1e-6") {
  for (const auto& name : model::preset_names()) {
    CHECK(model::preset(name).norm_eps == 1e-6);
  }
}

TEST_CASE("vit_options: every preset is valid, uneven degrees included") {
  for (const auto& name : model::preset_names()) {
    CAPTURE(name);
    CHECK(model::validate(model::preset(name), 3, 5).empty());
  }
}

TEST_CASE("vit_options: each problem is a sentence with the allowed values") {
  VitOptions options;
  options.num_heads = 7;
  options.patch_height = 361;
  options.patch_width = 721;
  options.dropout = 1.0;
  options.attention_dropout = std::nan("");
  const auto problems = model::validate(options, 8, 9);
  CHECK(problems.size() == 7);
  CHECK(mentions(problems, "num_heads is 7, which does not divide embed_dim 384; near it do 2, 3, 4, 6, 8, 12"));
  CHECK(mentions(problems, "patch_height is 361, more than the 360 rows (of the input; "));
  CHECK(mentions(problems, "patch_width is 721, more than the 720 columns (of the input; "));
  CHECK(mentions(problems, "dropout is 1; allowed are 0 up to, but not including, 1"));
  CHECK(mentions(problems, "attention_dropout is nan"));
  CHECK(mentions(problems, "tensor degree (--tp) is 8, more than the 7 attention heads"));
  CHECK(mentions(problems, "pipeline degree (--pp) is 9, more than the 8 layer units"));
}

TEST_CASE("vit_options: sizes below one are refused without dividing by them") {
  VitOptions options = model::preset("vit-b16");
  options.patch_height = options.patch_width = 0;
  options.num_heads = -1;
  options.num_classes = 1;
  const auto problems = model::validate(options, 1, 1);
  CHECK(mentions(problems, "patch_height is 0; it must be at least 1"));
  CHECK(mentions(problems, "num_heads is -1; it must be at least 1"));
  CHECK(mentions(problems, "num_classes is 1; it must be at least 2"));
}
