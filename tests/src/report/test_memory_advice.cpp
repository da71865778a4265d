// The options that are named where a training did not fit into memory.
#include <doctest/doctest.h>

#include <new>

#include "parallel/comm/failure.h"
#include "src/report/start_report.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using testing::contains;

namespace {

MemoryFailure failure_with(MemoryClass largest) {
  MemoryFailure failure;
  failure.bytes = 1 << 20;
  failure.memory_class = MemoryClass::kActivations;
  failure.held.current[static_cast<size_t>(MemoryClass::kParameters)] = 10 << 20;
  failure.held.current[static_cast<size_t>(largest)] += 50 << 20;
  return failure;
}

RunConfig config_with(int dp, int zero) {
  RunConfig config;
  config.parallel.dp = dp;
  config.parallel.zero = zero;
  config.parallel.micro_batch_size = 8;
  return config;
}

}  // namespace

TEST_CASE("memory advice: activations are recomputed, or come in smaller micro-batches") {
  RunConfig config = config_with(2, 1);
  const MemoryFailure failure = failure_with(MemoryClass::kActivations);
  CHECK(memory_advice(config, config.data, failure) ==
        "what makes it hold less: --recompute selective or full, a smaller --micro-batch-size (it is 8), more --tp or "
        "--pp (they are 1 and 1), --precision bf16 or fp16");
  config.recompute = model::Recompute::kSelective;
  config.parallel.pp = 2;
  config.parallel.schedule = "gpipe";
  config.precision.kind = Precision::kBf16;
  CHECK(
      memory_advice(config, config.data, failure) ==
      "what makes it hold less: --recompute full, a smaller --micro-batch-size (it is 8), --schedule 1f1b, which keeps "
      "fewer micro-batches, more --tp or --pp (they are 1 and 2)");
  config.recompute = model::Recompute::kFull;
  config.parallel.micro_batch_size = 1;
  config.parallel.schedule = "1f1b";
  CHECK(memory_advice(config, config.data, failure) == "what makes it hold less: more --tp or --pp (they are 1 and 2)");
}

TEST_CASE("memory advice: communication holds less with smaller buckets") {
  RunConfig config = config_with(2, 1);
  const MemoryFailure failure = failure_with(MemoryClass::kCommunication);
  CHECK(contains(memory_advice(config, config.data, failure), "hold less: a smaller --bucket-mb (it is auto), more"));
  config.parallel.bucket_mb = 2.5;
  CHECK(contains(memory_advice(config, config.data, failure), "hold less: a smaller --bucket-mb (it is 2.5), more"));
}

TEST_CASE("memory advice: the optimizer's state is shared among replicas") {
  const MemoryFailure failure = failure_with(MemoryClass::kOptimizer);
  CHECK(contains(memory_advice(config_with(4, 0), {}, failure), "hold less: --zero 1, more replicas (--dp is 4)"));
  CHECK(contains(memory_advice(config_with(4, 1), {}, failure), "hold less: more replicas (--dp is 4)"));
  RunConfig in_parts = config_with(4, 1);
  in_parts.parallel.zero_shard_size = 2;
  CHECK(contains(memory_advice(in_parts, in_parts.data, failure),
                 "less: a larger --zero-shard-size (it is 2 of --dp 4), more replic"));
}

TEST_CASE("memory advice: gradients of half precision can be half as long") {
  RunConfig config = config_with(2, 1);
  config.precision.kind = Precision::kBf16;
  CHECK(contains(memory_advice(config, config.data, failure_with(MemoryClass::kGradients)),
                 "hold less: --grad-dtype half, more"));
  config.precision.gradient = GradientType::kHalf;
  CHECK(contains(memory_advice(config, config.data, failure_with(MemoryClass::kGradients)), "hold less: more --tp"));
}

TEST_CASE("memory advice: recorded steps reserve activations") {
  RunConfig config = config_with(1, 1);
  MemoryFailure failure = failure_with(MemoryClass::kActivations);
  CHECK_FALSE(contains(memory_advice(config, config.data, failure), "--cuda-graph off"));
  failure.device = c10::Device(c10::kCUDA, 0);
  CHECK(contains(memory_advice(config, config.data, failure), "--cuda-graph off"));
  config.cuda_graph = CudaGraph::kOff;
  CHECK_FALSE(contains(memory_advice(config, config.data, failure), "--cuda-graph off"));
}

TEST_CASE("memory advice: a data set in memory has fewer samples, batches are read less far ahead") {
  RunConfig config = config_with(1, 1);
  config.data.kind = DataKind::kBuiltin;
  MemoryFailure failure;  // before there is a model
  failure.bytes = 1 << 20;
  failure.memory_class = MemoryClass::kData;
  CHECK(memory_advice(config, config.data, failure) ==
        "what makes it hold less: fewer --generated-samples and --generated-valid-samples (they are 512 and 64), a "
        "smaller --prefetch-depth (it is auto), a smaller --micro-batch-size (it is 8)");
  config.data.kind = DataKind::kSynthetic;
  CHECK(
      memory_advice(config, config.data, failure_with(MemoryClass::kData)) ==
      "what makes it hold less: a smaller --prefetch-depth (it is auto), a smaller --micro-batch-size (it is 8), more "
      "--tp or --pp (they are 1 and 1)");
}

TEST_CASE("memory advice: half precision is for activations, ZeRO for all that is replicated") {
  RunConfig config = config_with(2, 0);
  for (const auto largest : {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kOptimizer}) {
    CHECK_FALSE(contains(memory_advice(config, config.data, failure_with(largest)), "--precision"));
    CHECK(contains(memory_advice(config, config.data, failure_with(largest)), "hold less: --zero 1"));
  }
}

TEST_CASE("memory advice: it is the hint of memory that was not there, and another hint stands in for it") {
  const std::bad_alloc exception;
  CHECK(comm::as_error(exception).hint() == "use a smaller micro-batch or more ranks");
  comm::set_memory_advice([](const MemoryFailure&) { return std::string("advice"); });
  const Error error = comm::as_error(exception);
  comm::set_memory_advice(nullptr);
  CHECK(error.error_class() == ErrorClass::kUsage);
  CHECK(error.hint() == "advice");
  CHECK(contains(error.message(), "out of memory: "));
}
