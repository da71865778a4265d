// Failure: what other exceptions than the project's own are to a user.
#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "parallel/comm/failure.h"
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

}  // namespace
