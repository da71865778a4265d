// The runner on small stages against one process's autograd: losses, every weight gradient, order of release.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "parallel/comm/make_communicator.h"
#include "parallel/pipeline/runner.h"
#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/random.h"
#include "tests/support/compare.h"
#include "tests/support/mpi_test.h"

using namespace vit_hybrid;
using namespace vit_hybrid::pipeline;

namespace {

constexpr int64_t kFeatures = 6;
constexpr int kStages = 4;  // the most that is tested
constexpr double kGlobalBatch = 13.0;

at::Tensor normals(at::IntArrayRef shape, uint64_t key) {
  const at::Tensor values = at::empty(shape, at::kDouble);
  const RandomStream stream(17, Purpose::kTest, key);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.data_ptr<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  }
  return values;
}

// Two layers a stage. Micro-batches have different numbers of samples.
at::Tensor weight(int stage, int layer) {
  return normals({kFeatures, kFeatures}, static_cast<uint64_t>(2 * stage + layer)).mul(0.5);
}
int64_t num_samples(int micro_batch) {
  return 1 + micro_batch % 3;
}
at::Tensor samples(int micro_batch) {
  return normals({num_samples(micro_batch), kFeatures}, static_cast<uint64_t>(1000 + micro_batch));
}

// Outcome of one training step of all stages.
struct Step {
  double loss = 0;
  std::vector<at::Tensor> gradients;  // by 2 stage + layer
};

// Plain autograd over the whole model in one process.
Step reference_step(int num_stages, int num_micro_batches) {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 2 * num_stages; ++i) {
    weights.push_back(weight(i / 2, i % 2).set_requires_grad(true));
  }
  Step step;
  for (int m = 0; m < num_micro_batches; ++m) {
    at::Tensor x = samples(m);
    for (const at::Tensor& w : weights) {
      x = at::tanh(at::matmul(x, w));
    }
    const at::Tensor loss = x.square().sum().div(kGlobalBatch);
    loss.backward();
    step.loss += loss.item<double>();
  }
  for (const at::Tensor& w : weights) {
    step.gradients.push_back(w.grad().defined() ? w.grad() : at::zeros({kFeatures, kFeatures}, at::kDouble));
  }
  return step;
}

class ToyStage final : public StageProgram {
 public:
  ToyStage(int stage, int num_stages) : stage_(stage), num_stages_(num_stages) {
    for (int layer = 0; layer < 2; ++layer) {
      weights_.push_back(weight(stage, layer));
      gradients_.push_back(at::zeros({kFeatures, kFeatures}, at::kDouble));
    }
  }

  at::Tensor input(int micro_batch) override {
    CHECK(stage_ == 0);
    return samples(micro_batch);
  }
  std::vector<int64_t> input_shape(int micro_batch) const override {
    CHECK(stage_ > 0);
    return {num_samples(micro_batch), kFeatures};
  }
  at::ScalarType activation_type() const override { return at::kDouble; }

  at::Tensor forward(int micro_batch, const at::Tensor& input) override {
    in_flight_.insert(micro_batch);
    most_in_flight_ = std::max(most_in_flight_, in_flight_.size());
    at::Tensor x = input;
    for (size_t layer = 0; layer < 2; ++layer) {
      x = at::tanh(product(x, layer));
    }
    return stage_ == num_stages_ - 1 ? x.square().sum().div(kGlobalBatch) : x;
  }
  void release(int micro_batch) override { CHECK(in_flight_.erase(micro_batch) == 1); }

  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  size_t num_in_flight() const { return in_flight_.size(); }
  size_t most_in_flight() const { return most_in_flight_; }

 private:
  // x w, whose backward adds to the weight's gradient; the first layer of the model gives no gradient of its input.
  at::Tensor product(const at::Tensor& x, size_t layer) {
    const at::Tensor y = without_grad([&] { return at::matmul(x, weights_[layer]); });
    const bool first = stage_ == 0 && layer == 0;
    const auto backward = [this, layer, first, saved = x.detach()](const at::Tensor& dy) {
      gradients_[layer].add_(at::matmul(saved.t(), dy));
      return std::vector<at::Tensor>{first ? at::Tensor() : at::matmul(dy, weights_[layer].t())};
    };
    return record("toy", y, {x}, backward);
  }

  int stage_;
  int num_stages_;
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> gradients_;
  std::set<int> in_flight_;
  size_t most_in_flight_ = 0;
};

int64_t current_activations() {
  return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kActivations)];
}

// Of one stage, with these losses in fp32.
class LossStage final : public StageProgram {
 public:
  explicit LossStage(std::vector<double> losses) : losses_(std::move(losses)) {}
  at::Tensor input(int micro_batch) override {
    return at::full({}, losses_[static_cast<size_t>(micro_batch)], at::kFloat);
  }
  std::vector<int64_t> input_shape(int) const override { return {}; }
  at::ScalarType activation_type() const override { return at::kFloat; }
  at::Tensor forward(int, const at::Tensor& input) override { return input.mul(1.0); }
  void release(int) override {}

