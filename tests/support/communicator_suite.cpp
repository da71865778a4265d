// The conformance suite of communicators.
#include "tests/support/communicator_suite.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "tests/support/statistics.h"

namespace vit_hybrid::testing {

namespace {

using comm::Communicator;
using comm::ReduceOp;
using comm::Transfer;
using comm::Work;
using Direction = comm::Transfer::Direction;

constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                               at::kLong,   at::kInt,   at::kByte, at::kBool};
constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMax};

// Small integers that differ between ranks, elements and salts; sums of up to 32 of them are exact in every type.
int64_t integer(int rank, int64_t i, int salt) {
  return (i * 7 + rank * 3 + salt * 5) % 8;
}

class Suite {
 public:
  Suite(Communicator& group, c10::Device device, const std::vector<int>& blocks)
      : group_(group), device_(device), blocks_(blocks) {}

  void reductions() {
    for (const at::ScalarType type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (type == at::kBool && op == ReduceOp::kSum) continue;
        for (const int64_t count : {int64_t{1}, int64_t{13}, int64_t{5000}}) {
          CAPTURE(c10::toString(type));
          CAPTURE(static_cast<int>(op));
          CAPTURE(count);
          all_reduce(type, op, count);
          reduce_scatter(type, op, count);
        }
      }
    }
  }

  void copies() {
    for (const at::ScalarType type : kTypes) {
      for (const int64_t count : {int64_t{1}, int64_t{13}, int64_t{5000}}) {
        CAPTURE(c10::toString(type));
        CAPTURE(count);
        all_gather(type, count);
        for (int root = 0; root < size(); ++root)
          broadcast(type, count, root);
      }
    }
  }

  // Collectives that follow each other at once, so that a rank may be a whole operation ahead of another.
  void repeated() {
    at::Tensor x = values(at::kLong, 3, rank(), 0);
    int64_t factor = 1;
    for (int i = 0; i < 20; ++i) {
      group_.all_reduce(x, ReduceOp::kMax).wait();
      group_.broadcast(x, i % size()).wait();
      group_.barrier().wait();
      factor = i;
    }
    CHECK(factor == 19);
    CHECK(same(x, reduced(at::kLong, ReduceOp::kMax, 3, 0)));
  }

  void sums_of_fractions() {
    fractions<float, float>(at::kFloat);
    fractions<double, double>(at::kDouble);
    fractions<c10::BFloat16, float>(at::kBFloat16);
    fractions<c10::Half, float>(at::kHalf);
  }

  void ring() {
    const int next = (rank() + 1) % size();
    const int previous = (rank() + size() - 1) % size();
    for (const int64_t count : {int64_t{1}, int64_t{5000}}) {
      const at::Tensor sent = values(at::kFloat, count, rank(), 4);
      const at::Tensor received = empty(at::kFloat, count);
      group_.exchange({{Direction::kSend, sent, next}, {Direction::kReceive, received, previous}}).wait();
      CHECK(same(received, values(at::kFloat, count, previous, 4)));
    }
  }

  // Several messages of every pair, own rank and empty ones included, of different sizes and types.
  void everybody_with_everybody() {
    constexpr int kMessages = 3;
    const auto count = [](int from, int to, int message) { return (from + 2 * to + 5 * message) % 7 * int64_t{9}; };
    const auto salt = [](int to, int message) { return to + 10 * message; };
    std::vector<Transfer> transfers;
    std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // received, expected
    for (int message = 0; message < kMessages; ++message) {
      const at::ScalarType type = message == 1 ? at::kHalf : at::kInt;
      for (int peer = 0; peer < size(); ++peer) {
        transfers.push_back(
            {Direction::kSend, values(type, count(rank(), peer, message), rank(), salt(peer, message)), peer});
        const int64_t expected_count = count(peer, rank(), message);
        pairs.emplace_back(empty(type, expected_count), values(type, expected_count, peer, salt(rank(), message)));
        transfers.push_back({Direction::kReceive, pairs.back().first, peer});
      }
    }
    group_.exchange(std::move(transfers)).wait();
    for (const auto& [received, expected] : pairs)
      CHECK(same(received, expected));
    group_.exchange({}).wait();
  }

  // Two exchanges of one pair in flight: their messages match in the order of the calls.
  void exchanges_in_order() {
    if (size() < 2 || rank() > 1) return;
    const int peer = 1 - rank();
    std::vector<at::Tensor> received;
    std::vector<Work> works;
    for (int i = 0; i < 4; ++i) {
      received.push_back(empty(at::kInt, 100));
      works.push_back(group_.exchange(
          {{Direction::kReceive, received.back(), peer}, {Direction::kSend, values(at::kInt, 100, rank(), i), peer}}));
    }
    while (!works[3].test()) {
    }
    for (int i = 3; i >= 0; --i)
      works[static_cast<size_t>(i)].wait();
    for (int i = 0; i < 4; ++i)
      CHECK(same(received[static_cast<size_t>(i)], values(at::kInt, 100, peer, i)));
  }

  // Operations of all kinds in flight at once, completed in another order on every rank, by wait() and by test().
  void overlap() {
    const at::Tensor a = values(at::kFloat, 3001, rank(), 1);
    const at::Tensor b_in = values(at::kBFloat16, 257 * size(), rank(), 2);
    const at::Tensor b_out = empty(at::kBFloat16, 257);
    const at::Tensor c_out = empty(at::kInt, 100 * size());
    const at::Tensor d = empty(at::kLong, 50);
    const at::Tensor e = values(at::kDouble, 20000, rank(), 5);
    const int next = (rank() + 1) % size();
    const int previous = (rank() + size() - 1) % size();
    std::vector<Work> works;
    works.push_back(group_.all_reduce(a, ReduceOp::kSum));
    works.push_back(group_.reduce_scatter(b_out, b_in, ReduceOp::kSum));
    works.push_back(group_.all_gather(c_out, values(at::kInt, 100, rank(), 3)));
    works.push_back(group_.exchange(
        {{Direction::kSend, values(at::kLong, 50, rank(), 4), next}, {Direction::kReceive, d, previous}}));
    works.push_back(group_.barrier());
    works.push_back(group_.all_reduce(e, ReduceOp::kMax));
    const at::Tensor f = empty(at::kFloat, 3001 * size());
    const at::Tensor g = empty(at::kHalf, 100 * size());
    works.push_back(group_.all_gather(f, values(at::kFloat, 3001, rank(), 6)));
    works.push_back(group_.all_gather(g, values(at::kHalf, 100, rank(), 7)));
    for (size_t i = 0; i < works.size(); ++i) {
      Work& work = works[(i + static_cast<size_t>(rank())) % works.size()];
      while (i % 2 == 1 && !work.test()) {
      }
      work.wait();
      CHECK(work.complete());
    }
    CHECK(same(a, reduced(at::kFloat, ReduceOp::kSum, 3001, 1)));
    CHECK(same(b_out, part(reduced(at::kBFloat16, ReduceOp::kSum, 257 * size(), 2), rank())));
    CHECK(same(c_out, gathered(at::kInt, 100, 3)));
    CHECK(same(d, values(at::kLong, 50, previous, 4)));
    CHECK(same(e, reduced(at::kDouble, ReduceOp::kMax, 20000, 5)));
    CHECK(same(f, gathered(at::kFloat, 3001, 6)));
    CHECK(same(g, gathered(at::kHalf, 100, 7)));
  }

  void empty_tensors() {
    const at::Tensor none = empty(at::kFloat, 0);
    group_.all_reduce(none, ReduceOp::kSum).wait();
    group_.reduce_scatter(none, none, ReduceOp::kSum).wait();
    group_.all_gather(none, none).wait();
    group_.broadcast(none, 0).wait();
  }

  void refusals() {
    const at::Tensor x = values(at::kFloat, 4 * size(), rank(), 0);
    const at::Tensor transposed = x.view({2, 2 * size()}).t();
    const at::Tensor y = empty(at::kFloat, 4);
    const at::Tensor meta = at::empty({4}, at::TensorOptions(at::kMeta));
    const std::string axis = " on axis '" + group_.axis() + "': ";
    const std::string device = device_.is_cuda() ? "cuda" : "cpu";
    refused([&] { return group_.all_reduce(at::Tensor(), ReduceOp::kSum); },
            "all_reduce" + axis + "the tensor is not defined");
    refused([&] { return group_.all_reduce(meta, ReduceOp::kSum); },
            "all_reduce" + axis + "the tensor is on meta, tensors must be on " + device);
    refused([&] { return group_.broadcast(values(at::kShort, 2, 0, 0), 0); },
            "broadcast" + axis +
                "the tensor has type Short, allowed are Double, Float, Half, BFloat16, Long, Int, Byte and Bool");
    refused([&] { return group_.broadcast(x, size()); }, "broadcast" + axis + "root " + std::to_string(size()) +
                                                             " is not a rank of the group, allowed are 0 to " +
                                                             std::to_string(size() - 1));
    refused(
        [&] {
          return group_.exchange({{Direction::kSend, y, -1}});
        },
        "exchange" + axis + "peer -1 is not a rank of the group, allowed are 0 to " + std::to_string(size() - 1));
    refused(
        [&] {
          return group_.exchange({{Direction::kSend, y, rank()}});
        },
        "exchange" + axis + "1 messages are sent to the own rank and 0 are received from it");
    refused([&] { return group_.all_reduce(transposed, ReduceOp::kSum); }, "is not contiguous");
    refused([&] { return group_.all_reduce(values(at::kBool, 4, 0, 0), ReduceOp::kSum); },
            "all_reduce" + axis + "tensors of type Bool are not summed, allowed is max (or)");
    refused([&] { return group_.reduce_scatter(y, empty(at::kFloat, 4 * size() + 1), ReduceOp::kSum); },
            "the input has " + std::to_string(4 * size() + 1) + " elements, it must have " + std::to_string(size()) +
                " times the 4 of the output");
    refused([&] { return group_.all_gather(x, empty(at::kInt, 4)); }, "the output has type Float, the input Int");
    const at::Tensor wide = empty(at::kFloat, 4 * size() + 1);
    const at::Tensor shifted = wide.narrow(0, 4 * rank() + 1, 4);
    refused([&] { return group_.all_gather(wide.narrow(0, 0, 4 * size()), shifted); },
            "the input overlaps the output and is not exactly its part " + std::to_string(rank()));
    group_.barrier().wait();
  }

  void counts() {
    const auto before = testing::statistics_of(group_.axis());
    group_.all_reduce(values(at::kFloat, 10, rank(), 0), ReduceOp::kSum).wait();
    group_.all_reduce(values(at::kDouble, 10, rank(), 0), ReduceOp::kSum).wait();
    group_.all_gather(empty(at::kInt, 3 * size()), empty(at::kInt, 3)).wait();
    group_.barrier().wait();
    const auto after = testing::statistics_of(group_.axis());
    const auto grown = [&](comm::Operation operation) {
      return std::pair(after.count(operation).operations - before.count(operation).operations,
                       after.count(operation).bytes - before.count(operation).bytes);
    };
    CHECK(after.group_size == size());
    CHECK((grown(comm::Operation::kAllReduce) == std::pair<int64_t, int64_t>(2, 120)));
    CHECK((grown(comm::Operation::kAllGather) == std::pair<int64_t, int64_t>(1, 12 * size())));
    CHECK((grown(comm::Operation::kBarrier) == std::pair<int64_t, int64_t>(1, 0)));
    CHECK((grown(comm::Operation::kExchange) == std::pair<int64_t, int64_t>(0, 0)));
  }

 private:
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  at::Tensor empty(at::ScalarType type, int64_t count) const {
    return at::empty({count}, at::TensorOptions(type).device(device_));
  }

  at::Tensor host_values(int64_t count, int of_rank, int salt) const {
    const at::Tensor x = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i)
      x.data_ptr<int64_t>()[i] = integer(of_rank, i, salt);
    return x;
  }
  at::Tensor values(at::ScalarType type, int64_t count, int of_rank, int salt) const {
    const at::Tensor x = host_values(count, of_rank, salt);
    return (type == at::kBool ? x.ge(4) : x.to(type)).to(device_);
  }

  // The reduction of all ranks' values, in closed form.
  at::Tensor reduced(at::ScalarType type, ReduceOp op, int64_t count, int salt) const {
    const at::Tensor x = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      int64_t result = integer(0, i, salt);
      for (int r = 1; r < size(); ++r) {
        const int64_t value = integer(r, i, salt);
        result = op == ReduceOp::kSum ? result + value : std::max(result, value);
      }
      x.data_ptr<int64_t>()[i] = result;
    }
    return (type == at::kBool ? x.ge(4) : x.to(type)).to(device_);
  }

  at::Tensor gathered(at::ScalarType type, int64_t count, int salt) const {
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size(); ++r)
      parts.push_back(values(type, count, r, salt));
    return at::cat(parts);
  }

  at::Tensor part(const at::Tensor& whole, int index) const {
    const int64_t count = whole.numel() / size();
    return whole.narrow(0, index * count, count);
  }

  static bool same(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor x = a.cpu().contiguous();
    const at::Tensor y = b.cpu().contiguous();
    if (x.scalar_type() != y.scalar_type() || x.numel() != y.numel()) return false;
    return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
  }

  void all_reduce(at::ScalarType type, ReduceOp op, int64_t count) {
    const at::Tensor x = values(type, count, rank(), 0);
    group_.all_reduce(x, op).wait();
    CHECK(same(x, reduced(type, op, count, 0)));
  }

  void reduce_scatter(at::ScalarType type, ReduceOp op, int64_t count) {
    const at::Tensor expected = part(reduced(type, op, count * size(), 1), rank());
    const at::Tensor input = values(type, count * size(), rank(), 1);
    const at::Tensor output = empty(type, count);
    group_.reduce_scatter(output, input, op).wait();
    CHECK(same(output, expected));
    const at::Tensor again = values(type, count * size(), rank(), 1);
    group_.reduce_scatter(part(again, rank()), again, op).wait();
    CHECK(same(part(again, rank()), expected));
  }

  void all_gather(at::ScalarType type, int64_t count) {
    const at::Tensor output = empty(type, count * size());
    group_.all_gather(output, values(type, count, rank(), 2)).wait();
    CHECK(same(output, gathered(type, count, 2)));
    const at::Tensor in_place = values(type, count * size(), size() + 1, 7);
    part(in_place, rank()).copy_(values(type, count, rank(), 3));
    group_.all_gather(in_place, part(in_place, rank())).wait();
    CHECK(same(in_place, gathered(type, count, 3)));
  }

  void broadcast(at::ScalarType type, int64_t count, int root) {
    const at::Tensor x = values(type, count, rank(), 6);
    group_.broadcast(x, root).wait();
    CHECK(same(x, values(type, count, root, 6)));
  }

  // Numbers whose sum depends on the order: uniform bits, of magnitudes 2^-8 to 2^7.
  template <class T>
  static T fraction(int of_rank, int64_t i) {
    uint64_t x =
        static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(of_rank + 1) * 0xd1b54a32d192ed03u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    const double mantissa = static_cast<double>(x >> 12) / static_cast<double>(uint64_t{1} << 51) - 1.0;
    const double magnitude = static_cast<double>(1 << (x % 16)) / 256.0;
    return static_cast<T>(static_cast<float>(mantissa * magnitude));
  }

  // Block by block in rank order, then halves of the blocks; each sum is rounded to T. At most one block: in rank
  // order.
  template <class T, class Sum>
  static T sum_of(const T* terms, int num_terms, const int* blocks, size_t num_blocks) {
    if (num_blocks <= 1) {
      Sum sum = static_cast<Sum>(terms[0]);
      for (int r = 1; r < num_terms; ++r)
        sum += static_cast<Sum>(terms[r]);
      return static_cast<T>(sum);
    }
    const size_t half = num_blocks / 2;
    const int middle = std::accumulate(blocks, blocks + half, 0);
    return static_cast<T>(
        static_cast<Sum>(sum_of<T, Sum>(terms, middle, blocks, half)) +
        static_cast<Sum>(sum_of<T, Sum>(terms + middle, num_terms - middle, blocks + half, num_blocks - half)));
  }

  template <class T, class Sum>
  void fractions(at::ScalarType type) {
    CAPTURE(c10::toString(type));
    // Below and above the sizes at which the algorithms change.
    for (const int64_t per_rank : {int64_t{3}, int64_t{40000}}) {
      const int64_t count = per_rank * size();
      at::Tensor mine = at::empty({count}, type);
      at::Tensor expected = at::empty({count}, type);
      std::vector<T> terms(static_cast<size_t>(size()));
      for (int64_t i = 0; i < count; ++i) {
        for (int r = 0; r < size(); ++r)
          terms[static_cast<size_t>(r)] = fraction<T>(r, i);
        mine.data_ptr<T>()[i] = terms[static_cast<size_t>(rank())];
        expected.data_ptr<T>()[i] = sum_of<T, Sum>(terms.data(), size(), blocks_.data(), blocks_.size());
      }
      mine = mine.to(device_);
      const at::Tensor scattered = empty(type, per_rank);
      group_.reduce_scatter(scattered, mine.clone(), ReduceOp::kSum).wait();
      group_.all_reduce(mine, ReduceOp::kSum).wait();
      if (!blocks_.empty()) {  // the same bits on every rank are expected
        CHECK(same(mine, expected));
        CHECK(same(scattered, part(expected, rank())));
      } else {
        check_same_everywhere(mine);
        check_close(mine, expected);
        check_close(scattered, part(expected, rank()));
      }
    }
  }

  // All ranks have the same bits.
  void check_same_everywhere(const at::Tensor& x) {
    const at::Tensor bytes = x.view(at::kByte);
    const at::Tensor all = empty(at::kByte, bytes.numel() * size());
    group_.all_gather(all, bytes).wait();
    for (int r = 0; r < size(); ++r)
      CHECK(same(part(all, r), bytes));
  }

  static void check_close(const at::Tensor& x, const at::Tensor& expected) {
    const at::Tensor reference = expected.cpu().to(at::kDouble);
    const double epsilon = x.scalar_type() == at::kDouble  ? 0x1p-52
                           : x.scalar_type() == at::kFloat ? 0x1p-23
                           : x.scalar_type() == at::kHalf  ? 0x1p-10
                                                           : 0x1p-7;
    // A rounding of at most epsilon times the largest partial sum in each of size - 1 additions.
    const double bound = 8 * epsilon * reference.abs().max().item<double>();
    CHECK(x.cpu().to(at::kDouble).sub(reference).abs().max().item<double>() <= bound);
  }

  template <class Start>
  static void refused(Start start, const std::string& text) {
    try {
      Work work = start();
      work.wait();
      FAIL_CHECK("not refused: " << text);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::kInternal);
      CHECK_MESSAGE(error.message().find(text) != std::string::npos, error.message(), " does not hold ", text);
    }
  }

  Communicator& group_;
  c10::Device device_;
  const std::vector<int>& blocks_;
};

}  // namespace

void check_communicator(Communicator& group, c10::Device device, const std::vector<int>& blocks) {
  CAPTURE(group.back_end());
  CAPTURE(group.size());
  Suite suite(group, device, blocks);
  suite.reductions();
  suite.copies();
  suite.repeated();
  suite.sums_of_fractions();
  suite.ring();
  suite.everybody_with_everybody();
  suite.exchanges_in_order();
  suite.overlap();
  suite.empty_tensors();
  suite.refusals();
  suite.counts();
}

}  // namespace vit_hybrid::testing
