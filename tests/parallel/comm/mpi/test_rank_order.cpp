// Reduction in rank order: all half-precision numbers against c10's conversions, and every type against plain loops.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "parallel/comm/mpi/rank_order.h"

using vit_hybrid::comm::reduce_in_blocks;
using vit_hybrid::comm::reduce_in_rank_order;
using vit_hybrid::comm::ReduceOp;

namespace {

template <class T>
std::vector<T> reduce(c10::ScalarType type, ReduceOp op, const std::vector<std::vector<T>>& values) {
  std::vector<const void*> sources;
  for (const auto& v : values)
    sources.push_back(v.data());
  std::vector<T> result(values[0].size());
  reduce_in_rank_order(type, op, sources, result.data(), static_cast<int64_t>(result.size()));
  return result;
}

// Sums of two and of three numbers of 16 bits, all patterns among them, are those that c10's scalar type gives.
template <class T>
void check_16_bits(c10::ScalarType type) {
  std::vector<std::vector<uint16_t>> values(3, std::vector<uint16_t>(65536));
  for (uint32_t i = 0; i < 65536; ++i) {
    values[0][i] = static_cast<uint16_t>(i);
    values[1][i] = static_cast<uint16_t>(i * 40503u + 17);
    values[2][i] = static_cast<uint16_t>(i * 48271u >> 3);
  }
  const auto number = [&](size_t source, size_t i) { return static_cast<float>(std::bit_cast<T>(values[source][i])); };
  const auto two = reduce<uint16_t>(type, ReduceOp::kSum, {values[0], values[1]});
  const auto three = reduce<uint16_t>(type, ReduceOp::kSum, values);
  int wrong = 0;
  const auto compare = [&](uint16_t result, float sum) {
    const auto expected = std::bit_cast<uint16_t>(T(sum));
    const bool both_nan = std::isnan(sum) && std::isnan(static_cast<float>(std::bit_cast<T>(result)));
    wrong += static_cast<int>(result != expected && !both_nan);
  };
  for (size_t i = 0; i < 65536; ++i) {
    compare(two[i], number(0, i) + number(1, i));
    compare(three[i], number(0, i) + number(1, i) + number(2, i));
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("rank_order: half precision, all bit patterns") {
  check_16_bits<c10::Half>(c10::ScalarType::Half);
  check_16_bits<c10::BFloat16>(c10::ScalarType::BFloat16);
}

TEST_CASE("rank_order: half types are accumulated in float32 and rounded once") {
  // 256 + 1 + 1 is 258 if the sum is kept in float32, 256 if every step is rounded to the 8 bits of bfloat16.
  const auto bits = [](float x) { return std::bit_cast<uint16_t>(c10::BFloat16(x)); };
  const auto sum = reduce<uint16_t>(c10::ScalarType::BFloat16, ReduceOp::kSum, {{bits(256)}, {bits(1)}, {bits(1)}});
  CHECK(sum[0] == bits(258));
}

TEST_CASE("rank_order: the order is that of the ranks") {
  // Only ((1e8 + -1e8) + 1) gives 1 in float32.
  CHECK(reduce<float>(c10::ScalarType::Float, ReduceOp::kSum, {{1e8f}, {-1e8f}, {1.0f}})[0] == 1.0f);
  CHECK(reduce<float>(c10::ScalarType::Float, ReduceOp::kSum, {{1.0f}, {1e8f}, {-1e8f}})[0] == 0.0f);
}

TEST_CASE("rank_order: integers wrap, and the maximum") {
  const int32_t most = std::numeric_limits<int32_t>::max();
  CHECK(reduce<int32_t>(c10::ScalarType::Int, ReduceOp::kSum, {{most}, {1}})[0] == std::numeric_limits<int32_t>::min());
  CHECK(reduce<uint8_t>(c10::ScalarType::Byte, ReduceOp::kSum, {{200}, {100}, {1}})[0] == 45);
  CHECK(reduce<uint8_t>(c10::ScalarType::Bool, ReduceOp::kMax, {{0}, {1}, {0}})[0] == 1);
  CHECK(reduce<int64_t>(c10::ScalarType::Long, ReduceOp::kMax, {{-5}, {int64_t{1} << 40}, {3}})[0] == int64_t{1} << 40);
  CHECK(reduce<double>(c10::ScalarType::Double, ReduceOp::kMax, {{-2.5}, {-0.5}, {-7.0}})[0] == -0.5);
}

TEST_CASE("rank_order: lengths around the blocks, one source, and a result that is a source") {
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{1023}, int64_t{1024}, int64_t{1025}, int64_t{5000}}) {
    std::vector<std::vector<double>> values(4, std::vector<double>(static_cast<size_t>(count)));
    std::vector<double> expected(static_cast<size_t>(count));
    for (size_t i = 0; i < expected.size(); ++i) {
      for (size_t s = 0; s < 4; ++s) {
        values[s][i] = static_cast<double>(i + 1) / static_cast<double>(s + 3);
        expected[i] = s == 0 ? values[s][i] : expected[i] + values[s][i];
      }
    }
    CHECK(reduce<double>(c10::ScalarType::Double, ReduceOp::kSum, values) == expected);
    CHECK(reduce<double>(c10::ScalarType::Double, ReduceOp::kSum, {values[2]}) == values[2]);
    std::vector<const void*> sources;
    for (const auto& v : values)
      sources.push_back(v.data());
    reduce_in_rank_order(c10::ScalarType::Double, ReduceOp::kSum, sources, values[2].data(), count);
    CHECK(values[2] == expected);
  }
}

TEST_CASE("rank_order: blocks are added by halves of their number, each sum rounded") {
  std::vector<std::vector<double>> values(7, std::vector<double>(9000));
  for (size_t s = 0; s < values.size(); ++s) {
    for (size_t i = 0; i < values[s].size(); ++i)
      values[s][i] = static_cast<double>(i + 1) / static_cast<double>(s + 3);
  }
  std::vector<const void*> sources;
  for (const auto& v : values)
    sources.push_back(v.data());
  const auto in_blocks = [&](const vit_hybrid::comm::SumBlocks& blocks) {
    std::vector<double> result(9000);
    reduce_in_blocks(c10::ScalarType::Double, ReduceOp::kSum, sources, blocks, result.data(), 9000);
    return result;
  };
  CHECK(in_blocks({7}) == reduce<double>(c10::ScalarType::Double, ReduceOp::kSum, values));
  std::vector<double> two(9000), five(9000);
  for (size_t i = 0; i < 9000; ++i) {
    const auto x = [&](size_t s) { return values[s][i]; };
    two[i] = ((x(0) + x(1)) + x(2)) + (((x(3) + x(4)) + x(5)) + x(6));
    five[i] = (x(0) + (x(1) + x(2))) + (x(3) + ((x(4) + x(5)) + x(6)));  // 2 and 3 of the blocks
  }
  CHECK(in_blocks({3, 4}) == two);
  CHECK(in_blocks({1, 2, 1, 2, 1}) == five);
  // 256 + 1 is rounded to 256, before the other block's 2 is added.
  const auto bits = [](float x) { return std::bit_cast<uint16_t>(c10::BFloat16(x)); };
  const std::vector<uint16_t> terms = {bits(256), bits(1), bits(1), bits(1)};
  uint16_t sum = 0;
  reduce_in_blocks(c10::ScalarType::BFloat16, ReduceOp::kSum, {&terms[0], &terms[1], &terms[2], &terms[3]}, {2, 2},
                   &sum, 1);
  CHECK(sum == bits(258));
  // The result may be a source.
  reduce_in_blocks(c10::ScalarType::Double, ReduceOp::kSum, sources, {3, 4}, values[1].data(), 9000);
  CHECK(values[1] == two);
}

TEST_CASE("rank_order: a NaN is handed on by maximum and sum, wherever it is") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kSum}) {
    for (int place = 0; place < 3; ++place) {
      std::vector<std::vector<float>> values(3, {1.0f});
      values[static_cast<size_t>(place)][0] = nan;
      CHECK(std::isnan(reduce<float>(c10::ScalarType::Float, op, values)[0]));
    }
  }
}
