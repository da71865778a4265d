// The prefetching loader: order, ends, errors at their place, and shut-down at any time, with and without threads.
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "data/loading/prefetch_loader.h"
#include "src/base/error.h"

namespace vit_hybrid::data {
namespace {

// A read of sample s gives s; slow at random, or failing, and counted.
class FakeDataset : public Dataset {
 public:
  int64_t size() const override { return 1 << 20; }
  std::vector<int64_t> input_shape() const override { return {}; }
  std::vector<int64_t> target_shape() const override { return {}; }
  std::vector<std::string> channel_names() const override { return {}; }
  bool background_reads() const override { return true; }

  Batch read(std::span<const int64_t> samples, Parts, int64_t epoch) const override {
    const int now = ++reading;
    for (int most = most_at_once; now > most && !most_at_once.compare_exchange_weak(most, now);) {
    }
    ++num_reads;
    const auto sample = samples.empty() ? -1 : samples.front();
    std::this_thread::sleep_for(std::chrono::microseconds(sample >= 0 ? sample * 7919 % 97 : 0));
    --reading;
    if (sample == fails_at) {
      throw Error(ErrorClass::kIo, "sample " + std::to_string(sample) + " of epoch " + std::to_string(epoch));
    }
    Batch batch;
    batch.samples.assign(samples.begin(), samples.end());
    batch.inputs = at::full({1}, static_cast<double>(sample));
    return batch;
  }

  mutable std::atomic<int> reading{0};
  mutable std::atomic<int> most_at_once{0};
  mutable std::atomic<int> num_reads{0};
  int64_t fails_at = -2;
};

// Requests for one sample each: 0, 1, ..., count - 1; then nothing.
RequestSource count_to(int64_t count, std::atomic<int64_t>* given = nullptr) {
  return [count, given, next = int64_t{0}]() mutable -> std::optional<ReadRequest> {
    if (next == count) {
      return std::nullopt;
    }
    if (given != nullptr) {
      given->store(next + 1);
    }
    return ReadRequest{{next++}, 4};
  };
}

}  // namespace

TEST_CASE("loader: many small batches come in order, whoever reads them") {
  for (const int64_t depth : {1, 2, 5}) {
    for (const int64_t num_threads : {0, 1, 4}) {
      const FakeDataset dataset;
      PrefetchLoader loader(dataset, count_to(300), {.prefetch_depth = depth, .num_threads = num_threads});
      CHECK(loader.reads_ahead() == (num_threads > 0));
      for (int64_t i = 0; i < 300; ++i) {
        const auto batch = loader.next();
        REQUIRE(batch.has_value());
        REQUIRE(batch->samples == std::vector<int64_t>{i});
        REQUIRE(batch->inputs.item<double>() == static_cast<double>(i));
      }
      CHECK(!loader.next().has_value());
      CHECK(!loader.next().has_value());
      CHECK(dataset.num_reads == 300);
      CHECK(dataset.most_at_once <= std::max<int64_t>(1, std::min(depth, num_threads)));
      CHECK(loader.seconds_waited() > 0.0);
    }
  }
}

TEST_CASE("loader: no more is read ahead than the depth says") {
  const FakeDataset dataset;
  std::atomic<int64_t> given{0};
  PrefetchLoader loader(dataset, count_to(100, &given), {.prefetch_depth = 3, .num_threads = 2});
  for (int64_t i = 0; i < 20; ++i) {
    REQUIRE(loader.next().has_value());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(given <= i + 1 + 3);
    CHECK(given > i);
  }
}

TEST_CASE("loader: an error comes at its place, and ends the batches") {
  for (const int64_t num_threads : {0, 1, 4}) {
    FakeDataset dataset;
    dataset.fails_at = 37;
    PrefetchLoader loader(dataset, count_to(300), {.prefetch_depth = 8, .num_threads = num_threads});
    for (int64_t i = 0; i < 37; ++i) {
      REQUIRE(loader.next()->samples.front() == i);
    }
    CHECK_THROWS_WITH_AS(loader.next(), "sample 37 of epoch 4", Error);
    CHECK(!loader.next().has_value());
  }
}

TEST_CASE("loader: an error of the source comes at its place too") {
  for (const int64_t num_threads : {0, 3}) {
    const FakeDataset dataset;
    auto source = [next = int64_t{0}]() mutable -> std::optional<ReadRequest> {
      if (next == 5) {
        throw Error(ErrorClass::kInternal, "no plan");
      }
      return ReadRequest{{next++}, 0};
    };
    PrefetchLoader loader(dataset, source, {.prefetch_depth = 8, .num_threads = num_threads});
    for (int64_t i = 0; i < 5; ++i) {
      REQUIRE(loader.next()->samples.front() == i);
    }
    CHECK_THROWS_WITH_AS(loader.next(), "no plan", Error);
  }
}

TEST_CASE("loader: it stops at any time") {
  for (int64_t taken = 0; taken < 40; ++taken) {
    const FakeDataset dataset;
    PrefetchLoader loader(dataset, count_to(taken % 2 == 0 ? 1 << 20 : taken), {.prefetch_depth = 4, .num_threads = 3});
    for (int64_t i = 0; i < taken; ++i) {
      REQUIRE(loader.next().has_value());
    }
  }
}

TEST_CASE("loader: empty requests are passed over") {
  for (const int64_t num_threads : {0, 1}) {
    const FakeDataset dataset;
    auto source = [next = int64_t{0}]() mutable -> std::optional<ReadRequest> {
      if (next == 10) {
        return std::nullopt;
      }
      const int64_t number = next++;
      return number % 3 == 0 ? ReadRequest{{number}, 0} : ReadRequest{};
    };
    PrefetchLoader loader(dataset, source, {.prefetch_depth = 2, .num_threads = num_threads});
    for (const int64_t expected : {0, 3, 6, 9}) {
      REQUIRE(loader.next()->samples.front() == expected);
    }
    CHECK(!loader.next().has_value());
    CHECK(dataset.num_reads == 4);
  }
}

TEST_CASE("loader: has_next() is true of a batch that is there, and of no error and no end") {
  FakeDataset dataset;
  dataset.fails_at = 1;
  const auto wait_for_reads = [&](int count) {
    while (dataset.num_reads < count || dataset.reading > 0) {
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // until what was read is handed over
  };
  PrefetchLoader loader(dataset, count_to(2), {});
  wait_for_reads(2);
  CHECK(loader.has_next());
  CHECK(loader.next().has_value());
  CHECK_FALSE(loader.has_next());
  CHECK_THROWS_AS(loader.next(), Error);
  CHECK_FALSE(loader.has_next());

  PrefetchLoader ended(dataset, count_to(0), {});
  CHECK_FALSE(ended.has_next());
  LoaderOptions alone;
  alone.num_threads = 0;  // reads in next()
  PrefetchLoader reading(dataset, count_to(1), alone);
  CHECK_FALSE(reading.has_next());
  CHECK(reading.next().has_value());
}

}  // namespace vit_hybrid::data
