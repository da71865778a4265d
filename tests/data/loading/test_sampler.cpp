// The sampler: every sample exactly once per epoch in every layout, keyed orders, uneven last batches, micro-batches.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "data/loading/sampler.h"
#include "src/base/error.h"

namespace vit_hybrid::data {
namespace {

using Samples = std::vector<int64_t>;

Samples copy(std::span<const int64_t> span) {
  return {span.begin(), span.end()};
}

// All samples of an epoch as the replicas read them, replica after replica in each step.
Samples read_by_replicas(const EpochPlan& plan, int64_t num_replicas, int64_t micro_batch_size) {
  Samples all;
  for (int64_t step = 0; step < plan.num_steps(); ++step) {
    for (int64_t replica = 0; replica < num_replicas; ++replica) {
      for (const auto& micro_batch : micro_batches(plan.replica_batch(step, replica, num_replicas), micro_batch_size)) {
        CHECK(!micro_batch.empty());
        CHECK(static_cast<int64_t>(micro_batch.size()) <= micro_batch_size);
        all.insert(all.end(), micro_batch.begin(), micro_batch.end());
      }
    }
  }
  return all;
}

Samples one_to(int64_t count) {
  Samples samples(static_cast<size_t>(count));
  std::iota(samples.begin(), samples.end(), int64_t{0});
  return samples;
}

}  // namespace

TEST_CASE("sampler: every sample is read once per epoch, in the same order in every layout") {
  for (const int64_t num_samples : {1, 2, 16, 17, 33, 101}) {
    for (const int64_t batch : {1, 3, 16, 17, 200}) {
      const DistributedSampler sampler({.num_samples = num_samples, .global_batch_size = batch, .seed = 5});
      const EpochPlan plan = sampler.epoch(3);
      CHECK(plan.num_steps() == (num_samples + batch - 1) / batch);
      const Samples whole = read_by_replicas(plan, 1, batch);
      Samples sorted = whole;
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == one_to(num_samples));
      for (const int64_t num_replicas : {2, 3, 4, 7}) {
        for (const int64_t micro_batch_size : {1, 2, 5}) {
          CHECK(read_by_replicas(plan, num_replicas, micro_batch_size) == whole);
        }
      }
    }
  }
}

TEST_CASE("sampler: a batch of 17 over 4 replicas, and a last batch of 1") {
  const DistributedSampler sampler({.num_samples = 35, .global_batch_size = 17, .order = SampleOrder::kInOrder});
  const EpochPlan plan = sampler.epoch(0);
  REQUIRE(plan.num_steps() == 3);
  CHECK(copy(plan.replica_batch(0, 0, 4)) == Samples{0, 1, 2, 3});
  CHECK(copy(plan.replica_batch(0, 1, 4)) == Samples{4, 5, 6, 7});
  CHECK(copy(plan.replica_batch(0, 2, 4)) == Samples{8, 9, 10, 11});
  CHECK(copy(plan.replica_batch(0, 3, 4)) == Samples{12, 13, 14, 15, 16});
  CHECK(copy(plan.batch(2)) == Samples{34});
  CHECK(plan.replica_batch(2, 0, 4).empty());
  CHECK(plan.replica_batch(2, 2, 4).empty());
  CHECK(copy(plan.replica_batch(2, 3, 4)) == Samples{34});
  CHECK(micro_batches(plan.replica_batch(2, 0, 4), 2).empty());
}

TEST_CASE("sampler: micro-batches differ by at most one sample") {
  const Samples samples = one_to(17);
  const auto parts = micro_batches(samples, 5);
  REQUIRE(parts.size() == 4);
  Samples sizes;
  for (const auto& part : parts) {
    sizes.push_back(static_cast<int64_t>(part.size()));
  }
  CHECK(sizes == Samples{4, 4, 4, 5});
  CHECK(num_micro_batches(0, 5) == 0);
  CHECK(num_micro_batches(5, 5) == 1);
  CHECK(num_micro_batches(6, 5) == 2);
}

TEST_CASE("sampler: dropping the last batch, and its refusal where nothing is left") {
  const SamplerOptions options{.num_samples = 37, .global_batch_size = 16, .last_batch = LastBatch::kDrop, .seed = 1};
  const DistributedSampler sampler(options);
  CHECK(sampler.steps_per_epoch() == 2);
  const Samples read = read_by_replicas(sampler.epoch(0), 3, 4);
  CHECK(read.size() == 32);
  CHECK(std::set<int64_t>(read.begin(), read.end()).size() == 32);
  CHECK_THROWS_AS(DistributedSampler({.num_samples = 15, .global_batch_size = 16, .last_batch = LastBatch::kDrop}),
                  Error);
  CHECK_THROWS_AS(DistributedSampler({.num_samples = 0, .global_batch_size = 16}), Error);
  CHECK_THROWS_AS(DistributedSampler({.num_samples = 4, .global_batch_size = 0}), Error);
}

