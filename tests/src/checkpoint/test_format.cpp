// The checksum of a tensor, and the model options as JSON.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "src/base/random.h"
#include "src/base/timer.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/format.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;

namespace {

using Shape = std::vector<int64_t>;

uint64_t checksum(const at::Tensor& values) {
  TensorChecksum sum;
  const Shape shape = values.sizes().vec();
  sum.add(shape, Shape(shape.size(), 0), values);
  return sum.value();
}

// Element by element, each a box of its own.
uint64_t slow_checksum(const at::Tensor& values) {
  const Shape shape = values.sizes().vec();
  TensorChecksum sum;
  for (int64_t i = 0; i < values.numel(); ++i) {
    Shape start(shape.size());
    at::Tensor element = values;
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0;) {
      start[d] = rest % shape[d];
      rest /= shape[d];
      element = element.narrow(static_cast<int64_t>(d), start[d], 1);
    }
    sum.add(shape, start, element);
  }
  return sum.value();
}

at::Tensor test_values(const Shape& shape, at::ScalarType type) {
  const at::Tensor values = at::empty(shape, at::kDouble);
  const RandomStream stream(3, Purpose::kTest, 77);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  }
  return values.to(type);
}

}  // namespace

TEST_CASE("checksum: any flipped bit changes it") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor values = test_values({3, 5}, type);
    auto* const bytes = static_cast<unsigned char*>(values.mutable_data_ptr());
    std::set<uint64_t> seen = {checksum(values)};
    for (size_t bit = 0; bit < 8 * values.nbytes(); ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
      CHECK(seen.insert(checksum(values)).second);
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
    }
  }
}

TEST_CASE("checksum: any two exchanged elements change it") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor values = at::arange(40, at::TensorOptions(type)).reshape({8, 5});  // neighbours differ in few bits
    const at::Tensor flat = values.view({40});
    const uint64_t before = checksum(values);
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = i + 1; j < 40; ++j) {
        const at::Tensor other = flat.clone();
        other[i] = flat[j];
        other[j] = flat[i];
        CHECK(checksum(other.view({8, 5})) != before);
      }
    }
  }
}

TEST_CASE("checksum: zeros count, and so does their sign") {
  CHECK(checksum(at::zeros({4})) != checksum(at::zeros({5})));
  CHECK(checksum(at::zeros({4})) != 0);
  CHECK(checksum(at::zeros({4}).neg()) != checksum(at::zeros({4})));
}

TEST_CASE("checksum: parts of any shape, in any order and with any strides, add up") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Shape shape = {4, 6, 5};
    const at::Tensor values = test_values(shape, type);
    const uint64_t whole = checksum(values);
    CHECK(slow_checksum(values) == whole);
    CHECK(checksum(values.permute({2, 0, 1}).contiguous().permute({1, 2, 0})) == whole);
    TensorChecksum parts;
    parts.add(shape, Shape{2, 0, 0}, values.narrow(0, 2, 2));
    TensorChecksum others;  // another rank's
    others.add(shape, Shape{0, 0, 3}, values.narrow(0, 0, 2).narrow(2, 3, 2));
    others.add(shape, Shape{0, 4, 0}, values.narrow(0, 0, 2).narrow(1, 4, 2).narrow(2, 0, 3));
    parts.add(shape, Shape{0, 0, 0}, values.narrow(0, 0, 2).narrow(1, 0, 4).narrow(2, 0, 3));
    parts.add(shape, Shape{0, 0, 0}, values.narrow(0, 0, 0));
    parts.add(others.value());
    CHECK(parts.value() == whole);
  }
}

TEST_CASE("checksum: scalars and text") {
  TensorChecksum sum;
  CHECK(sum.text() == "0000000000000000");
  sum.add(Shape{}, Shape{}, at::zeros({}));
  CHECK(sum.value() != 0);
  CHECK(sum.text().size() == 16);
  TensorChecksum small;
  small.add(uint64_t{0x2a});
  CHECK(small.text() == "000000000000002a");
}

TEST_CASE("checksum: faster than disks") {
  const at::Tensor values = test_values({1024, 4096}, at::kFloat);  // 16 MiB
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const Timer timer;
    CHECK(checksum(values) != 0);
    best = std::min(best, timer.seconds());
  }
  const double gigabytes = static_cast<double>(values.nbytes()) / best / 1e9;
  MESSAGE("checksum of fp32: " << gigabytes << " GB/s");
  CHECK(gigabytes > 0.05);  // a bound for any machine under any load; debug builds too
}

