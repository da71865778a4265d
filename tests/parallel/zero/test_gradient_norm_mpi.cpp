// The global norm and those of parameters against the norms of the whole tensors, with parameters replicated and cut
// over tensor ranks.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "parallel/comm/make_communicator.h"
#include "parallel/zero/norms.h"
#include "parallel/zero/step_control.h"
#include "src/base/random.h"
#include "tests/support/data_axis.h"
#include "tests/support/mpi_test.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

namespace {

// tp fastest, then dp, then pp.
struct Place {
  int tensor_size, data_size, pipeline_size;
  int tensor_rank, data_rank, pipeline_rank;
};

Place place_of(int rank, int tensor_size, int data_size, int pipeline_size) {
  return {tensor_size,
          data_size,
          pipeline_size,
          rank % tensor_size,
          rank / tensor_size % data_size,
          rank / tensor_size / data_size};
}

std::string name_of(const char* kind, int stage) {
  return kind + std::to_string(stage);
}

// Two parameters a stage: one that tensor ranks cut, one that they replicate.
std::vector<tensor::ParameterSpec> specs(const Place& place) {
  const Range rows = Partition(14, place.tensor_size).part(place.tensor_rank);
  return {tensor::sharded(name_of("cut", place.pipeline_rank), {14, 9}, 0, rows.begin, rows.end, 1, {},
                          tensor::DecayGroup::kMatrix),
          tensor::replicated(name_of("whole", place.pipeline_rank), {77}, {}, tensor::DecayGroup::kVector)};
}

double element(const std::string& name, int64_t i) {
  return RandomStream(3, Purpose::kTest, name_key(name.c_str())).normal(static_cast<uint64_t>(i));
}

// Of a whole parameter.
double norm_of(const tensor::ParameterSpec& spec) {
  long double sum = 0;
  for (int64_t i = 0; i < tensor::num_elements(spec.global_shape); ++i) {
    sum += std::pow(static_cast<long double>(element(spec.name, i)), 2);
  }
  return static_cast<double>(std::sqrt(sum));
}

double norm_of_whole_model(int pipeline_size) {
  long double sum = 0;
  for (int stage = 0; stage < pipeline_size; ++stage) {
    for (int64_t i = 0; i < 14 * 9; ++i) {
      sum += std::pow(static_cast<long double>(element(name_of("cut", stage), i)), 2);
    }
    for (int64_t i = 0; i < 77; ++i) {
      sum += std::pow(static_cast<long double>(element(name_of("whole", stage), i)), 2);
    }
  }
  return static_cast<double>(std::sqrt(sum));
}

void fill_gradients(tensor::ParameterBuffer& buffer) {
  for (size_t p = 0; p < buffer.specs().size(); ++p) {
    const auto& spec = buffer.specs()[p];
    const int64_t first =
        spec.boxes.empty() ? 0 : spec.boxes[0].global_offset[0] * (spec.local_shape.size() == 2 ? 9 : 1);
    const at::Tensor flat = buffer.parameter(static_cast<int>(p)).gradient.view(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      flat[i].fill_(element(spec.name, first + i));
    }
  }
}

// What a reduce-scatter leaves outside of the owned range is not to be looked at.
void spoil_what_others_own(tensor::ParameterBuffer& buffer, int shard) {
  const auto& layout = buffer.layout();
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const Range own = layout.shard_of(static_cast<int>(b), shard);
    const at::Tensor kept = buffer.gradients().narrow(0, own.begin, own.size()).clone();
    buffer.gradients().narrow(0, layout.buckets[b].range.begin, layout.buckets[b].range.size()).fill_(1e6);
    buffer.gradients().narrow(0, own.begin, own.size()).copy_(kept);
  }
}

// What a step decides by the norm of the whole gradient.
StepScalars decided(const GradientNorm& norm, double max_norm = 0.0, double loss_scale = 1.0) {
  StepControl control(at::kCPU);
  StepScalars step;
  step.max_norm = max_norm;
  step.loss_scale = loss_scale;
  step.squares = step.not_finite = 7.0;  // of the step before
  control.set(step);
  norm.sum_into(control.sums());
  control.decide();
  return control.read();
}

