// The reducer at several data degrees with uneven contributions, in shuffled order, with and without ZeRO-1, over all
// of the axis and over parts of it.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>

#include "parallel/comm/make_communicator.h"
#include "parallel/zero/gradient_reducer.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "tests/support/data_axis.h"

using namespace vit_hybrid;
using namespace vit_hybrid::zero;

namespace {

const std::vector<int64_t> kSizes = {40, 3, 100, 17, 1, 64, 0, 33};

std::vector<tensor::ParameterSpec> specs() {
  std::vector<tensor::ParameterSpec> made;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    made.push_back(tensor::replicated("p" + std::to_string(i), {kSizes[i]}, {}, tensor::DecayGroup::kMatrix));
  }
  return made;
}

// Small integers, so that sums are exact in any order.
double contribution(int step, int replica, int micro_batch, int parameter) {
  return 1 + (step * 5 + replica * 31 + micro_batch * 7 + parameter * 3) % 50;
}

int num_micro_batches(int replica, int step) {
  return (replica + step) % 3;
}  // also none

// Every parameter gets its contributions, in an order of its own on each replica.
void contribute(tensor::ParameterBuffer& buffer, GradientReducer& reducer, int step, int replica) {
  const auto num_parameters = static_cast<int>(kSizes.size());
  for (int m = 0; m < num_micro_batches(replica, step); ++m) {
    std::vector<int> order(kSizes.size());
    std::iota(order.begin(), order.end(), 0);
    const RandomStream random(1, Purpose::kTest, static_cast<uint64_t>(step * 100 + replica * 10 + m));
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return random.bits(static_cast<uint64_t>(a)) < random.bits(static_cast<uint64_t>(b));
    });
    for (int i = 0; i < num_parameters; ++i) {
      const int parameter = order[static_cast<size_t>(i)];
      buffer.parameter(parameter).gradient.add_(contribution(step, replica, m, parameter));
      reducer.ready(parameter, m);
    }
  }
}

at::Tensor expected_gradients(const tensor::FlatLayout& layout, int step, int replicas) {
  at::Tensor flat = at::zeros({layout.size}, at::kDouble);
  for (size_t p = 0; p < kSizes.size(); ++p) {
    double sum = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      for (int m = 0; m < num_micro_batches(replica, step); ++m) {
        sum += contribution(step, replica, m, static_cast<int>(p));
      }
    }
    flat.narrow(0, layout.slots[p].begin, layout.slots[p].size()).fill_(sum);
  }
  return flat;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("reducer: sums over replicas with different numbers of micro-batches, in any order") {
  for (const int size : {1, 2, 3, 4, 8}) {
    const comm::MpiGroup ranks = testing::data_ranks(size);
    for (const int part : testing::part_sizes(ranks.size())) {
      const testing::DataAxis axis(ranks, part);
      const comm::Communicator* const data = &axis.data();
      const StateGroups groups = axis.groups();
      CHECK(groups.num_shards() == part);
      for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        const PrecisionPolicy precision{type, type, type, type};
        const auto layout = tensor::make_flat_layout(specs(), 100, part);
        REQUIRE(layout.buckets.size() >= 2);
        tensor::ParameterBuffer buffer(specs(), layout, type, type, at::kCPU);
        GradientReducer reducer(buffer, groups, precision);
        for (int step = 0; step < 4; ++step) {
          reducer.begin_step(num_micro_batches(data->rank(), step));
          contribute(buffer, reducer, step, data->rank());
          reducer.finish();
          const at::Tensor expected = expected_gradients(layout, step, data->size());
          for (size_t b = 0; b < layout.buckets.size(); ++b) {
            const Range own = layout.shard_of(static_cast<int>(b), data->rank() % part);
            CHECK(buffer.gradients()
                      .narrow(0, own.begin, own.size())
                      .to(at::kDouble)
                      .equal(expected.narrow(0, own.begin, own.size())));
          }
        }
      }
    }
  }
}

TEST_CASE("reducer: a part of the model that is not trained, or trained twice, is found") {
  const testing::DataAxis alone(testing::data_ranks(1), 1);
  const auto layout = tensor::make_flat_layout(specs(), 100, 1);
  tensor::ParameterBuffer buffer(specs(), layout, at::kFloat, at::kFloat, at::kCPU);
  const int last = static_cast<int>(kSizes.size()) - 1;
  SUBCASE("too few contributions") {
    GradientReducer reducer(buffer, alone.groups(), PrecisionPolicy{});
    reducer.begin_step(2);
    reducer.ready(last, 0);
    const std::string message = message_of([&] { reducer.finish(); });
    CHECK(message.find("p0 lacks the contributions of 2 micro-batches: a part of the model is not trained") !=
          std::string::npos);
  }
  SUBCASE("too many") {
    GradientReducer reducer(buffer, alone.groups(), PrecisionPolicy{});
    reducer.begin_step(1);
    reducer.ready(0, 0);
    const std::string message = message_of([&] { reducer.ready(0, 0); });
    CHECK(message.find("p0 got a contribution of micro-batch 0 that the schedule did not foretell") !=
          std::string::npos);
  }
  SUBCASE("a layout for another number of shards") {
    const auto three = tensor::make_flat_layout(specs(), 100, 3);
    tensor::ParameterBuffer wrong(specs(), three, at::kFloat, at::kFloat, at::kCPU);
    CHECK_THROWS_AS(GradientReducer(wrong, alone.groups(), PrecisionPolicy{}), Error);
  }
}
