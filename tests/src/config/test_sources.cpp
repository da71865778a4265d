// Sources of settings: command line, environment, YAML, and how they are merged.
#include <doctest/doctest.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/config/sources.h"
#include "tests/support/contains.h"

namespace {

using vit_hybrid::testing::contains;

using namespace vit_hybrid::options;
using vit_hybrid::Error;
using vit_hybrid::ErrorClass;

struct Values {
  int64_t width = 1;
  int64_t depth = 2;
  double rate = 0.5;
  bool flip = false;
  std::string file;
  std::string preset;
  std::string colours;
};

OptionTable table_of(Values& values) {
  OptionTable table;
  table.add({.name = "width",
             .value = integer(values.width, {1, 99}),
             .help = "",
             .aliases = {"num-columns"},
             .megatron = {{"full-row", "90", "3"}}});
  table.add({.name = "depth",
             .value = integer(values.depth, {1, 99}),
             .help = "",
             .megatron = {{"num-layers"}, {"deep", "77"}},
             .shifted_names = {{"depth-less-two", {-1, 97}, 2}}});
  table.add({.name = "colours",
             .value = text(values.colours, "words"),
             .help = "",
             .adding_flags = {{"with-red", "red", [](const std::string& list) { return contains(list, "ruby"); }}}});
  table.add({.name = "rate", .value = number(values.rate, {}), .help = ""});
  table.add({.name = "flip-it", .value = flag(values.flip), .help = ""});
  table.add({.name = "file", .value = text(values.file, "file"), .help = "", .scope = Scope::kCommandLineOnly});
  table.add(
      {.name = "preset", .value = word(values.preset, {"small", "large"}), .help = "", .forgets = {"width", "depth"}});
  table.accept_unused("enable_jit");
  table.accept_unused("dt", "1");
  return table;
}

Error error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorClass::kInternal, "nothing was thrown");
}

// Name=text pairs of the command line, or the message of the error.
std::string parsed(const std::vector<std::string>& words) {
  Values values;
  const OptionTable table = table_of(values);
  try {
    std::string out;
    for (const Entry& entry : parse_command_line(table, words)) {
      out += entry.name + "=" + entry.text + ";";
    }
    return out;
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    return error.what();
  }
}

TEST_CASE("command line: forms of an option") {
  CHECK(parsed({"--width", "5", "--rate=0.25"}) == "width=5;rate=0.25;");
  CHECK(parsed({"--num_columns=5"}) == "num-columns=5;");
  CHECK(parsed({"--flip_it"}) == "flip-it=true;");
  CHECK(parsed({"--no-flip-it", "--width", "5"}) == "flip-it=false;width=5;");
  CHECK(parsed({"--flip-it=false"}) == "flip-it=false;");
  CHECK(parsed({"--flip-it", "false"}) == "flip-it=false;");
  CHECK(parsed({"--flip-it", "--width", "5"}) == "flip-it=true;width=5;");
  CHECK(parsed({"--file=a_b=c"}) == "file=a_b=c;");
  CHECK(parsed({"--rate", "-1.5"}) == "rate=-1.5;");
  CHECK(parsed({"--deep", "--num-layers", "3", "--no-deep"}) == "deep=true;num-layers=3;deep=false;");
}

TEST_CASE("command line: what is refused") {
  CHECK(contains(parsed({"--widht", "5"}), "unknown option '--widht'; did you mean '--width'?"));
  CHECK(contains(parsed({"--wid", "5"}), "unknown option '--wid'"));
  CHECK(contains(parsed({"--no-width"}), "unknown option '--no-width'"));
  CHECK(contains(parsed({"width", "5"}), "stray word 'width'"));
  CHECK(contains(parsed({"-width", "5"}), "stray word '-width'; options begin with two dashes"));
  CHECK(contains(parsed({"--flip-it", "true", "again"}), "stray word 'again'"));
  CHECK(contains(parsed({"--width"}), "'--width' needs a value"));
  CHECK(contains(parsed({"--width="}), "'--width' needs a value"));
  CHECK(contains(parsed({"--width", "--rate", "1"}), "'--width' needs a value"));
  CHECK(contains(parsed({"--no-flip-it=1"}), "takes no value"));
  CHECK(contains(parsed({"--", "x"}), "stray word 'x'"));
}