// Calls `check(place, world)` for each layout of the world's ranks.
template <class Check>
void for_each_layout(const Check& check) {
  const auto world = comm::make_communicator("world", comm::MpiGroup::world(), at::kCPU);
  const int size = world->size();
  for (int tp = 1; tp <= size; ++tp) {
    for (int dp = 1; dp <= size / tp; ++dp) {
      if (size % (tp * dp) == 0) {
        check(place_of(world->rank(), tp, dp, size / (tp * dp)), *world);
      }
    }
  }
}

}  // namespace

TEST_CASE("grad_norm: every parameter counts once, and all ranks get the same bits") {
  for_each_layout([](const Place& place, comm::Communicator& world) {
    for (const int part : testing::part_sizes(place.data_size)) {
      const StatePlace of_state{place.data_rank % part, place.data_rank / part};
      tensor::ParameterBuffer buffer(specs(place), tensor::make_flat_layout(specs(place), 50, part), at::kDouble,
                                     at::kDouble, at::kCPU);
      fill_gradients(buffer);
      spoil_what_others_own(buffer, of_state.shard);
      const GradientNorm norm(buffer, of_state, place.tensor_rank, world);
      const StepScalars result = decided(norm);
      CHECK_FALSE(result.is_skipped());
      CHECK(result.norm == doctest::Approx(norm_of_whole_model(place.pipeline_size)).epsilon(1e-14));
      const at::Tensor largest = at::full({1}, result.norm, at::kDouble);
      const at::Tensor negated = -largest;
      world.all_reduce(largest, comm::ReduceOp::kMax).wait();
      world.all_reduce(negated, comm::ReduceOp::kMax).wait();
      CHECK(largest.item<double>() == -negated.item<double>());
    }
  });
}

TEST_CASE("parameter norms: those of the whole parameters, and all ranks of a stage get the same bits") {
  for_each_layout([](const Place& place, comm::Communicator& world) {
    const comm::MpiGroup ranks = comm::MpiGroup::world();
    const int stage_ranks = place.tensor_size * place.data_size;
    const auto tensor = comm::make_communicator("tensor", ranks.split(world.rank() / place.tensor_size), at::kCPU);
    const comm::MpiGroup replicas = ranks.split(world.rank() / stage_ranks * place.tensor_size + place.tensor_rank);
    for (const int part : testing::part_sizes(place.data_size)) {
      const testing::DataAxis axis(replicas, part);
      const auto layout = tensor::make_flat_layout(specs(place), 50, part);
      tensor::ParameterBuffer buffer(specs(place), layout, at::kDouble, at::kDouble, at::kCPU);
      fill_gradients(buffer);
      ParameterNorms norms(buffer, axis.groups(), *tensor);
      norms.clear();
      for (size_t b = 0; b < layout.buckets.size(); ++b) {
        const Range own = layout.shard_of(static_cast<int>(b), place.data_rank % part);
        for (const int p : layout.buckets[b].members) {
          const Range slot = layout.slots[static_cast<size_t>(p)];
          for (int64_t i = std::max(own.begin, slot.begin); i < std::min(own.end, slot.end); ++i) {
            norms.sums_of(p)[0] += buffer.gradients()[i].square();
            norms.sums_of(p)[1] += buffer.gradients()[i].mul(2.0).square();
          }
        }
      }
      norms.reduce();
      for (int p = 0; p < 2; ++p) {
        const double expected = norm_of(buffer.specs()[static_cast<size_t>(p)]);
        CHECK(norms.weight_norm(p) == doctest::Approx(expected).epsilon(1e-14));
        CHECK(norms.update_norm(p) == doctest::Approx(2.0 * expected).epsilon(1e-14));
        const at::Tensor largest = at::full({1}, norms.weight_norm(p), at::kDouble);
        const at::Tensor negated = -largest;
        for (comm::Communicator* const group : {&axis.data(), tensor.get()}) {
          group->all_reduce(largest, comm::ReduceOp::kMax).wait();
          group->all_reduce(negated, comm::ReduceOp::kMax).wait();
        }
        CHECK(largest.item<double>() == -negated.item<double>());
      }
    }
  });
}

