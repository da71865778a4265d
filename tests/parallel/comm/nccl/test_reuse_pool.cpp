// The pool of what is dear to make.
#include <doctest/doctest.h>

#include <deque>
#include <memory>

#include "parallel/comm/nccl/device_stream.h"

using vit_hybrid::comm::ReusePool;

TEST_CASE("reuse pool: nothing is made while something is free, and nothing is lent twice") {
  int made = 0;
  ReusePool<int> pool([&] { return std::make_shared<int>(made++); });
  auto first = pool.take();
  auto second = pool.take();
  CHECK(first != second);
  CHECK(pool.size() == 2);
  second.reset();
  const auto again = pool.take();
  CHECK(*again == 1);
  first.reset();
  CHECK(*pool.take() == 0);
  CHECK(made == 2);
}

TEST_CASE("reuse pool: a steady flow needs as many as are out at once") {
  int made = 0;
  ReusePool<int> pool([&] { return std::make_shared<int>(made++); });
  std::deque<std::shared_ptr<int>> out;
  const auto held_for_long = pool.take();
  for (int i = 0; i < 1000; ++i) {
    out.push_back(pool.take());
    CHECK(out.back() != held_for_long);
    if (out.size() > 5) {
      out.pop_front();
    }
  }
  CHECK(made == 7);
}
