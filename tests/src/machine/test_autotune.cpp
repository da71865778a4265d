// Which sizes of micro-batches kernels are measured for, and what the records of a run show of the choices.
#include "src/machine/autotune.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tests/support/contains.h"

using namespace vit_hybrid;
using vit_hybrid::testing::contains;

namespace {

data::EpochPlan plan_of(int64_t samples, int64_t batch) {
  return data::EpochPlan({samples, batch, data::SampleOrder::kInOrder, data::LastBatch::kKeep, 1}, 0);
}

using Sizes = std::vector<int64_t>;

}  // namespace

TEST_CASE("run kernels: the sizes of all micro-batches of an epoch, walked step by step") {
  for (const int64_t samples : {1, 7, 64, 100, 131}) {
    for (const int64_t batch : {1, 12, 64}) {
      for (const int64_t replicas : {1, 3, 8}) {
        for (const int64_t micro_batch : {1, 3, 16}) {
          const data::EpochPlan plan = plan_of(samples, batch);
          Sizes wanted;
          for (int64_t step = 0; step < plan.num_steps(); ++step) {
            for (int64_t replica = 0; replica < replicas; ++replica) {
              for (const auto& part : data::micro_batches(plan.replica_batch(step, replica, replicas), micro_batch)) {
                wanted.push_back(static_cast<int64_t>(part.size()));
              }
            }
          }
          std::sort(wanted.begin(), wanted.end());
          wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
          CHECK((train::micro_batch_sizes(plan, replicas, micro_batch) == wanted));
        }
      }
    }
  }
}

TEST_CASE("run kernels: nothing is left of an epoch") {
  const data::EpochPlan rest({10, 4, data::SampleOrder::kInOrder, data::LastBatch::kKeep, 1}, 0, 10);
  CHECK(train::micro_batch_sizes(rest, 2, 4).empty());
}

TEST_CASE("run kernels: options of a configuration") {
  train::RunConfig config;
  CHECK((train::kernel_options(config).fp32 == kernels::Fp32Products::kExact));
  CHECK((train::kernel_options(config).order == kernels::SumOrder::kAny));
  config.precision.kind = train::Precision::kTf32;
  config.deterministic = true;
  CHECK((train::kernel_options(config).fp32 == kernels::Fp32Products::kTf32));
  CHECK((train::kernel_options(config).order == kernels::SumOrder::kFixed));
}

TEST_CASE("run kernels: TF32 that the environment forces or forbids") {
  using train::Precision;
  const auto override_of = [](Precision precision, const char* value) {
    return train::tf32_override(precision, value);
  };
  for (const auto precision : {Precision::kFp32, Precision::kFp64, Precision::kBf16, Precision::kFp16}) {
    for (const char* const value : {static_cast<const char*>(nullptr), "", "0"}) {
      CHECK_FALSE(override_of(precision, value).problem.has_value());
      CHECK(override_of(precision, value).warning.empty());
    }
    REQUIRE(override_of(precision, "1").problem.has_value());
    CHECK(override_of(precision, "1").problem->error_class() == ErrorClass::kUsage);
    CHECK(override_of(precision, "1").warning.empty());
  }
  CHECK(
      override_of(Precision::kFp32, "1").problem->message() ==
      "--precision fp32 is to have no TF32, but NVIDIA_TF32_OVERRIDE is '1', and NVIDIA's libraries obey that instead "
      "of this program");
  for (const char* const value : {static_cast<const char*>(nullptr), "", "1"}) {
    CHECK_FALSE(override_of(Precision::kTf32, value).problem.has_value());
    CHECK(override_of(Precision::kTf32, value).warning.empty());
  }
  CHECK_FALSE(override_of(Precision::kTf32, "0").problem.has_value());
  CHECK(contains(override_of(Precision::kTf32, "0").warning, "NVIDIA_TF32_OVERRIDE is 0"));
}

TEST_CASE("run kernels: the host's kernel is chosen by the largest layer of a block") {
  using kernels::HostLayer;
  using Passes = HostLayer::Passes;
  train::RunConfig config;
  config.model.image_height = config.model.image_width = 32;
  config.model.patch_size = 4;
  config.model.in_channels = config.model.out_channels = 100;  // larger layers, but one each
  config.model.embed_dim = 96;
  config.model.num_heads = 4;
  config.model.mlp_hidden = 384;
  config.global_batch_size = 12;
  config.parallel.dp = 2;
  config.parallel.micro_batch_size = 2;
  const int64_t tokens = config.model.num_tokens();
  const auto layer = [&] { return train::largest_layer(config, Passes::kForwardAndBackward); };
  CHECK((layer() == HostLayer{2 * tokens, 384, 96, 6 * tokens, Passes::kForwardAndBackward}));
  config.parallel.tp = 2;  // fc1's share is larger than that of qkv, 144
  CHECK((layer() == HostLayer{2 * tokens, 192, 96, 6 * tokens, Passes::kForwardAndBackward}));
  config.parallel.micro_batch_size = 16;  // more than a replica has
  CHECK((layer() == HostLayer{6 * tokens, 192, 96, 6 * tokens, Passes::kForwardAndBackward}));
  CHECK((train::largest_layer(config, Passes::kForward) == HostLayer{6 * tokens, 192, 96, 0, Passes::kForward}));
}

TEST_CASE("run kernels: records show names instead of a library's bytes") {
  CHECK(train::saved_kernels().empty());
  CHECK(train::kernel_choices_json().is_null());
  kernels::kernel_table() = {"GPU", {}};
  kernels::kernel_table().choices["forward R1 M2 K3"] = {"00ff", "tile 24", 2.5, 2.0};
  kernels::kernel_table().choices["attention B1"] = {"flash", "", 1.0, 1.0};
  CHECK(kernels::KernelTable::parse(train::saved_kernels()) == kernels::kernel_table());
  const auto json = train::kernel_choices_json();
  CHECK(json["measured_on"] == "GPU");
  CHECK(json["choices"]["forward R1 M2 K3"]["kernel"] == "cuBLASLt");
  CHECK(json["choices"]["forward R1 M2 K3"]["us"] == 2.5);
  CHECK(json["choices"]["forward R1 M2 K3"]["fastest_us"] == 2.0);
  CHECK(json["choices"]["attention B1"]["kernel"] == "flash");
  kernels::kernel_table() = {};
}
