// The choice among candidates by their times; the table of choices, its text, and what a resumed run takes over.
#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

#include "src/base/error.h"
#include "src/kernels/gemm/kernel_choice.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::Effort;
using kernels::fastest_candidate;
using kernels::fastest_kernel;
using kernels::KernelTable;
using kernels::kNever;
using Fastest = std::pair<size_t, double>;

namespace {

KernelTable two_choices() {
  KernelTable table{"NVIDIA A (sm_90, 132 multiprocessors), cuBLASLt 130002", {}};
  table.choices["forward+bias R12608 M3072 K768 bf16>bf16 16B"] = {"00ff7e", "algorithm 66, tile 24", 101.25, 101.25};
  table.choices["attention B64 N197 h12 d64 bf16"] = {"flash", "cudnn 90 us, flash 120 us", 120.1, 90.3};
  return table;
}

std::vector<std::string> names_of(const KernelTable& table) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : table.choices) {
    names.push_back(name);
  }
  return names;
}

}  // namespace

TEST_CASE("kernel choice: the text gives an equal table back, all digits included") {
  KernelTable table = two_choices();
  table.choices["x"] = {"y", "", 1.0 / 3.0, 1e-7};
  CHECK(KernelTable::parse(table.text()) == table);
  CHECK(KernelTable::parse("") == KernelTable());
  CHECK(KernelTable::parse(KernelTable{"nothing yet", {}}.text()).machine == "nothing yet");
}

TEST_CASE("kernel choice: damaged text is refused, with its line") {
  const std::string text = two_choices().text();
  const auto message = [](const std::string& damaged) {
    return thrown_error([&] { KernelTable::parse(damaged); }).message();
  };
  CHECK(contains(message("something else\n"), "line 1"));
  CHECK(contains(message("vit_hybrid kernels 1\n"), "line 2"));
  CHECK(contains(message(text + "one\ttwo\n"), "line 5: 2 fields instead of 5"));
  CHECK(contains(message(text + "p\tk\tt\t1.5x\t1\n"), "'1.5x' is no time"));
  CHECK(contains(message(text + "p\tk\tt\t-1\t1\n"), "'-1' is no time"));
  CHECK(contains(message(text + "p\tk\tt\tnan\t1\n"), "'nan' is no time"));
  CHECK(thrown_error([&] { KernelTable::parse("x"); }).error_class() == ErrorClass::kBadData);
}

TEST_CASE("kernel choice: what was measured on another machine is not taken over") {
  const KernelTable saved = two_choices();
  const std::vector<std::string> wanted = names_of(saved);
  KernelTable same{saved.machine, {}};
  CHECK(same.adopt(saved, wanted));
  CHECK(same == saved);
  KernelTable other{"NVIDIA B", {}};
  CHECK_FALSE(other.adopt(saved, wanted));
  CHECK(other.choices.empty());
  CHECK(same.adopt(KernelTable(), wanted));
  CHECK(same == saved);
}

TEST_CASE("kernel choice: of what was saved only what the run needs is taken over") {
  const KernelTable saved = two_choices();
  KernelTable table{saved.machine, {}};
  const std::vector<std::string> wanted = {names_of(saved).front(), "a shape of this run alone"};
  CHECK(table.adopt(saved, wanted));
  CHECK(names_of(table) == std::vector<std::string>{wanted.front()});
}

TEST_CASE("kernel choice: a saved choice replaces one that was there") {
  const KernelTable saved = two_choices();
  KernelTable table{saved.machine, {}};
  table.choices["attention B64 N197 h12 d64 bf16"] = {"efficient", "", 130.0, 130.0};
  table.adopt(saved, names_of(saved));
  REQUIRE(table.find("attention B64 N197 h12 d64 bf16") != nullptr);
  CHECK(table.find("attention B64 N197 h12 d64 bf16")->kernel == "flash");
  CHECK(table.find("attention B63 N197 h12 d64 bf16") == nullptr);
}

TEST_CASE("kernel choice: the cost counts a problem as often as it is computed") {
  KernelTable table;
  table.choices["a"] = {"slow", "", 110.0, 100.0};
  table.choices["b"] = {"fast", "", 50.0, 50.0};
  const std::vector<std::string> once = {"a", "b"}, often = {"a", "a", "a", "b", "unknown"};
  CHECK(table.cost(once) == doctest::Approx(10.0 / 150.0));
  CHECK(table.cost(often) == doctest::Approx(30.0 / 350.0));
  CHECK(KernelTable().cost(once) == 0.0);
}

TEST_CASE("kernel choice: bytes as hexadecimal text and back") {
  const std::array<unsigned char, 4> bytes = {0x00, 0xff, 0x7e, 0x0a};
  CHECK(kernels::to_hex(bytes.data(), bytes.size()) == "00ff7e0a");
  std::array<unsigned char, 4> back{};
  kernels::from_hex("00ff7e0a", back.data(), back.size());
  CHECK(back == bytes);
  CHECK_THROWS_AS(kernels::from_hex("00ff7e", back.data(), back.size()), Error);
  CHECK_THROWS_AS(kernels::from_hex("00ff7e0A", back.data(), back.size()), Error);
  CHECK_THROWS_AS(kernels::from_hex("00ff7e0g", back.data(), back.size()), Error);
}

namespace {

// Candidates with a brief and a full time each, and a record of what was asked for.
struct Candidates {
  std::vector<double> brief;
  std::vector<double> full;
  std::vector<size_t> tried;
  std::vector<size_t> finalists;

