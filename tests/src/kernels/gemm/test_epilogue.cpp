// Sums over rows: bit for bit those of one addition after the other, in the order of the rows.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "src/kernels/gemm/epilogue.h"

using namespace vit_hybrid;

namespace {

template <class T>
std::vector<T> random_numbers(int64_t count, uint64_t seed) {
  const RandomStream stream(seed, Purpose::kTest);
  std::vector<T> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<T>(static_cast<float>(stream.normal(static_cast<uint64_t>(i)))));
  }
  return numbers;
}

template <class T>
struct SumType {
  using Type = float;
};
template <>
struct SumType<double> {
  using Type = double;
};

}  // namespace

TEST_CASE_TEMPLATE("linear rows: rows are added one after the other", T, float, double, c10::BFloat16) {
  using Sum = typename SumType<T>::Type;
  for (int64_t count = 1; count <= 70; ++count) {
    for (int64_t num_rows = 0; num_rows <= 9; ++num_rows) {
      const std::vector<T> rows = random_numbers<T>(num_rows * count + 1, 1);
      std::vector<Sum> expected = random_numbers<Sum>(count + 1, 2);  // one more: it stays what it was
      std::vector<Sum> sums = expected;
      for (int64_t row = 0; row < num_rows; ++row) {
        for (int64_t i = 0; i < count; ++i) {
          expected[static_cast<size_t>(i)] += static_cast<Sum>(rows[static_cast<size_t>(row * count + i)]);
        }
      }
      kernels::add_rows(rows.data(), num_rows, sums.data(), count);
      CAPTURE(count);
      CAPTURE(num_rows);
      CHECK(sums == expected);
    }
  }
}
