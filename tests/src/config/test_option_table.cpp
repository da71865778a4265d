// Options: what a text may be, names, help.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "src/base/error.h"
#include "src/config/option_table.h"

namespace {

using namespace vit_hybrid::options;

bool accepts(const Value& value, const std::string& text) {
  return value.parse(text);
}

enum class Colour { kRed, kGreen };

TEST_CASE("options: an integer is a whole number within its range") {
  int64_t n = 7;
  const Value value = integer(n, {1, 100});
  for (const char* good : {"1", "100", "+5", "042"}) {
    CHECK_MESSAGE(accepts(value, good), good);
  }
  CHECK(n == 42);
  for (const char* bad : {"0", "101", "-1", "", " 5", "5 ", "1.5", "1e2", "nan", "0x10", "5a", "++5", "+-5", "none",
                          "auto", "99999999999999999999", "-99999999999999999999"}) {
    CHECK_FALSE_MESSAGE(accepts(value, bad), bad);
    CHECK(n == 42);
  }
  CHECK(value.allowed == "1 to 100");
}

TEST_CASE("options: a narrow or unsigned variable never wraps round") {
  int narrow = 3;
  CHECK_FALSE(accepts(integer(narrow, {}), "2147483648"));
  CHECK(accepts(integer(narrow, {}), "2147483647"));
  uint64_t seed = 3;
  CHECK_FALSE(accepts(integer(seed, {}), "-1"));
  CHECK(accepts(integer(seed, {}), "9223372036854775807"));
  CHECK(seed == uint64_t{9223372036854775807U});
}

TEST_CASE("options: a word can stand for 0") {
  int64_t n = 7;
  const Value value = integer(n, {1, 100, "auto"});
  CHECK(accepts(value, "auto"));
  CHECK(n == 0);
  CHECK(value.print() == "auto");
  CHECK_FALSE(accepts(value, "0"));
  // What YAML and Python write for nothing.
  for (const char* nothing : {"None", "null", "~", ""}) {
    n = 7;
    CHECK_MESSAGE(accepts(value, nothing), nothing);
    CHECK(n == 0);
  }
  CHECK(allowed_column(value) == "auto, or 1 to 100");
  CHECK(allowed_text(value) == "auto, or an integer 1 to 100");
  // A word for a number that is not 0, where 0 is one like others.
  const Value threads = integer(n, {0, 100, "auto", -1});
  CHECK(accepts(threads, "auto"));
  CHECK(n == -1);
  CHECK(threads.print() == "auto");
  CHECK(accepts(threads, "0"));
  CHECK(threads.print() == "0");
  CHECK_FALSE(accepts(threads, "-1"));
  CHECK(allowed_column(threads) == "auto, or 0 to 100");
  double x = 0.5;
  NumberRange range;
  range.word = "dynamic";
  CHECK(allowed_column(number(x, range)) == "dynamic");
  CHECK(allowed_text(number(x, range)) == "dynamic, or any finite number");
  range.least = 0.0;
  CHECK(allowed_text(number(x, range)) == "dynamic, or a number at least 0");
  range.word.clear();
  CHECK(allowed_text(number(x, range)) == "number, at least 0");
  CHECK(allowed_text(number(x, {})) == "any finite number");
}

TEST_CASE("options: a number is finite and within its range") {
  double x = 0.5;
  NumberRange range;
  range.least = 0.0;
  range.least_bound = NumberRange::Bound::kExcluded;
  range.most = 2.0;
  const Value value = number(x, range);
  CHECK(accepts(value, "5E-4"));
  CHECK(x == 5e-4);
  CHECK(accepts(value, "2"));
  CHECK(accepts(value, ".25"));
  for (const char* bad :
       {"0", "-1", "2.0001", "nan", "NaN", "inf", "-inf", "infinity", "1e999", "1,5", "", "1 ", "x"}) {
    CHECK_FALSE_MESSAGE(accepts(value, bad), bad);
  }
  CHECK(x == 0.25);
  CHECK(value.allowed == "more than 0, at most 2");
  x = 0.1 + 0.2;
  CHECK(std::stod(value.print()) == 0.1 + 0.2);
}

TEST_CASE("options: flags, choices and extents") {
  bool on = false;
  const Value switched = flag(on);
  for (const char* yes : {"true", "True", "yes", "on", "1"}) {
    on = false;
    CHECK_MESSAGE(accepts(switched, yes), yes);
    CHECK(on);
  }
  CHECK(accepts(switched, "off"));
  CHECK_FALSE(on);
  CHECK_FALSE(accepts(switched, "maybe"));
  CHECK_FALSE(accepts(switched, ""));

  Colour colour = Colour::kRed;
  const Value chosen = choice(colour, {"red", "green"}, {{"lime", Colour::kGreen}});
  CHECK(accepts(chosen, "Lime"));
  CHECK(colour == Colour::kGreen);
  CHECK(chosen.print() == "green");
  CHECK_FALSE(accepts(chosen, "blue"));
  CHECK(chosen.allowed == "red, green");

  int64_t height = 1;
  int64_t width = 1;
  const Value size = extent(height, width, 1000);
  CHECK(accepts(size, "360x720"));
  CHECK(height == 360);
  CHECK(width == 720);
  CHECK(accepts(size, "32,64"));
  CHECK(size.print() == "32x64");
  CHECK(accepts(size, "224"));
  CHECK(size.print() == "224x224");
  for (const char* bad : {"0x5", "5x", "x5", "5x5x5", "1001", "-5x5", "", "axb"}) {
    CHECK_FALSE_MESSAGE(accepts(size, bad), bad);
  }
}

TEST_CASE("options: names in any spelling, and the nearest of a wrong one") {
  double lr = 0.5;
  bool drop = false;
  std::string colour = "green";
  OptionTable table;
  table.begin_group("First");
  table.add({.name = "learning-rate", .value = number(lr, {}), .help = "Rate.", .aliases = {"lr", "step_size"}});
  table.add({.name = "drop-last",
             .value = flag(drop),
             .help = "Drops | the last.",
             .megatron = {{"drop"}},
             .names_elsewhere = {"keep-not"}});
  table.add({.name = "colour",
             .value = word(colour, {"red", "green"}),
             .help = "",
             .megatron = {{"red", "red"}, {"colour"}}});
  REQUIRE(table.find("learning_rate") != nullptr);
  CHECK(table.find("learning_rate") == table.find("step-size"));
  CHECK(table.find("learning") == nullptr);
  CHECK(table.find("LR") == nullptr);
  CHECK(table.meant_by("drop_lsat") == "drop-last");
  CHECK(table.meant_by("learn") == "learning-rate");  // what begins so, however long
  CHECK(table.meant_by("keep_nto") == "drop-last");
  CHECK(table.meant_by("coluor") == "colour");
  CHECK(table.meant_by("shape") == "");  // nothing is near
  CHECK(table.meant_by(std::string(1 << 20, 'x')) == "");
  CHECK(OptionTable().meant_by("all") == "");
  CHECK(table.find("keep-not") == nullptr);
  CHECK(table.meant_by("keep_not") == "drop-last");
  CHECK(table.find("drop") == table.find("drop-last"));
  CHECK(table.find_name("drop")->is_flag());
  CHECK(table.find_name("red")->is_flag());
  CHECK(table.find_name("red")->value == "red");
  CHECK_FALSE(table.find_name("colour")->is_flag());
  CHECK(megatron_markdown(table).find("| `--drop` | `--drop-last` |\n| `--red` | `--colour red` |\n\nThe same name and "
                                      "meaning have `--colour`.") != std::string::npos);
  CHECK(environment_name("drop-last") == "VIT_HYBRID_DROP_LAST");
  CHECK_THROWS_AS(table.add({.name = "lr", .value = flag(drop), .help = ""}), vit_hybrid::Error);

  const std::string help = help_text(table);
  CHECK(help.find("First:\n  --learning-rate <number>") != std::string::npos);
  CHECK(help.find("Rate. default: 0.5; also --lr, --step_size") != std::string::npos);
  CHECK(help.find("--[no-]drop-last") != std::string::npos);
  CHECK(help.find("also --drop\n") != std::string::npos);
  CHECK(markdown_text(table).find("| `--[no-]drop-last` | flag | `false` | true, false |  | Drops \\| the last. |") !=
        std::string::npos);
  const vit_hybrid::Json rows = json_table(table);
  REQUIRE(rows.size() == table.options().size());
  CHECK(rows[0]["name"] == "learning-rate");
  CHECK(rows[0]["default"] == "0.5");
  CHECK(rows[0]["group"] == "First");
  CHECK(rows[0]["environment"] == "VIT_HYBRID_LEARNING_RATE");
  CHECK(rows[0]["aliases"].size() == 2);
}

}  // namespace