  Fastest fastest() {
    return fastest_candidate(brief.size(), [&](size_t number, Effort effort) {
      (effort == Effort::kBrief ? tried : finalists).push_back(number);
      return effort == Effort::kBrief ? brief[number] : full[number];
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
  CHECK(candidates.fastest() == Fastest{5, 9.5});
  CHECK(candidates.tried == std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(candidates.finalists == std::vector<size_t>{4, 2, 1, 5});
}

TEST_CASE("kernel timing: of equals the one that the library names first") {
  Candidates candidates{std::vector<double>(9, 10.0), std::vector<double>(9, 10.0), {}, {}};
  CHECK(candidates.fastest() == Fastest{0, 10.0});
  CHECK(candidates.finalists == std::vector<size_t>{0, 1, 2, 3});
}

TEST_CASE("kernel timing: a candidate that does not run is passed over") {
  Candidates candidates{{kNever, 20, kNever, 30, 25}, {0, kNever, 0, 30, 26}, {}, {}};
  CHECK(candidates.fastest() == Fastest{4, 26.0});
  CHECK(candidates.finalists == std::vector<size_t>{1, 4, 3});
  Candidates none{{kNever, kNever}, {}, {}, {}};
  CHECK(none.fastest() == Fastest{0, kNever});
  CHECK(none.finalists.empty());
  CHECK(Candidates{}.fastest() == Fastest{0, kNever});
}

TEST_CASE("kernel timing: where candidates take long, the last ones are not tried") {
  Candidates quick{std::vector<double>(32, 500.0), std::vector<double>(32, 500.0), {}, {}};
  static_cast<void>(quick.fastest());
  CHECK(quick.tried.size() == 32);
  Candidates slow{std::vector<double>(32, 3000.0), std::vector<double>(32, 3000.0), {}, {}};
  static_cast<void>(slow.fastest());
  CHECK(slow.tried.size() == 12);  // of 9 ms each
  std::vector<double> very_slow(32, 1e6);
  very_slow[1] = kNever;
  Candidates slower{very_slow, very_slow, {}, {}};
  static_cast<void>(slower.fastest());
  CHECK(slower.tried.size() == 9);  // eight that ran
}

TEST_CASE("kernel timing: a refusal is a result, with its first line as the reason") {
  const auto text_of = [](const std::function<double()>& measure) {
    const auto choice = fastest_kernel(
        "p", {"one", "two"}, [&](size_t number) { return number == 0 ? measure() : 2.0; }, &works);
    CHECK(choice.microseconds == 2.0);
    return choice.text;
  };
  CHECK(text_of([] {
          TORCH_CHECK(false, "cuDNN Frontend error: no valid\tplans\nstack and so on");
          return 0.0;
        }) == "one does not run: cuDNN Frontend error: no valid plans, two 2 us");
  CHECK(text_of([] { return throws(std::runtime_error("")); }) == "one does not run: without a reason, two 2 us");
  const std::string text(500, 'x');
  CHECK(text_of([&] { return throws(std::runtime_error(text)); }) ==
        "one does not run: " + text.substr(0, 160) + ", two 2 us");
  CHECK(fastest_kernel(
            "p", {"one"}, [](size_t) { return 12.5; }, &is_broken)
            .text == "one 13 us");  // not asked
}

TEST_CASE("kernel timing: missing memory, own errors and a broken device are no refusals") {
  const auto measure = [](const std::function<double()>& kernel, const std::function<void()>& synchronize) {
    fastest_kernel(
        "p", {"one", "two"}, [&](size_t number) { return number == 0 ? kernel() : 2.0; }, synchronize);
  };
  CHECK_THROWS_AS(measure([] { return throws(std::bad_alloc()); }, &works), std::bad_alloc);
  CHECK_THROWS_AS(measure(
                      [] {
                        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory.");
                        return 0.0;
                      },
                      &works),
                  c10::OutOfMemoryError);
  CHECK_THROWS_AS(measure([] { return throws(std::runtime_error("CUDA error: out of memory")); }, &works),
                  std::runtime_error);
  const auto own = thrown_error([&] { measure([] { return throws(Error(ErrorClass::kBadData, "own")); }, &works); });
  CHECK(own.error_class() == ErrorClass::kBadData);
  const auto broken =
      thrown_error([&] { measure([] { return throws(std::runtime_error("flash: failed")); }, &is_broken); });
  CHECK(broken.error_class() == ErrorClass::kInternal);
  CHECK(contains(broken.message(), "flash: failed; then: CUDA error: an illegal memory access was encountered"));
  CHECK_FALSE(contains(broken.message(), "more of it"));
}

TEST_CASE("kernel timing: the choice among named kernels says all times and reasons") {
  const auto fastest = [](const std::vector<std::string>& kernels) {
    return fastest_kernel(
        "attention B1", kernels,
        [&](size_t number) {
          return kernels[number] == "cudnn"   ? throws(std::runtime_error("no valid plans"))
                 : kernels[number] == "flash" ? 120.4
                                              : 130.6;
        },
        &works);
  };
  const auto choice = fastest({"cudnn", "flash", "efficient"});
  CHECK(choice == kernels::KernelChoice{"flash", "cudnn does not run: no valid plans, flash 120 us, efficient 131 us",
                                        120.4, 120.4});
  kernels::KernelTable table{"GPU", {}};
  table.choices["attention B1"] = choice;
  CHECK(kernels::KernelTable::parse(table.text()) == table);
  CHECK(thrown_error([&] { fastest({"cudnn"}); }).message() ==
        "attention B1: no kernel ran: cudnn does not run: no valid plans");
}
