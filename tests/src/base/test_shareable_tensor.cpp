// Tensors that other processes can map: their memory by its name, what the tracker counts, and names that are wrong.
#include "src/base/shareable_tensor.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"

using namespace vit_hybrid;

TEST_CASE("shareable tensor: another process writes into it, and what it maps outlives the tensor") {
  at::Tensor tensor = shareable_zeros(1000, at::kFloat);
  CHECK(tensor.eq(0.0).all().item<bool>());
  tensor.copy_(at::arange(1000, at::kFloat));
  const SharedName name = shared_name(tensor.narrow(0, 10, 5));
  CHECK(name.bytes == 4000);
  const pid_t child = fork();
  if (child == 0) {
    const std::shared_ptr<char> memory = map_shared(name);
    auto* const values = reinterpret_cast<float*>(memory.get());
    const bool is_right = values[999] == 999.0f;
    values[7] = is_right ? 70.0f : -1.0f;
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(tensor[7].item<float>() == 70.0f);
  const std::shared_ptr<char> memory = map_shared(name);
  tensor = at::Tensor();
  CHECK(reinterpret_cast<const float*>(memory.get())[7] == 70.0f);
}

TEST_CASE("shareable tensor: counted while it lives") {
  const MemoryTracker::Attachment attachment;
  const auto held = [] { return MemoryTracker::report().current[static_cast<size_t>(MemoryClass::kGradients)]; };
  const int64_t before = held();
  {
    const MemoryScope scope(MemoryClass::kGradients);
    const at::Tensor tensor = shareable_zeros(5000, at::kDouble);
    CHECK(held() - before == 40000);
    CHECK(shareable_bytes_peak() >= 40000);
  }
  CHECK(held() == before);
}

TEST_CASE("shareable tensor: a name that is none, or of something else, is refused") {
  CHECK(shared_name(at::zeros({10}, at::kFloat)).bytes == 0);
  CHECK(shared_name(shareable_zeros(0, at::kFloat)).bytes == 0);
  const at::Tensor tensor = shareable_zeros(1000, at::kFloat);
  SharedName name = shared_name(tensor);
  ++name.file;
  CHECK_THROWS_WITH_AS(map_shared(name), doctest::Contains("another process has that number here"), Error);
  name = shared_name(tensor);
  name.descriptor = 1 << 20;
  CHECK_THROWS_WITH_AS(map_shared(name), doctest::Contains("No such file"), Error);
}

TEST_CASE("shareable tensor: what no machine has is refused at once, as of any other tensor") {
  CHECK_THROWS_AS(shareable_zeros(int64_t{1} << 45, at::kFloat), c10::OutOfMemoryError);
}

TEST_CASE("shareable tensor: ordinary zeros, and the reason, where files may not be so large") {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{1000, 1000};
    bool is_right = setrlimit(RLIMIT_FSIZE, &most) == 0 && !unshared();
    const at::Tensor tensor = shareable_zeros(1000, at::kFloat);
    is_right = is_right && shared_name(tensor).bytes == 0 && tensor.eq(0.0).all().item<bool>();
    _exit(is_right && unshared()->message().find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
