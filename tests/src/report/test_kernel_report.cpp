// Padded dimensions against sums by hand.
#include <doctest/doctest.h>

#include <algorithm>

#include "src/report/start_report.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using doctest::Approx;
using testing::contains;

namespace {

constexpr auto kCpu = c10::DeviceType::CPU;
constexpr auto kGpu = c10::DeviceType::CUDA;

const PaddedDim* find(const std::vector<PaddedDim>& dims, const std::string& name) {
  const auto found = std::find_if(dims.begin(), dims.end(), [&](const PaddedDim& dim) { return dim.name == name; });
  return found == dims.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("padding: units of each device and type") {
  CHECK(unit_multiples(kCpu, Precision::kFp32, 64).features == 16);
  CHECK(unit_multiples(kCpu, Precision::kBf16, 64).features == 16);
  CHECK(unit_multiples(kCpu, Precision::kFp64, 64).features == 8);
  CHECK(unit_multiples(kCpu, Precision::kFp32, 32).tokens == 8);
  CHECK(unit_multiples(kGpu, Precision::kFp16, 64).features == 8);
  CHECK(unit_multiples(kGpu, Precision::kBf16, 64).head_dim == 32);
  CHECK(unit_multiples(kGpu, Precision::kTf32, 64).features == 4);
  CHECK(unit_multiples(kGpu, Precision::kFp32, 64).features == 1);
}

TEST_CASE("padding: a model whose dimensions fit is silent") {
  model::VitOptions options = model::preset("vit-b16");
  options.pooling = model::Pooling::kMean;  // 196 tokens
  options.num_classes = 1024;
  options.image_height = options.image_width = 256;  // 256 tokens
  for (const int tensor_size : {1, 2, 4}) {
    CHECK(padded_dims(options, tensor_size, unit_multiples(kGpu, Precision::kBf16, 64)).empty());
    CHECK(padded_dims(options, tensor_size, unit_multiples(kCpu, Precision::kFp32, 64)).empty());
  }
  CHECK(padded_dims(model::preset("vit-h14"), 3, unit_multiples(kGpu, Precision::kFp32, 64)).empty());
}

TEST_CASE("padding: vit-h14 on tensor cores pays for its heads, its tokens and its patches") {
  const auto options = model::preset("vit-h14");
  const auto dims = padded_dims(options, 1, unit_multiples(kGpu, Precision::kBf16, 64));
  REQUIRE(dims.size() == 3);
  const double n = 257, d = 1280, depth = 32;
  const double blocks = depth * (24 * n * d * d + 4 * n * n * d);
  const double all = blocks + 2 * 256 * 588 * d + 2 * d * 1000;
  const PaddedDim* heads = find(dims, "head dimension");
  REQUIRE(heads != nullptr);
  CHECK(heads->shares == std::vector<int64_t>{80});
  CHECK(heads->padded == 96);
  CHECK(heads->waste == Approx(0.2));
  CHECK(heads->cost == Approx(0.2 * depth * 4 * n * n * d / all));
  const PaddedDim* tokens = find(dims, "tokens");
  REQUIRE(tokens != nullptr);
  CHECK(tokens->padded == 320);
  CHECK(tokens->waste == Approx((320.0 / 257) * (320.0 / 257) - 1));
  const PaddedDim* patches = find(dims, "patch values");
  REQUIRE(patches != nullptr);
  CHECK(patches->padded == 592);
  CHECK(patches->cost == Approx(4.0 / 588 * 2 * 256 * 588 * d / all));
}

TEST_CASE("padding: the largest share of the tensor ranks decides") {
  model::VitOptions options;  // weather-short: 8 heads of 48, 1536 MLP features, 4050 tokens
  options.mlp_hidden = 1000;
  const auto dims = padded_dims(options, 3, unit_multiples(kCpu, Precision::kFp32, 64));
  REQUIRE(dims.size() == 2);  // 3, 3 and 2 heads of 48 features fit
  const PaddedDim* mlp = find(dims, "MLP features");
  REQUIRE(mlp != nullptr);
  CHECK(mlp->shares == std::vector<int64_t>{333, 333, 334});
  CHECK(mlp->padded == 336);
  CHECK(mlp->waste == Approx(2.0 / 334));
  const KernelReport report{{}, {*mlp}};
  CHECK(contains(report.lines().front(),
                 "MLP features 333 + 333 + 334: no multiple of 16, padded to 336; 0.6 % more work in fc1 "
                 "and fc2"));
  CHECK(to_json(report)["padded_dimensions"][0]["shares"] == Json{333, 333, 334});
  REQUIRE(find(dims, "tokens") != nullptr);
  CHECK(find(dims, "tokens")->padded == 4064);
}

TEST_CASE("kernels: the report names types and kernels, in lines and in the record") {
  RunConfig config;
  config.precision.kind = Precision::kFp16;
  config.precision.reduce = GradientType::kHalf;
  config.precision.loss_scale = 128.0;
  const KernelReport report = report_kernels(config, c10::Device(c10::kCPU));
  const Json json = to_json(report);
  CHECK(json["types"] ==
        "parameters and activations fp16, gradients fp32, reduced in fp16, master weights fp32; loss scale 128");
  config.precision = {};
  config.precision.kind = Precision::kTf32;
  CHECK(contains(to_json(report_kernels(config, c10::Device(c10::kCPU)))["types"].get<std::string>(),
                 "; products in fp32, because a CPU has no TF32"));
  for (const std::string part : {"processor", "products", "attention", "optimizer"}) {
    REQUIRE_MESSAGE(json.contains(part), part);
    CHECK_MESSAGE(!json[part].get<std::string>().empty(), part);
  }
  CHECK(json["padded_dimensions"].size() == report.padded.size());
  CHECK(report.lines().size() == report.parts.size() + report.padded.size());
  CHECK(report.lines().front().starts_with("  types     parameters"));
}