 private:
  std::vector<double> losses_;
};

// Passes on what it gets, the second of two stages so late that messages wait for it.
class LateStage final : public StageProgram {
 public:
  static constexpr int64_t kElements = 1 << 16;
  static constexpr int64_t kBytes = kElements * static_cast<int64_t>(sizeof(double));

  explicit LateStage(int stage) : stage_(stage) {}
  at::Tensor input(int) override { return at::zeros({kElements}, at::kDouble); }
  std::vector<int64_t> input_shape(int) const override { return {kElements}; }
  at::ScalarType activation_type() const override { return at::kDouble; }
  at::Tensor forward(int, const at::Tensor& input) override {
    if (stage_ == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return stage_ == 1 ? input.sum() : input.mul(2.0);
  }
  void release(int micro_batch) override {
    if (micro_batch == 0) {
      after_backward_ = current_activations();
    }
  }
  int64_t after_backward() const { return after_backward_; }

 private:
  int stage_;
  int64_t after_backward_ = 0;
};

// Consecutive ranks of the world in groups of `size`; the last group takes what is left.
std::unique_ptr<comm::Communicator> groups_of(int size) {
  const comm::MpiGroup world = comm::MpiGroup::world();
  return comm::make_communicator("pipeline", world.split(world.rank() / size), at::kCPU);
}

double loss_of(PipelineRunner& runner, const Schedule& schedule) {
  const at::Tensor loss = at::zeros({}, at::kDouble);
  runner.run(schedule, 1.0, loss);
  return loss.item<double>();
}

void check_gradients(const ToyStage& stage, int number, const Step& expected) {
  for (size_t layer = 0; layer < 2; ++layer) {
    const at::Tensor& reference = expected.gradients[2 * static_cast<size_t>(number) + layer];
    CHECK(testing::relative_error(stage.gradients()[layer], reference) <= 1e-14);
  }
}

}  // namespace

TEST_CASE("pipeline_runner: losses and weight gradients are those of one process") {
  for (int size = 1; size <= kStages; ++size) {
    const auto pipeline = groups_of(size);
    const int rank = pipeline->rank();
    for (int micro_batches = 0; micro_batches <= 7; ++micro_batches) {
      const Step expected = reference_step(pipeline->size(), micro_batches);
      for (const char* name : {"gpipe", "1f1b"}) {
        CAPTURE(name);
        CAPTURE(micro_batches);
        ToyStage stage(rank, pipeline->size());
        PipelineRunner runner(*pipeline, {&stage});
        const Schedule schedule = make_schedule(name, pipeline->size(), micro_batches);
        const double loss = loss_of(runner, schedule);
        CHECK(loss == doctest::Approx(rank == pipeline->size() - 1 ? expected.loss : 0.0).epsilon(1e-14));
        check_gradients(stage, rank, expected);
        CHECK(stage.num_in_flight() == 0);
        const auto peaks = check_schedule(schedule).peak_in_flight;
        CHECK(static_cast<int>(stage.most_in_flight()) == peaks[static_cast<size_t>(rank)]);
        // A second step adds to the gradients: nothing of the first is left behind.
        runner.run(schedule);
        Step twice = expected;
        for (at::Tensor& gradient : twice.gradients) {
          gradient = gradient.mul(2.0);
        }
        check_gradients(stage, rank, twice);
      }
    }
  }
}

TEST_CASE("pipeline_runner: evaluation gives the losses and keeps nothing") {
  for (int size = 1; size <= kStages; ++size) {
    const auto pipeline = groups_of(size);
    const bool last = pipeline->rank() == pipeline->size() - 1;
    for (const int micro_batches : {0, 1, 5}) {
      ToyStage stage(pipeline->rank(), pipeline->size());
      PipelineRunner runner(*pipeline, {&stage});
      const double loss = loss_of(runner, make_forward_only(pipeline->size(), micro_batches));
      const Step expected = reference_step(pipeline->size(), micro_batches);
      CHECK(loss == doctest::Approx(last ? expected.loss : 0.0).epsilon(1e-14));
      CHECK(stage.num_in_flight() == 0);
      CHECK(stage.most_in_flight() == (micro_batches > 0 ? 1 : 0));
      for (const at::Tensor& gradient : stage.gradients()) {
        CHECK(gradient.eq(0).all().item<bool>());
      }
    }
  }
}

TEST_CASE("pipeline_runner: losses are added in double, in the order of the micro-batches, to what is there") {
  const auto self = groups_of(1);
  // A sum in fp32, or in another order, is another one.
  LossStage stage({1.0, 0x1p-30, 0x1p-53, 0x1p-53});
  PipelineRunner runner(*self, {&stage});
  for (const Schedule& schedule :
       {make_schedule("1f1b", 1, 4), make_schedule("gpipe", 1, 4), make_forward_only(1, 4)}) {
    CHECK(loss_of(runner, schedule) == 1.0 + 0x1p-30);
    const at::Tensor loss = at::full({}, 2.0, at::kDouble);
    runner.run(schedule, 1.0, loss);
    CHECK(loss.item<double>() == 3.0 + 0x1p-30);
    runner.run(schedule);  // nobody wants it
    CHECK(loss.item<double>() == 3.0 + 0x1p-30);
  }
}

