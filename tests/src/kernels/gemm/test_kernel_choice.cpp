// The table of measured choices: its text, what a resumed run takes over, what fixed sums cost.
#include "src/kernels/gemm/kernel_choice.h"

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::KernelTable;

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
