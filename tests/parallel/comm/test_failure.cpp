// Failure: what other exceptions than the project's own are to a user.
#include <c10/util/Exception.h>
#include <c10/util/Lazy.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "parallel/comm/failure.h"
#include "src/base/memory_tracker.h"
#include "tests/support/contains.h"

namespace {

using namespace vit_hybrid;
using testing::contains;

TEST_CASE("failure: a thread that could not be started is told with what may help") {
  const auto no_more = std::make_error_code(std::errc::resource_unavailable_try_again);
  const Error error = comm::as_error(std::system_error(no_more));  // as std::thread throws it
  CHECK(error.error_class() == ErrorClass::kUsage);
  CHECK(error.exit_code() == 64);
  CHECK(contains(error.message(), "a thread could not be started: " + no_more.message()));
  for (const char* part : {"--threads", "--io-threads", "ulimit -u", "ulimit -v"}) {
    CHECK_MESSAGE(contains(error.hint(), part), part);
  }
}

TEST_CASE("failure: no text of a file inside of a message begins a line as another message does") {
  const Error error(ErrorClass::kBadData, "a.h5: 'x\nvit_hybrid: forged' is wrong\n  and so is y", "mend it");
  CHECK(contains(comm::failure_text(error), "'x\n  vit_hybrid: forged' is wrong\n  and so is y\n  mend it"));
}

TEST_CASE("failure: what is derived from the error of threads, or is another one, is no thread") {
  const auto no_more = std::make_error_code(std::errc::resource_unavailable_try_again);
  const auto is_internal = [](const std::exception& exception) {
    return comm::as_error(exception).error_class() == ErrorClass::kInternal;
  };
  CHECK(is_internal(std::filesystem::filesystem_error("/x", no_more)));
  CHECK(is_internal(std::system_error(std::make_error_code(std::errc::operation_not_permitted))));
  CHECK(is_internal(std::runtime_error(no_more.message())));
}

TEST_CASE("failure: memory that a library did not get is told in one line, with what a user can do") {
  comm::set_memory_advice([](const MemoryFailure& failure) {
    return failure.bytes == 0 && failure.held.total_current >= 0 ? "do this" : "";
  });
  const Error error = comm::memory_error("ncclAllReduce failed\nat enqueue.cc");
  CHECK(error.error_class() == ErrorClass::kUsage);
  CHECK(error.message() == "out of memory: ncclAllReduce failed");
  CHECK(error.hint() == "do this");
  comm::set_memory_advice(nullptr);
  CHECK(contains(comm::memory_error("x").hint(), "micro-batch"));
}

TEST_CASE("failure: memory that was not there is known by an exception's type, or by a library's words") {
  for (const char* text :
       {"DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes", "CUDA error: out of memory",
        "Failed to CUDA calloc async 4194304 bytes", "Failed to CUDA malloc 1 bytes"}) {
    CHECK_MESSAGE(tells_of_memory(text), text);
    CHECK(is_missing_memory(std::runtime_error(text)));
    CHECK(comm::as_error(std::runtime_error(text)).error_class() == ErrorClass::kUsage);
  }
  CHECK(is_missing_memory(std::bad_alloc()));
  CHECK(is_missing_memory(c10::OutOfMemoryError({"f", "f.cpp", 1}, "no more")));
  CHECK_FALSE(tells_of_memory("CUDA error: an illegal memory access was encountered"));
  CHECK_FALSE(is_missing_memory(std::runtime_error("CUBLAS_STATUS_EXECUTION_FAILED")));
  // What a stack shows is no message.
  const std::string stack = "frame #0: out of memory handler";
  CHECK_FALSE(
      is_missing_memory(c10::Error("refused", std::make_shared<c10::PrecomputedLazyValue<std::string>>(stack))));
}

}  // namespace