TEST_CASE("environment: only our variables, in any case of the name") {
  const auto source =
      parse_environment({"PATH=/bin", "VIT_HYBRID_WIDTH=5", "VIT_HYBRID_TEST_X=1", "VIT_HYBRID_FLIP_IT=a=b"});
  REQUIRE(source.size() == 2);
  CHECK(source[0].name == "flip_it");
  CHECK(source[0].text == "a=b");
  CHECK(source[1].origin == "environment VIT_HYBRID_WIDTH");
}

TEST_CASE("yaml: file and section") {
  const auto check = [](const std::string& text, const std::string& file, const std::string& section) {
    const auto path = split_config_path(text);
    CHECK(path.file == file);
    CHECK(path.section == section);
  };
  check("a/b.yaml", "a/b.yaml", "");
  check("a/b.yaml:short", "a/b.yaml", "short");
  check("a:b/c.yml:s:t", "a:b/c.yml", "s:t");
  check("a:b/c", "a:b/c", "");
  check("a/c:s", "a/c", "s");
  check("a:b.yaml", "a:b.yaml", "");
}

// Settings of YAML text after merging, as "width=..,depth=..,rate=..,flip=..|problems".
std::string merged(const std::string& yaml, const std::string& section = "") {
  Values values;
  const OptionTable table = table_of(values);
  Settings settings(table);
  for (const Source& source : parse_yaml({"f.yaml", section}, yaml)) {
    settings.add(source);
  }
  settings.apply_all();
  std::string out = std::to_string(values.width) + "," + std::to_string(values.depth) + "," + values.preset + "|";
  for (const auto& problem : settings.problems()) {
    out += problem + ";";
  }
  return out;
}

TEST_CASE("yaml: merge keys give way to what stands beside them, earlier ones of a list to none") {
  const std::string yaml =
      "a: &a\n  width: 3\n  depth: 4\n"
      "b: &b\n  <<: *a\n  depth: 5\n"
      "c:\n  num_columns: 9\n  <<: *b\n"
      "d:\n  <<: [{width: 11}, *a]\n";
  CHECK(merged(yaml, "a") == "3,4,|");
  CHECK(merged(yaml, "b") == "3,5,|");
  CHECK(merged(yaml, "c") == "9,5,|");
  CHECK(merged(yaml, "d") == "11,4,|");
  CHECK(merged("only:\n  width: 8\n") == "8,2,|");
  CHECK(merged("width: 8\n") == "8,2,|");
}

TEST_CASE("yaml: a preset forgets what came before it, and only that") {
  CHECK(merged("a: &a {width: 3, rate: 1}\nb: {<<: *a, preset: large}\n", "b") == "1,2,large|");
  CHECK(merged("a: &a {preset: large, width: 3}\nb: {<<: *a, depth: 7}\n", "b") == "3,7,large|");
}

TEST_CASE("yaml: problems name file and line") {
  CHECK(merged("width: 3\nwidht: 4\n") == "3,2,|f.yaml:2: unknown key 'widht'; did you mean 'width'?;");
  CHECK(merged("\nnum_columns: 100\n") == "1,2,|f.yaml:2: 'num_columns' (width) is '100'; allowed: integer, 1 to 99;");
  CHECK(merged("width: 3\nnum_columns: 4\n") ==
        "3,2,|f.yaml:2: 'num_columns' (width) is given twice, as '3' and '4'; keep one;");
  CHECK(merged("file: x\n") == "1,2,|f.yaml:1: 'file' is for the command line only;");
  CHECK(merged("enable_jit: true\ndt: 1\n") == "1,2,|");
  CHECK(merged("dt: 2\n") == "1,2,|f.yaml:1: 'dt' is '2'; allowed: 1 only;");
}

TEST_CASE("yaml: flags that stand for a value, set and not set") {
  CHECK(merged("deep: true\n") == "1,77,|");
  CHECK(merged("deep: false\n") == "1,2,|");
  CHECK(merged("deep: false\nnum_layers: 5\n") == "1,5,|");
  CHECK(merged("deep: maybe\n") == "1,2,|f.yaml:1: 'deep' is 'maybe'; allowed: true, false;");
  CHECK(merged("deep: true\ndepth: 5\n") == "1,77,|f.yaml:2: 'depth' is given twice, as '77' and '5'; keep one;");
}

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Seconds of the processor that parse_yaml() takes, and its message.
std::pair<double, std::string> timed(const std::string& yaml, const std::string& section) {
  const double before = processor_seconds();
  const Error error = error_of([&] { parse_yaml({"f.yaml", section}, yaml); });
  return {processor_seconds() - before, error.what()};
}

