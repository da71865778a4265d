// The choice among candidates by their times, and what is made of kernels that do not run.
#include "src/kernels/gemm/kernel_choice.h"

#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <cmath>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::Effort;
using kernels::fastest_candidate;
using kernels::FastestCandidate;
using kernels::KernelTime;
using kernels::time_or_refusal;

namespace {

constexpr double kRefused = -1.0;

// Candidates with a brief and a full time each, and a record of what was asked for.
struct Candidates {
  std::vector<double> brief;
  std::vector<double> full;
  std::vector<size_t> tried;
  std::vector<size_t> finalists;

  std::optional<FastestCandidate> fastest() {
    return fastest_candidate(brief.size(), [&](size_t number, Effort effort) {
      (effort == Effort::kBrief ? tried : finalists).push_back(number);
      const double microseconds = effort == Effort::kBrief ? brief[number] : full[number];
      return microseconds == kRefused ? std::nullopt : std::optional(microseconds);
    });
  }
};

void works() {}

[[noreturn]] void is_broken() {
  throw std::runtime_error("CUDA error: an illegal memory access was encountered\nmore of it");
}

template <class Exception>
double throws(const Exception& exception) {
  throw exception;
}

}  // namespace

TEST_CASE("kernel timing: the few that are fast when measured briefly are measured in full, and that decides") {
  Candidates candidates{{50, 12, 11, 90, 10, 13, 70, 14}, {1, 12.5, 10.5, 1, 11.5, 9.5, 1, 1}, {}, {}};
  CHECK(candidates.fastest() == FastestCandidate{5, 9.5});
  CHECK(candidates.tried == std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(candidates.finalists == std::vector<size_t>{4, 2, 1, 5});
}

TEST_CASE("kernel timing: of equals the one that the library names first") {
  Candidates candidates{std::vector<double>(9, 10.0), std::vector<double>(9, 10.0), {}, {}};
  CHECK(candidates.fastest() == FastestCandidate{0, 10.0});
  CHECK(candidates.finalists == std::vector<size_t>{0, 1, 2, 3});
}

TEST_CASE("kernel timing: a candidate that does not run is passed over") {
  Candidates candidates{{kRefused, 20, kRefused, 30, 25}, {0, kRefused, 0, 30, 26}, {}, {}};
  CHECK(candidates.fastest() == FastestCandidate{4, 26.0});
  CHECK(candidates.finalists == std::vector<size_t>{1, 4, 3});
  Candidates none{{kRefused, kRefused}, {}, {}, {}};
  CHECK_FALSE(none.fastest().has_value());
  CHECK(none.finalists.empty());
  CHECK_FALSE(Candidates{}.fastest().has_value());
}

TEST_CASE("kernel timing: where candidates take long, the last ones are not tried") {
  Candidates quick{std::vector<double>(32, 500.0), std::vector<double>(32, 500.0), {}, {}};
  static_cast<void>(quick.fastest());
  CHECK(quick.tried.size() == 32);
  Candidates slow{std::vector<double>(32, 3000.0), std::vector<double>(32, 3000.0), {}, {}};
  static_cast<void>(slow.fastest());
  CHECK(slow.tried.size() == 12);  // of 9 ms each
  std::vector<double> very_slow(32, 1e6);
  very_slow[1] = kRefused;
  Candidates slower{very_slow, very_slow, {}, {}};
  static_cast<void>(slower.fastest());
  CHECK(slower.tried.size() == 9);  // eight that ran
}

TEST_CASE("kernel timing: a refusal is a result, with its first line as the reason") {
  CHECK(time_or_refusal([] { return 12.5; }, &is_broken) == KernelTime{12.5, ""});
  const auto refused = time_or_refusal(
      [] {
        TORCH_CHECK(false, "cuDNN Frontend error: no valid\tplans\nstack and so on");
        return 0.0;
      },
      &works);
  CHECK(refused.refusal == "cuDNN Frontend error: no valid plans");
  CHECK(std::isinf(refused.microseconds));
  CHECK(time_or_refusal([] { return throws(std::runtime_error("")); }, &works).refusal == "without a reason");
  const std::string text(500, 'x');
  CHECK(time_or_refusal([&] { return throws(std::runtime_error(text)); }, &works).refusal == text.substr(0, 160));
}

TEST_CASE("kernel timing: missing memory, own errors and a broken device are no refusals") {
  CHECK_THROWS_AS(time_or_refusal([] { return throws(std::bad_alloc()); }, &works), std::bad_alloc);
  CHECK_THROWS_AS(time_or_refusal(
                      [] {
                        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory.");
                        return 0.0;
                      },
                      &works),
                  c10::OutOfMemoryError);
  CHECK_THROWS_AS(time_or_refusal([] { return throws(std::runtime_error("CUDA error: out of memory")); }, &works),
                  std::runtime_error);
  const auto own =
      thrown_error([] { time_or_refusal([] { return throws(Error(ErrorClass::kBadData, "own")); }, &works); });
  CHECK(own.error_class() == ErrorClass::kBadData);
  const auto broken =
      thrown_error([] { time_or_refusal([] { return throws(std::runtime_error("flash: failed")); }, &is_broken); });
  CHECK(broken.error_class() == ErrorClass::kInternal);
  CHECK(contains(broken.message(), "flash: failed; then: CUDA error: an illegal memory access was encountered"));
  CHECK_FALSE(contains(broken.message(), "more of it"));
}

TEST_CASE("kernel timing: the choice among named kernels says all times and reasons") {
  const KernelTime refused{std::numeric_limits<double>::infinity(), "no valid plans"};
  const auto choice =
      kernels::fastest_kernel("attention B1", {{"cudnn", refused}, {"flash", {120.4, ""}}, {"efficient", {130.6, ""}}});
  CHECK(choice == kernels::KernelChoice{"flash", "cudnn does not run: no valid plans, flash 120 us, efficient 131 us",
                                        120.4, 120.4});
  kernels::KernelTable table("GPU");
  table.choose("attention B1", choice);
  CHECK(kernels::KernelTable::parse(table.text()) == table);
  const auto none = thrown_error([&] { kernels::fastest_kernel("attention B1", {{"cudnn", refused}}); });
  CHECK(none.message() == "attention B1: no kernel ran: cudnn does not run: no valid plans");
}