TEST_CASE("pipeline_runner: several stages on a rank hand over without a message") {
  constexpr int kMicroBatches = 3;
  const auto pipeline = groups_of(2);
  const int ranks = pipeline->size();
  const Step expected = reference_step(kStages, kMicroBatches);
  for (const bool interleaved : {false, true}) {
    Schedule schedule;
    schedule.name = "several stages a rank";
    schedule.num_stages = kStages;
    schedule.num_micro_batches = kMicroBatches;
    schedule.actions.resize(static_cast<size_t>(ranks));
    std::vector<std::unique_ptr<ToyStage>> stages(kStages);
    std::vector<StageProgram*> programs;
    for (int stage = 0; stage < kStages; ++stage) {
      const int rank = interleaved ? stage % ranks : stage * ranks / kStages;
      schedule.rank_of_stage.push_back(rank);
      if (rank == pipeline->rank()) {
        auto& program = stages[static_cast<size_t>(stage)];
        program = std::make_unique<ToyStage>(stage, kStages);
        programs.push_back(program.get());
      }
    }
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int i = 0; i < kStages; ++i) {
        const int stage = kind == ActionKind::kForward ? i : kStages - 1 - i;
        for (int m = 0; m < kMicroBatches; ++m) {
          const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
          schedule.actions[static_cast<size_t>(rank)].push_back({kind, stage, m});
        }
      }
    }
    check_schedule(schedule);
    PipelineRunner runner(*pipeline, programs);
    const double loss = loss_of(runner, schedule);
    if (pipeline->rank() == schedule.rank_of_stage.back()) {
      CHECK(loss == doctest::Approx(expected.loss).epsilon(1e-14));
    }
    for (int stage = 0; stage < kStages; ++stage) {
      if (const auto& program = stages[static_cast<size_t>(stage)]) {
        check_gradients(*program, stage, expected);
      }
    }
  }
}

TEST_CASE("pipeline_runner: replicas with different numbers of micro-batches do not disturb each other") {
  const auto pipeline = groups_of(2);
  const int replica = testing::world_rank() / 2;
  const int micro_batches = replica % 3;  // 0, 1, 2, 0
  ToyStage stage(pipeline->rank(), pipeline->size());
  PipelineRunner runner(*pipeline, {&stage});
  runner.run(make_1f1b(pipeline->size(), micro_batches));
  check_gradients(stage, pipeline->rank(), reference_step(pipeline->size(), micro_batches));
}

TEST_CASE("pipeline_runner: 1F1B keeps fewer activations than GPipe, and both give all memory back") {
  const MemoryTracker::Attachment attachment;
  constexpr int kMicroBatches = 7;
  const auto pipeline = groups_of(2);
  ToyStage stage(pipeline->rank(), pipeline->size());
  PipelineRunner runner(*pipeline, {&stage});
  const auto peak = [] { return MemoryTracker::report().peak[static_cast<size_t>(MemoryClass::kActivations)]; };
  std::vector<int64_t> peaks;
  for (const char* name : {"gpipe", "1f1b"}) {
    const int64_t before = current_activations();
    MemoryTracker::reset_peaks();
    runner.run(make_schedule(name, pipeline->size(), kMicroBatches));
    CHECK(current_activations() == before);
    peaks.push_back(peak());
  }
  CHECK(peaks[1] < peaks[0]);
}

TEST_CASE("pipeline_runner: what a late receiver has taken does not stay through the sender's next backward") {
  if (testing::world_size() < 2) {
    return;
  }
  const MemoryTracker::Attachment attachment;
  const auto pipeline = groups_of(2);
  LateStage stage(pipeline->rank());
  PipelineRunner runner(*pipeline, {&stage});
  const int64_t before = current_activations();
  runner.run(make_gpipe(2, 2));
  if (pipeline->rank() == 0) {
    // Both inputs, the first one's gradient, and the second one's on its way.
    CHECK(stage.after_backward() - before == 4 * LateStage::kBytes);
  }
}

TEST_CASE("pipeline_runner: a schedule for another number of ranks, or a stage without program, is refused") {
  const auto pipeline = groups_of(1);
  ToyStage stage(0, 1);
  PipelineRunner one(*pipeline, {&stage});
  CHECK_THROWS_AS(one.run(make_gpipe(2, 1)), Error);
  PipelineRunner none(*pipeline, {});
  CHECK_THROWS_AS(none.run(make_gpipe(1, 1)), Error);
  PipelineRunner two(*pipeline, {&stage, &stage});
  CHECK_THROWS_AS(two.run(make_gpipe(1, 1)), Error);
}