TEST_CASE("yaml: what becomes much longer by aliases is refused before it does") {
  std::string merges = "b0: &b0 {width: 1}\n";
  for (int i = 1; i <= 9; ++i) {
    const std::string below = "*b" + std::to_string(i - 1);
    merges += "b" + std::to_string(i) + ": &b" + std::to_string(i) + "\n  <<: [" + below;
    for (int k = 0; k < 9; ++k) {
      merges += ", " + below;
    }
    merges += "]\n";
  }
  std::string lists = "s:\n  x: &x [1";
  for (int i = 0; i < 50000; ++i) {
    lists += ",1";
  }
  lists += "]\n";
  for (int i = 0; i < 20000; ++i) {
    lists += "  k" + std::to_string(i) + ": *x\n";
  }
  std::string texts = "s:\n  x: &x " + std::string(500000, 'y') + "\n";
  for (int i = 0; i < 20000; ++i) {
    texts += "  k" + std::to_string(i) + ": *x\n";
  }
  for (const auto& [yaml, section] :
       {std::pair(merges, std::string("b9")), std::pair(lists, std::string("s")), std::pair(texts, std::string("s"))}) {
    const auto [seconds, text] = timed(yaml, section);
    const std::string message = text;  // what a lambda may capture
    CHECK_MESSAGE(contains(message, "aliases and merge keys repeat the file has more than 100000 values or"), message);
    CHECK(seconds < 2.0);
  }
  const auto [seconds, message] = timed("width: 1\n" + std::string(1 << 20, '#'), "");
  CHECK(contains(message, "f.yaml: the text has 1048585 bytes; allowed: at most 1048576"));
  CHECK(seconds < 0.1);
  for (const char* part : {"[", "{a: ", "- ", "? ", "{", "[{"}) {  // the deepest there is
    std::string deep = "width: ";
    while (deep.size() < 100000) {
      deep += part;
    }
    CHECK(timed(deep, "").first < 2.0);
  }
}

TEST_CASE("settings: on the command line the last of equal options counts, and that is said") {
  Values values;
  const OptionTable table = table_of(values);
  Settings settings(table);
  settings.add(parse_command_line(table, {"--width", "3", "--depth=4", "--num-columns=5", "--deep"}));
  settings.apply_all();
  CHECK(settings.problems().empty());
  CHECK(values.width == 5);
  CHECK(values.depth == 77);
  CHECK(settings.remarks() ==
        std::vector<std::string>{
            "command line: 'num-columns' (width) is given twice, as '3' and '5'; the last one counts",
            "command line: 'deep' (depth) is given twice, as '4' and '77'; the last one counts"});
}

TEST_CASE("settings: a flag for one value that is off takes that value back, and no other") {
  const auto depth_of = [](const std::string& yaml, const std::vector<std::string>& words) {
    Values values;
    const OptionTable table = table_of(values);
    Settings settings(table);
    settings.add(parse_yaml({"f.yaml", ""}, yaml).front());
    settings.add(parse_command_line(table, words));
    settings.apply_all();
    return std::to_string(values.depth) + "," + std::to_string(values.width) + "|" +
           vit_hybrid::join(settings.remarks()) + "|" + vit_hybrid::join(settings.problems());
  };
  CHECK(depth_of("deep: true\n", {"--no-deep"}) == "2,1||");
  CHECK(depth_of("depth: 5\n", {"--no-deep"}) == "5,1||");
  CHECK(depth_of("rate: 1\n", {"--deep", "--no-deep"}) ==
        "2,1|command line: 'deep' (depth) is given twice, as '77' and 'false'; the last one counts|");
  CHECK(depth_of("rate: 1\n", {"--depth=5", "--no-deep"}) == "5,1||");
  CHECK(depth_of("rate: 1\n", {"--no-deep", "--deep"}) == "77,1||");
  CHECK(depth_of("depth: 77\ndeep: false\n", {}) ==
        "77,1||f.yaml:2: 'deep' (depth) is given twice, as '77' and 'false'; keep one");
  CHECK(depth_of("rate: 1\n", {"--no-full-row"}) == "2,3||");  // has a value for off
}

