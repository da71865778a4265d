// A micro-batch in parts that take turns: the results of the whole, and what is computed while a sum is on its way.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "tests/support/compare.h"
#include "tests/support/group_of_one.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using model::Recompute;
using model::VitOptions;

namespace {

constexpr double kPartsBound = 1e-13;  // a few hundred roundings in a row
constexpr int64_t kWholeSamples = 5;

// A sum over the tensor axis, in nodes that autograd had made by then.
struct Sum {
  uint64_t start;
  uint64_t wait;
};

enum class SumArrival { kAtOnce, kWhenWaitedFor };

// Until it is waited for nobody can compute with the values.
class LateSum final : public comm::Work::State {
 public:
  LateSum(at::Tensor values, at::Tensor sum, std::vector<Sum>& sums)
      : values_(std::move(values)), sum_(std::move(sum)), start_(at::sequence_number::peek()), sums_(sums) {
    values_.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  void wait() override {
    values_.copy_(sum_);
    sums_.push_back({start_, at::sequence_number::peek()});
  }
  bool test() override { return false; }

 private:
  at::Tensor values_;
  at::Tensor sum_;
  uint64_t start_;
  std::vector<Sum>& sums_;
};

// The first of two tensor ranks; the other one is thought to have the same partial sums.
class Twins final : public comm::Communicator {
 public:
  explicit Twins(SumArrival arrival) : arrival_(arrival) {}