TEST_CASE("grad_norm: one element that is not finite on one rank is seen by all") {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for_each_layout([bad](const Place& place, comm::Communicator& world) {
      const auto layout = tensor::make_flat_layout(specs(place), 50, place.data_size);
      tensor::ParameterBuffer buffer(specs(place), layout, at::kFloat, at::kFloat, at::kCPU);
      fill_gradients(buffer);
      const GradientNorm norm(buffer, {place.data_rank, 0}, place.tensor_rank, world);
      CHECK_FALSE(decided(norm).is_skipped());
      const int culprit = place.tensor_size * place.data_size * place.pipeline_size - 1;
      const int index = place.tensor_rank == 0 ? 1 : 0;  // replicated ones are counted on tensor rank 0
      const Range slot = layout.slots[static_cast<size_t>(index)];
      bool spoiled = false;
      for (size_t b = 0; b < layout.buckets.size() && world.rank() == culprit; ++b) {
        const Range own = layout.shard_of(static_cast<int>(b), place.data_rank);
        const int64_t last = std::min(own.end, slot.end) - 1;
        if (last >= std::max(own.begin, slot.begin)) {
          buffer.gradients()[last].fill_(bad);
          spoiled = true;
        }
      }
      const at::Tensor any = at::full({1}, spoiled ? 1.0 : 0.0, at::kDouble);
      world.all_reduce(any, comm::ReduceOp::kMax).wait();
      const StepScalars result = decided(norm);
      CHECK(result.is_skipped() != (any.item<double>() == 0.0));
      CHECK(std::isnan(result.norm) == result.is_skipped());
    });
  }
}

TEST_CASE("grad_norm: long sums do not depend on the number of threads and lose nothing") {
  const auto self = comm::make_communicator("world", comm::MpiGroup::world().split(testing::world_rank()), at::kCPU);
  constexpr int64_t kCount = 1'000'003;
  const std::vector<tensor::ParameterSpec> one = {tensor::replicated("w", {kCount}, {}, tensor::DecayGroup::kMatrix)};
  const auto layout = tensor::make_flat_layout(one, 1, 1);
  tensor::ParameterBuffer buffer(one, layout, at::kFloat, at::kFloat, at::kCPU);
  buffer.parameter(0).gradient.fill_(0.5F);
  const GradientNorm norm(buffer, {}, 0, *self);
  CHECK(decided(norm).norm == std::sqrt(0.25 * kCount));  // the sum is exact in double
}

TEST_CASE("grad_norm: the gradient is scaled by the clip coefficient over the loss scale, which the norm is without") {
  const auto self = comm::make_communicator("world", comm::MpiGroup::world().split(testing::world_rank()), at::kCPU);
  const std::vector<tensor::ParameterSpec> one = {tensor::replicated("w", {25}, {}, tensor::DecayGroup::kMatrix)};
  tensor::ParameterBuffer buffer(one, tensor::make_flat_layout(one, 1, 1), at::kHalf, at::kFloat, at::kCPU);
  const GradientNorm norm(buffer, {}, 0, *self);
  buffer.parameter(0).gradient.fill_(0.8F * 64);
  const double expected = std::sqrt(25 * std::pow(static_cast<double>(0.8F), 2));
  for (const double max_norm : {0.0, 0.5, 100.0}) {
    const StepScalars step = decided(norm, max_norm, /*loss_scale=*/64.0);
    CHECK(step.norm == doctest::Approx(expected).epsilon(1e-15));
    CHECK(step.gradient_scale == (max_norm == 0.5 ? 0.5 / (step.norm + 1e-6) : 1.0) / 64.0);
  }
  buffer.parameter(0).gradient.select(0, 3).fill_(std::numeric_limits<float>::infinity());
  CHECK(decided(norm, 0.5, 64.0).is_skipped());
}

TEST_CASE("grad_norm: the clip coefficient is torch's") {
  CHECK(clip_coefficient(0.5, 1.0) == 1.0);
  CHECK(clip_coefficient(4.0, 1.0) == 1.0 / (4.0 + 1e-6));
  CHECK(clip_coefficient(0.0, 1.0) == 1.0);
}