TEST_CASE("sampler: the order is a function of seed and epoch") {
  const auto order = [](uint64_t seed, int64_t epoch) {
    return copy(DistributedSampler({.num_samples = 64, .global_batch_size = 64, .seed = seed}).epoch(epoch).batch(0));
  };
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 0) != order(2, 0));
  CHECK(order(1, 0) != one_to(64));
  // Independent of the batch size: the same order is cut elsewhere.
  const EpochPlan small = DistributedSampler({.num_samples = 64, .global_batch_size = 5, .seed = 1}).epoch(0);
  CHECK(read_by_replicas(small, 1, 5) == order(1, 0));
}

TEST_CASE("sampler: each place is equally likely for each sample") {
  // 4,000 epochs of 5 samples: a count of (sample, place) is binomial(4000, 1/5) with a deviation of 25.3.
  constexpr int kEpochs = 4000;
  std::map<std::pair<size_t, int64_t>, int> counts;
  const DistributedSampler sampler({.num_samples = 5, .global_batch_size = 5, .seed = 9});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Samples order = copy(sampler.epoch(epoch).batch(0));
    for (size_t place = 0; place < order.size(); ++place) {
      ++counts[{place, order[place]}];
    }
  }
  CHECK(counts.size() == 25);
  for (const auto& [place, count] : counts) {
    CHECK(std::abs(count - kEpochs / 5) < 5 * 25.3);
  }
}

TEST_CASE("sampler: any step of any epoch can be asked for again") {
  const DistributedSampler sampler({.num_samples = 1000, .global_batch_size = 16, .seed = 3});
  const EpochPlan first = sampler.epoch(7);
  const Samples before = copy(first.replica_batch(41, 2, 3));
  CHECK(copy(DistributedSampler(sampler.options()).epoch(7).replica_batch(41, 2, 3)) == before);
  CHECK_THROWS_AS(first.batch(63), Error);
  CHECK_THROWS_AS(first.batch(-1), Error);
}

TEST_CASE("sampler: a stop anywhere and other batches after it leave every sample seen once") {
  const auto options = [](int64_t batch, LastBatch last) {
    return SamplerOptions{.num_samples = 23, .global_batch_size = batch, .last_batch = last, .seed = 4};
  };
  for (const SampleOrder order : {SampleOrder::kShuffled, SampleOrder::kInOrder}) {
    for (const int64_t first_batch : {1, 4, 7, 23, 40}) {
      SamplerOptions first = options(first_batch, LastBatch::kKeep);
      first.order = order;
      const EpochPlan before = DistributedSampler(first).epoch(2);
      const Samples uninterrupted = read_by_replicas(before, 1, 40);
      Samples seen;
      for (int64_t stop = 0; stop <= before.num_steps(); ++stop) {
        const auto num_seen = static_cast<int64_t>(seen.size());
        for (const int64_t batch : {1, 3, 4, 8, 23, 50}) {
          for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop}) {
            SamplerOptions second = options(batch, last);
            second.order = order;
            const EpochPlan after(second, 2, num_seen);
            const int64_t left = 23 - num_seen;
            CHECK(after.num_steps() == (last == LastBatch::kKeep ? (left + batch - 1) / batch : left / batch));
            for (const int64_t num_replicas : {1, 3}) {
              Samples all = seen;
              const Samples rest = read_by_replicas(after, num_replicas, 2);
              all.insert(all.end(), rest.begin(), rest.end());
              if (last == LastBatch::kKeep) {
                CHECK(all == uninterrupted);
              } else {  // what is dropped is the end of the order
                CHECK(std::equal(all.begin(), all.end(), uninterrupted.begin()));
                CHECK(uninterrupted.size() - all.size() < static_cast<size_t>(batch));
              }
            }
          }
        }
        if (stop < before.num_steps()) {
          const Samples step = copy(before.batch(stop));
          seen.insert(seen.end(), step.begin(), step.end());
        }
      }
    }
  }
  const DistributedSampler sampler(options(4, LastBatch::kKeep));
  CHECK(sampler.epoch(0, 23).num_steps() == 0);
  CHECK_THROWS_AS(sampler.epoch(0, 24), Error);
  CHECK_THROWS_AS(sampler.epoch(0, -1), Error);
}

}  // namespace vit_hybrid::data