  const std::string& axis() const override { return axis_; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  at::DeviceType device_type() const override { return at::kCPU; }
  std::string back_end() const override { return "twins"; }
  comm::Work all_reduce(const at::Tensor& tensor, comm::ReduceOp /*op*/) override {
    const at::Tensor values = tensor.detach();
    if (arrival_ == SumArrival::kAtOnce) {
      values.mul_(2.0);
      return {};
    }
    return comm::Work(std::make_unique<LateSum>(values, values.mul(2.0), sums));
  }
  comm::Work all_reduce_after(const comm::Work&, const at::Tensor&, comm::ReduceOp) override { return none(); }
  comm::Work reduce_scatter(const at::Tensor&, const at::Tensor&, comm::ReduceOp) override { return none(); }
  comm::Work all_gather(const at::Tensor&, const at::Tensor&) override { return none(); }
  comm::Work broadcast(const at::Tensor&, int) override { return none(); }
  comm::Work exchange(std::vector<comm::Transfer>) override { return none(); }
  comm::Work barrier() override { return none(); }

  std::vector<Sum> sums;  // in the order in which they were waited for

 private:
  static comm::Work none() {
    VH_ASSERT(false, "a layer only sums");
    return {};
  }

  SumArrival arrival_;
  std::string axis_ = "tensor";
};

class CountingSink : public tensor::GradientSink {
 public:
  void ready(int parameter, int /*micro_batch*/) override { ++counts[parameter]; }
  std::map<int, int> counts;
};

struct PartsResult {
  at::Tensor output;
  at::Tensor input_gradient;  // undefined for images
  NamedTensors gradients;     // of this rank's slices
  std::map<int, int> ready;   // by parameter
  std::vector<Sum> sums;      // of forward
};

PartsResult run_parts(const VitOptions& options, Range units, int most_parts, int64_t num_samples = kWholeSamples,
                      Recompute recompute = Recompute::kNone, SumArrival arrival = SumArrival::kWhenWaitedFor) {
  Twins group(arrival);
  TestStage holder(options, units, test_parameters(options), at::kDouble, group);
  model::VitStage stage(options, units, holder.buffer, group, recompute);
  CountingSink sink;
  tensor::StepContext whole = test_context(num_samples, Mode::kTraining);
  whole.sink = &sink;
  const auto parts = tensor::cut(whole, most_parts);
  const at::Tensor x = units.begin == 0 ? test_images(options, num_samples)
                                        : normal_tensor({num_samples, options.num_tokens(), options.embed_dim}, 31);
  const at::Tensor input = x.requires_grad_();
  const at::Tensor output = stage.forward(input, parts);
  PartsResult result{output.detach(), {}, {}, {}, group.sums};
  torch::autograd::backward({output}, {normal_tensor(output.sizes(), 12)});
  result.input_gradient = input.grad();
  for (const auto& spec : holder.buffer.specs()) {
    result.gradients[spec.name] = holder.buffer.parameter(spec.name).gradient.clone();
  }
  result.ready = sink.counts;
  return result;
}

std::vector<VitOptions> cut_models() {
  return {with_dropout(small_forecaster(), 0.3), with_tanh(small_forecaster()),
          with_dropout(small_classifier(model::Pooling::kToken), 0.3), small_classifier(model::Pooling::kMean)};
}

}  // namespace

TEST_CASE("micro-batch parts: each names its samples, and only a micro-batch of no samples has an empty one") {
  for (const int64_t samples : {0, 1, 2, 5, 8}) {
    for (const int most : {1, 2, 3}) {
      tensor::StepContext whole = test_context(samples, Mode::kTraining);
      whole.micro_batch = 7;
      const auto parts = tensor::cut(whole, most);
      CHECK(std::ssize(parts) == std::max<int64_t>(1, std::min<int64_t>(samples, most)));
      std::vector<int64_t> joined;
      for (const auto& part : parts) {
        CHECK((samples == 0 || !part.samples.empty()));
        CHECK(part.micro_batch == 7);
        CHECK(part.training());
        joined.insert(joined.end(), part.samples.begin(), part.samples.end());
      }
      CHECK(joined == whole.samples);
    }
  }
}

TEST_CASE("micro-batch parts: outputs and every gradient are those of the whole, with the same dropout") {
  for (const auto& options : cut_models()) {
    for (const Range units : {Range{0, options.num_units()}, Range{1, 3}}) {
      const PartsResult whole = run_parts(options, units, 1, kWholeSamples, Recompute::kNone, SumArrival::kAtOnce);
      for (const auto recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        for (const int most : {2, 3}) {
          CAPTURE(static_cast<int>(recompute));
          CAPTURE(most);
          const PartsResult parts = run_parts(options, units, most, kWholeSamples, recompute);
          CHECK(relative_error(parts.output, whole.output) <= kPartsBound);
          CHECK(parts.input_gradient.defined() == (units.begin > 0));
          if (units.begin > 0) {
            CHECK(relative_error(parts.input_gradient, whole.input_gradient) <= kPartsBound);
          }
          const WorstError worst = worst_gradient_error(parts.gradients, whole.gradients);
          CAPTURE(worst.name);
          CHECK(worst.error <= kPartsBound);
          CHECK(parts.ready.size() == whole.gradients.size());
          for (const auto& [parameter, count] : parts.ready) {
            CHECK(count == most);
          }
        }
      }
    }
  }
}

TEST_CASE("micro-batch parts: one sample is not cut, and in evaluation nothing is recorded") {
  const VitOptions options = small_forecaster();
  const Range units{0, options.num_units()};
  const PartsResult one = run_parts(options, units, 2, 1);
  CHECK(one.output.equal(run_parts(options, units, 1, 1).output));
  for (const auto& [parameter, count] : one.ready) {
    CHECK(count == 1);
  }
  Twins group(SumArrival::kWhenWaitedFor);
  TestStage holder(options, units, test_parameters(options), at::kDouble, group);
  const tensor::StepContext whole = test_context(kWholeSamples, Mode::kEvaluation);
  const at::NoGradGuard no_grad;
  const at::Tensor output = holder.stage.forward(test_images(options, kWholeSamples), tensor::cut(whole, 2));
  CHECK_FALSE(output.requires_grad());
  CHECK(relative_error(output, holder.stage.forward(test_images(options, kWholeSamples), whole)) <= kPartsBound);
}

// The least that a sublayer puts on the graph: norm, column-parallel and row-parallel linear.
TEST_CASE("micro-batch parts: while one's sum is on its way, another one's sublayer is computed") {
  constexpr uint64_t kSublayer = 3;
  const VitOptions options = small_forecaster();
  const Range blocks{1, 1 + options.depth};
  for (const auto recompute : {Recompute::kNone, Recompute::kSelective}) {
    const auto num_sums = static_cast<size_t>(2 * options.depth);
    const PartsResult whole = run_parts(options, blocks, 1, kWholeSamples, recompute);
    REQUIRE(whole.sums.size() == num_sums);
    for (const Sum& sum : whole.sums) {
      CHECK(sum.wait - sum.start < kSublayer);
    }
    const PartsResult parts = run_parts(options, blocks, 2, kWholeSamples, recompute);
    REQUIRE(parts.sums.size() == 2 * num_sums);
    for (size_t i = 0; i + 1 < parts.sums.size(); ++i) {  // behind the last one there is nothing
      CAPTURE(i);
      CHECK(parts.sums[i].wait - parts.sums[i].start > kSublayer);
    }
  }
}
