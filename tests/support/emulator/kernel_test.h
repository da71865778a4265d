// What tests of emulated kernels share: types with their bounds, values, and runs in every order of threads.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "src/kernels/element_vector.h"
#include "tests/support/emulator/emulator.h"

namespace vit_hybrid::testing {

#if defined(VH_EMULATES_BY_THREADS)
inline constexpr bool kByThreads = true;  // slow: smaller shapes
#else
inline constexpr bool kByThreads = false;
#endif

/// Largest error, relative to the largest value, of a result that is rounded once, and of one that is a sum.
template <class T>
inline constexpr double kRounding = std::is_same_v<T, double>      ? 1e-13
                                    : std::is_same_v<T, float>     ? 4e-6
                                    : std::is_same_v<T, c10::Half> ? 8e-4
                                                                   : 6e-3;
template <class F>
inline constexpr double kSumRounding = std::is_same_v<F, double> ? 1e-12 : 2e-5;

/// Calls `check(T())` for each type of elements; those of which kernels differ in more than the type where all is slow.
template <class Check>
void for_types(const Check& check) {
  check(float());
  if (kByThreads) return check(c10::Half());
  check(double());
  check(c10::BFloat16());
  check(c10::Half());
}

/// Normal numbers, another row for each seed.
template <class T>
void fill(const GuardedArray<T>& array, unsigned seed, double deviation = 1.0) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, deviation);
  for (T& value : array)
    value = static_cast<T>(normal(generator));
}

template <class T>
std::vector<double> in_double(const GuardedArray<T>& array) {
  std::vector<double> values;
  for (const T value : array)
    values.push_back(static_cast<double>(value));
  return values;
}

/// Largest difference over the largest expected value; infinite where something is no number.
inline double relative_error(const std::vector<double>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  double error = 0.0, most = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::fabs(values[i] - expected[i]);
    if (!(difference <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    error = std::max(error, difference);
    most = std::max(most, std::fabs(expected[i]));
  }
  return most > 0.0 ? error / most : error;
}
template <class T>
double relative_error(const GuardedArray<T>& array, const std::vector<double>& expected) {
  return relative_error(in_double(array), expected);
}

/// Calls `run()` in each order of threads, and checks that what `results()` then gives, bytes of arrays, is the same.
template <class Run, class Results>
void in_all_orders(const Run& run, const Results& results) {
  std::vector<char> first;
  for (const auto order : {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kScattered}) {
    set_thread_order(order);
    run();
    std::vector<char> bytes;
    const auto add = [&](const auto& array) {
      const auto* const begin = reinterpret_cast<const char*>(array.data());
      bytes.insert(bytes.end(), begin, begin + static_cast<size_t>(array.size()) * sizeof(array[0]));
    };
    results(add);
    if (order == ThreadOrder::kAscending) first = bytes;
    CHECK(bytes == first);
    if (kByThreads) return;  // whose order is nobody's
  }
}

}  // namespace vit_hybrid::testing
