// Partition: bounds, sizes, nesting and ownership, against their definitions.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "src/base/error.h"
#include "src/base/partition.h"

using vit_hybrid::Error;
using vit_hybrid::Partition;
using vit_hybrid::Range;

TEST_CASE("partition: parts tile the units in order and differ by at most one") {
  for (int64_t count = 0; count <= 40; ++count) {
    for (int64_t parts = 1; parts <= 17; ++parts) {
      CAPTURE(count);
      CAPTURE(parts);
      const Partition partition(count, parts);
      int64_t next = 0;
      int64_t largest = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range part = partition.part(i);
        CHECK(part.begin == next);
        const bool even = part.size() == count / parts || part.size() == count / parts + 1;
        CHECK(even);
        CHECK((part.size() > count / parts ? count % parts != 0 : true));
        largest = std::max(largest, part.size());
        next = part.end;
        for (int64_t unit = part.begin; unit < part.end; ++unit)
          CHECK(partition.owner(unit) == i);
      }
      CHECK(next == count);
      CHECK(partition.largest() == largest);
    }
  }
}

TEST_CASE("partition: known cuts") {
  // 8 heads over 3 ranks, 12 layers over 5 stages, 17 samples over 4 replicas.
  CHECK(Partition(8, 3).part(0) == Range{0, 2});
  CHECK(Partition(8, 3).part(1) == Range{2, 5});
  CHECK(Partition(8, 3).part(2) == Range{5, 8});
  CHECK(Partition(12, 5).part(1) == Range{2, 4});
  CHECK(Partition(12, 5).part(4) == Range{9, 12});
  CHECK(Partition(17, 4).part(3) == Range{12, 17});
  CHECK(Partition(1, 4).part(3) == Range{0, 1});
  CHECK(Partition(1, 4).part(0).empty());
}

TEST_CASE("partition: parts over p are unions of parts over q whenever p divides q") {
  for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{50}, int64_t{4050}}) {
    for (int64_t p = 1; p <= 6; ++p) {
      for (int64_t factor = 1; factor <= 4; ++factor) {
        const Partition coarse(count, p);
        const Partition fine(count, p * factor);
        for (int64_t i = 0; i < p; ++i) {
          CHECK(coarse.part(i).begin == fine.part(i * factor).begin);
          CHECK(coarse.part(i).end == fine.part((i + 1) * factor - 1).end);
        }
      }
    }
  }
}

TEST_CASE("partition: large counts do not overflow") {
  const int64_t count = int64_t{1} << 40;
  const Partition partition(count, 1000);
  CHECK(partition.part(999).end == count);
  CHECK(partition.owner(count - 1) == 999);
}

TEST_CASE("partition: ranges") {
  const Range range{3, 5};
  CHECK(range.size() == 2);
  CHECK(range.contains(3));
  CHECK(range.contains(4));
  CHECK_FALSE(range.contains(5));
  CHECK_FALSE(range.contains(2));
  CHECK_FALSE(range.empty());
}

TEST_CASE("partition: no parts, or fewer units than none, are refused") {
  CHECK_THROWS_AS(Partition(4, 0), Error);
  CHECK_THROWS_AS(Partition(-1, 2), Error);
}