TEST_CASE("settings: a number that another program counts otherwise is the same option") {
  const auto depth_of = [](const std::string& yaml, const std::vector<std::string>& words) {
    Values values;
    const OptionTable table = table_of(values);
    Settings settings(table);
    settings.add(parse_yaml({"f.yaml", ""}, yaml).front());
    settings.add(parse_command_line(table, words));
    settings.apply_all();
    return vit_hybrid::str(values.depth, "|", vit_hybrid::join(settings.remarks()), "|",
                           vit_hybrid::join(settings.problems()));
  };
  CHECK(depth_of("depth_less_two: 5\n", {}) == "7||");
  CHECK(depth_of("depth_less_two: -1\n", {}) == "1||");
  CHECK(depth_of("depth: 9\n", {"--depth-less-two=3"}) == "5||");
  CHECK(depth_of("depth_less_two: 9\n", {"--depth", "3"}) == "3||");
  CHECK(depth_of("depth_less_two: 9\n", {"--preset=small"}) == "2||");
  CHECK(depth_of("depth: 7\ndepth_less_two: 5\n", {}) == "7||");
  const std::string twice = " is given twice, as ";
  CHECK(depth_of("depth: 5\ndepth_less_two: 5\n", {}) ==
        "5||f.yaml:2: 'depth_less_two' (depth)" + twice + "'5' and '5' (depth 7); keep one");
  CHECK(depth_of("depth_less_two: 5\ndepth: 5\n", {}) ==
        "7||f.yaml:2: 'depth'" + twice + "'5' (depth 7) and '5'; keep one");
  CHECK(depth_of("rate: 1\n", {"--depth=5", "--depth_less_two=4"}) ==
        "5||command line: 'depth-less-two' (depth)" + twice + "'5' and '4' (depth 6); keep one");
  CHECK(depth_of("rate: 1\n", {"--depth-less-two=4", "--depth-less-two=5"}) ==
        "7|command line: 'depth-less-two' (depth)" + twice + "'4' (depth 6) and '5' (depth 7); the last one counts|");
  for (const char* bad : {"-2", "98", "2.0", "", "x", "9223372036854775807"}) {
    CHECK(depth_of(vit_hybrid::str("depth_less_two: '", bad, "'\n"), {}) ==
          vit_hybrid::str("2||f.yaml:1: 'depth_less_two' is '", bad, "'; allowed: integer, -1 to 97"));
  }
}

TEST_CASE("settings: a flag that adds a word to a list, whichever source gives that") {
  const auto colours_of = [](const std::string& yaml, const std::vector<std::string>& words) {
    Values values;
    const OptionTable table = table_of(values);
    Settings settings(table);
    for (const Source& source : parse_yaml({"f.yaml", "run"}, yaml)) {
      settings.add(source);
    }
    settings.add(parse_command_line(table, words));
    settings.apply_all();
    const Entry* const entry = settings.find("colours");
    return vit_hybrid::str(values.colours, "|", entry == nullptr ? "" : entry->origin, "|",
                           vit_hybrid::join(settings.remarks()), vit_hybrid::join(settings.problems()));
  };
  CHECK(colours_of("run: {with_red: true}\n", {}) == "red|f.yaml:1|");
  CHECK(colours_of("run: {with_red: false}\n", {}) == "||");
  CHECK(colours_of("run: {colours: blue, with_red: false}\n", {}) == "blue|f.yaml:1|");
  CHECK(colours_of("run: {with_red: true, colours: [blue, green]}\n", {}) == "blue,green,red|f.yaml:1|");
  CHECK(colours_of("run: {with_red: true, colours: [ruby, green]}\n", {}) == "ruby,green|f.yaml:1|");
  CHECK(colours_of("run: {with_red: true}\n", {"--colours=blue"}) == "blue,red|command line|");
  CHECK(colours_of("run: {colours: blue}\n", {"--with-red"}) == "blue,red|command line|");
  CHECK(colours_of("run: {colours: ruby}\n", {"--with_red"}) == "ruby|f.yaml:1|");
  CHECK(colours_of("run: {with_red: true, colours: blue}\n", {"--no-with-red"}) == "blue|f.yaml:1|");
  CHECK(colours_of("a: &a {with_red: true, colours: blue}\nrun: {<<: *a, with_red: false}\n", {}) == "blue|f.yaml:1|");
  CHECK(colours_of("a: &a {with_red: true}\nrun: {<<: *a, colours: blue}\n", {}) == "blue,red|f.yaml:2|");
  CHECK(colours_of("run: {colours: blue}\n", {"--with-red", "--no-with-red"}) ==
        "blue|f.yaml:1|command line: 'with-red' (colours) is given twice, as 'true' and 'false'; the last one counts");
  CHECK(colours_of("run: {with_red: 2}\n", {}) == "||f.yaml:1: 'with_red' is '2'; allowed: true, false");
}