TEST_CASE("model options go through JSON and back") {
  for (const std::string& name : {std::string("weather-mp"), std::string("vit-b16")}) {
    model::VitOptions options = model::preset(name);
    options.dropout = 0.1;
    options.norm_eps = 1e-5;
    options.pooling = model::Pooling::kMean;
    const std::string json = model_json(options);
    CAPTURE(json);
    CHECK(model_json(model_from_json(json)) == json);
    CHECK(model_from_json(json).norm_eps == 1e-5);
    CHECK(model_from_json(json).image_width == options.image_width);
    CHECK(model_differences(json, options).empty());
    model::VitOptions other = options;
    other.depth += 2;
    other.dropout = 0.25;
    const auto lines = model_differences(json, other);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == str("--depth is ", other.depth, ", the checkpoint's is ", options.depth));
    CHECK(lines[1] == "--dropout is 0.25, the checkpoint's is 0.1");
    const auto differences = model_differences(json, model_json(other));
    REQUIRE(differences.size() == 2);
    CHECK_FALSE(is_training_only(differences[0].option));
    CHECK(is_training_only(differences[1].option));
    other = options;
    other.gelu = kernels::GeluKind::kTanh;
    CHECK((model_from_json(model_json(other)).gelu == kernels::GeluKind::kTanh));
    REQUIRE(model_differences(json, other).size() == 1);
    CHECK(model_differences(json, other)[0] == "--gelu is tanh, the checkpoint's is erf");
    CHECK_FALSE(is_training_only("gelu"));
    CHECK(differences[1].first == "0.1");
    CHECK(differences[1].second == "0.25");
  }
}

TEST_CASE("model options of versions without --gelu and --loss are of erf, and of relative L2") {
  std::string json = model_json(model::preset("vit-b16"));
  for (const std::string added : {"\"gelu\":\"erf\",", "\"loss\":\"relative-l2\","}) {
    REQUIRE(json.find(added) != std::string::npos);
    json.erase(json.find(added), added.size());
  }
  CHECK((model_from_json(json).loss == model::FieldLoss::kRelativeL2));
  CHECK((model_from_json(json).gelu == kernels::GeluKind::kErf));
  CHECK(model_differences(json, model::preset("vit-b16")).empty());
  model::VitOptions with_tanh = model::preset("vit-b16");
  with_tanh.gelu = kernels::GeluKind::kTanh;
  CHECK(model_differences(json, with_tanh).size() == 1);
}

TEST_CASE("channels differ where both name them") {
  CheckpointInfo info;
  CHECK(channels_difference(info, "u,v").empty());
  info.channels = "v,u";
  CHECK(channels_difference(info, "v,u").empty());
  CHECK(channels_difference(info, "").empty());
  CHECK(channels_difference(info, "u,v") == "the data have the channels u,v, the model was trained on v,u");
}

TEST_CASE("training data: the lead of the pairs is kept, and another one is told") {
  TrainingData data;
  CHECK(training_data_json(data) == "{}");
  data.lead = {.rows = 4, .hours = 24.0};
  const TrainingData back = training_data_of(training_data_json(data), "f");
  CHECK(back.lead.rows == 4);
  CHECK(back.lead.hours == 24.0);
  CHECK(lead_difference(data, {.rows = 4, .hours = 24.0}).empty());
  CHECK(lead_difference(data, {.rows = 24, .hours = 24.0}).empty());  // of hourly data
  CHECK(lead_difference(data, {.rows = 4}).empty());                  // whose times are not known
  CHECK(lead_difference(TrainingData(), {.rows = 4}).empty());
  CHECK(lead_difference(data, {.rows = 4, .hours = 4.0}) ==
        "the data's pairs are 4 rows (4 hours) apart, those of the model's training 4 rows (24 hours) (--dt, "
        "--dt-hours)");
  CHECK_FALSE(lead_difference(data, {.rows = 23, .hours = 23.0}).empty());
  CHECK(lead_difference(data, {}).starts_with("the data's pairs are 1 row apart, "));
  data.lead.hours = -1.0;
  CHECK_THROWS_AS(check_training_data(data, "f"), Error);
}

TEST_CASE("attributes of format 3 are those that it had") {
  CheckpointInfo info;
  info.means = {1.0};
  const auto names = [](const CheckpointInfo& of) {
    std::vector<std::string> out;
    for (const auto& [name, value] : info_attributes(of)) {
      out.push_back(name);
    }
    return out;
  };
  const auto now = names(info);
  info.format = 7;
  CHECK(names(info).size() == now.size() - 1);  // the units
  info.format = 6;
  CHECK(names(info).size() == now.size() - 4);  // roles and increments
  info.format = 5;
  CHECK(names(info).size() == now.size() - 6);  // the lead
  info.format = 4;
  CHECK(names(info).size() == now.size() - 7);
  info.format = 3;
  const auto then = names(info);
  CHECK(then.size() == 22);
  CHECK(now.size() == then.size() + 12);
  CHECK(std::find(then.begin(), then.end(), "means") == then.end());
}

TEST_CASE("what are no model options is refused") {
  for (const char* text : {"", "[1]", "{", "{\"depth\": 3}", "null"}) {
    CAPTURE(text);
    CHECK(testing::thrown_error([&] { model_from_json(text); }).error_class() == ErrorClass::kBadData);
  }
}
