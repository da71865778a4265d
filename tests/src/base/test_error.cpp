// Error: its parts, its text, its exit codes; and the invariants.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "src/base/error.h"

using vit_hybrid::Error;
using vit_hybrid::ErrorClass;

TEST_CASE("error: message, hint and text") {
  const Error error(ErrorClass::kUsage, "--tp 3 is wrong", "use 1 or 2");
  CHECK(error.message() == "--tp 3 is wrong");
  CHECK(error.hint() == "use 1 or 2");
  CHECK(std::string(error.what()) == "--tp 3 is wrong; use 1 or 2");
  CHECK(std::string(Error(ErrorClass::kIo, "no hint").what()) == "no hint");
}

TEST_CASE("error: exit codes are those of sysexits.h") {
  CHECK(Error(ErrorClass::kUsage, "").exit_code() == 64);
  CHECK(Error(ErrorClass::kBadData, "").exit_code() == 65);
  CHECK(Error(ErrorClass::kMissingInput, "").exit_code() == 66);
  CHECK(Error(ErrorClass::kInternal, "").exit_code() == 70);
  CHECK(Error(ErrorClass::kCannotCreate, "").exit_code() == 73);
  CHECK(Error(ErrorClass::kIo, "").exit_code() == 74);
  CHECK(Error(ErrorClass::kTemporary, "").exit_code() == 75);
}

TEST_CASE("error: a broken invariant names its condition and place, a kept one does nothing") {
  int evaluated = 0;
  VH_ASSERT(++evaluated == 1, "never");
  CHECK(evaluated == 1);
  try {
    VH_ASSERT(evaluated == 2, "evaluated is " + std::to_string(evaluated));
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kInternal);
    CHECK(error.message().find("evaluated == 2") != std::string::npos);
    CHECK(error.message().find("test_error.cpp:") != std::string::npos);
    CHECK(error.message().find("evaluated is 1") != std::string::npos);
  }
}