TEST_CASE("settings: a message holds no endless list and no endless value") {
  Values values;
  const OptionTable table = table_of(values);
  Settings settings(table);
  std::string yaml = "width: " + std::string(1000, 'x') + "\n";
  for (int i = 0; i < 30000; ++i) {
    yaml += "key" + std::to_string(i) + ": 1\n";
  }
  const double before = processor_seconds();
  settings.add(parse_yaml({"f.yaml", ""}, yaml).front());
  settings.apply_all();
  CHECK(settings.problems().size() == 30001);
  const std::string text = problem_list(settings.problems());
  CHECK(processor_seconds() - before < 2.0);
  CHECK(contains(text, "30001 problems in the configuration:"));
  CHECK(contains(text, "\n  and 29981 more"));
  CHECK(text.size() < 4000);
  CHECK(contains(settings.problems().back(), "xxx... (1000 bytes)'; allowed:"));
}

TEST_CASE("yaml: files that are refused as a whole") {
  struct Case {
    const char* yaml;
    const char* section;
    ErrorClass error_class;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"width: 1\nwidth: 2\n", "", ErrorClass::kUsage, "f.yaml:2: key 'width' is given twice (first in line 1)"},
      {"flip_it: 1\nflip-it: 1\n", "", ErrorClass::kUsage, "f.yaml:2: key 'flip-it' is given twice"},
      {"a: {}\na: {}\n", "a", ErrorClass::kUsage, "f.yaml:2: key 'a' is given twice"},
      {"a: {width: 1}\nb: {width: 2}\n", "", ErrorClass::kUsage, "several sections: a, b"},
      {"shrot: {width: 1}\nlong: {}\n", "short", ErrorClass::kUsage,
       "no section 'short'; it has shrot, long; did you mean 'shrot'?"},
      {"width: 1\n", "short", ErrorClass::kUsage, "the file has no sections"},
      {"width: {a: 1}\nrate: 1\n", "", ErrorClass::kUsage, "f.yaml:1: the value of 'width' is a map"},
      {"a: &a {<<: *a}\n", "a", ErrorClass::kUsage, "round in a circle"},
      {"a: {<<: 5}\n", "a", ErrorClass::kUsage, "'<<' must be followed by a map"},
      {"[1, 2]: 3\nwidth: 1\n", "", ErrorClass::kUsage, "a key must be a word"},
      {"width: 1\n---\nwidth: 2\n", "", ErrorClass::kBadData, "a second YAML document"},
      {"width: [1\n", "", ErrorClass::kBadData, "this is not YAML"},
      {"", "", ErrorClass::kBadData, "holds no keys"},
      {"- 1\n", "", ErrorClass::kBadData, "holds no keys"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.yaml);
    const Error error = error_of([&] { parse_yaml({"f.yaml", c.section}, c.yaml); });
    CHECK(error.error_class() == c.error_class);
    CHECK_MESSAGE(contains(error.what(), c.message), error.what());
  }
}

TEST_CASE("settings: later sources win, and an overridden mistake is none") {
  Values values;
  const OptionTable table = table_of(values);
  Settings settings(table);
  settings.add({{"width", "1000", Place::kFile, "f.yaml:1"}, {"rate", "2", Place::kFile, "f.yaml:2"}});
  settings.add(parse_environment({"VIT_HYBRID_WIDTH=7", "VIT_HYBRID_DEPTH=8"}));
  settings.add(parse_command_line(table, {"--depth", "9"}));
  settings.apply_all();
  CHECK(settings.problems().empty());
  CHECK(values.width == 7);
  CHECK(values.depth == 9);
  CHECK(values.rate == 2.0);
  CHECK(settings.find("depth")->origin == "command line");
}

}  // namespace
