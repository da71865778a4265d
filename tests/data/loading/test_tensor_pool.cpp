// The pool of host tensors: memory comes back when nobody holds it, and never before.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <optional>
#include <thread>
#include <vector>

#include "data/loading/tensor_pool.h"

namespace vit_hybrid::data {

TEST_CASE("tensor pool: memory is used again once no tensor shares it") {
  TensorPool pool;
  std::optional<at::Tensor> first = pool.take({4, 100}, at::kFloat);
  const void* memory = first->data_ptr();
  CHECK(first->sizes().vec() == std::vector<int64_t>{4, 100});
  CHECK((first->scalar_type() == at::kFloat));
  CHECK(first->is_contiguous());
  std::optional<at::Tensor> view = first->narrow(0, 1, 2);
  first.reset();
  std::optional<at::Tensor> second = pool.take({4, 100}, at::kFloat);
  CHECK(second->data_ptr() != memory);  // the view still has it
  second.reset();
  view.reset();
  at::Tensor smaller = pool.take({3, 100}, at::kFloat);
  CHECK(smaller.data_ptr() == memory);  // the first that is free and not much larger
  CHECK(pool.take({10}, at::kFloat).data_ptr() != memory);
  const at::Tensor others[] = {pool.take({4, 100}, at::kFloat), pool.take({200}, at::kDouble)};
  CHECK(others[0].data_ptr() != others[1].data_ptr());
  CHECK(others[0].data_ptr() != memory);
  CHECK(pool.take({0, 3}, at::kLong).numel() == 0);
}

TEST_CASE("tensor pool: a tensor outlives its pool") {
  at::Tensor tensor;
  {
    TensorPool pool;
    tensor = pool.take({1000}, at::kDouble);
  }
  tensor.fill_(3.0);
  CHECK(at::equal(tensor, at::full({1000}, 3.0, at::kDouble)));
}

TEST_CASE("tensor pool: page-locked memory is LibTorch's, and never silently other memory") {
  TensorPool pool;
  if (at::hasCUDA()) {
    CHECK(pool.take({4, 100}, at::kFloat, HostMemory::kPinned).is_pinned());
    CHECK(host_tensor({3}, at::kLong, HostMemory::kPinned).is_pinned());
  } else {
    CHECK_THROWS_AS(pool.take({4, 100}, at::kFloat, HostMemory::kPinned), c10::Error);
    CHECK_THROWS_AS(host_tensor({3}, at::kLong, HostMemory::kPinned), c10::Error);
  }
  CHECK_FALSE(pool.take({4, 100}, at::kFloat, HostMemory::kPageable).is_pinned());
  CHECK(host_tensor({3, 2}, at::kLong, HostMemory::kPageable).sizes().vec() == std::vector<int64_t>{3, 2});
}

TEST_CASE("tensor pool: several threads never share memory") {
  TensorPool pool;
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        const at::Tensor mine = pool.take({50 + i % 3}, at::kFloat);
        auto* values = mine.data_ptr<float>();
        std::fill(values, values + mine.numel(), static_cast<float>(t));
        std::this_thread::yield();
        wrong[t] += std::count(values, values + mine.numel(), static_cast<float>(t)) == mine.numel() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

}  // namespace vit_hybrid::data
