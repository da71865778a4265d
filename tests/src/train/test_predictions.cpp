// Predictions: names in CSV, and what a confusion matrix says.
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/report/metrics_log.h"
#include "src/train/predictions.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using namespace vit_hybrid::train;

namespace {

PredictedStep step_of(int64_t first, const std::vector<int64_t>& labels, const std::vector<int64_t>& classes,
                      const std::vector<double>& probabilities) {
  const auto n = std::ssize(labels);
  return {first, at::tensor(labels, at::kLong), at::tensor(classes, at::kLong).reshape({n, -1}),
          at::tensor(probabilities, at::kDouble).reshape({n, -1})};
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("predictions: names with commas, quotes and line breaks are quoted") {
  CHECK(csv_field("stripe cat") == "stripe cat");
  CHECK(csv_field("Fox, red") == "\"Fox, red\"");
  CHECK(csv_field("the \"big\" one") == "\"the \"\"big\"\" one\"");
  CHECK(csv_field("a\nb") == "\"a\nb\"");
  CHECK(csv_field(" a") == "\" a\"");
  CHECK(csv_field("").empty());
}

TEST_CASE("predictions: classes that have no name have their number") {
  CHECK(join(class_names("cat,dog", 4), "|") == "cat|dog|2|3");
  CHECK(join(class_names("", 2), "|") == "0|1");
  CHECK(join(class_names("a,b,c", 2), "|") == "a|b");
}

TEST_CASE("confusion: a table of few classes, pairs of many, and files") {
  const ScratchFolder folder;
  ConfusionMatrix few({"cat", "a very long name of a class", "x"});
  few.add(step_of(0, {0, 0, 0, 1, 2}, {0, 0, 1, 1, 0}, {1, 1, 1, 1, 1}));
  CHECK(few.at(0, 0) == 2);
  CHECK(few.at(0, 1) == 1);
  CHECK(few.at(2, 2) == 0);
  const auto lines = few.lines();
  REQUIRE(lines.size() == 5);
  CHECK(lines[1] == "                                 cat  a very long na..                 x");
  CHECK(lines[2] == "  cat                              2                 1                 0");
  CHECK(lines[4] == "  x                                1                 0                 0");
  few.write(folder.file("c.csv"));
  CHECK(text_of_file(folder.file("c.csv")) ==
        ",cat,a very long name of a class,x\ncat,2,1,0\na very long name of a class,0,1,0\nx,1,0,0\n");
  few.write(folder.file("c.json"));
  const Json json = Json::parse(text_of_file(folder.file("c.json")));
  CHECK(json["classes"][2] == "x");
  CHECK(json["matrix"].dump() == "[[2,1,0],[0,1,0],[1,0,0]]");

  // Names may be of any bytes.
  ConfusionMatrix strange({"a\xff", "b\nc", "twelve bytes\xc3\xa9\xc3\xa9\xc3\xa9"});
  const std::string shown = join(strange.lines(), "|");
  CHECK(shown.find("|  a\\xff ") != std::string::npos);
  CHECK(shown.find("|  b\\nc ") != std::string::npos);
  CHECK(shown.find("|  twelve bytes\xc3\xa9.. ") != std::string::npos);
  strange.write(folder.file("s.json"));
  CHECK(Json::parse(text_of_file(folder.file("s.json")))["classes"][0] == "a\xef\xbf\xbd");

  ConfusionMatrix many(class_names("", 21));
  CHECK(many.lines().front() == "no class was taken for another");
  many.add(step_of(0, {20, 20, 20, 3, 4}, {5, 5, 20, 4, 4}, {1, 1, 1, 1, 1}));
  CHECK(join(many.lines(), "|") == "most often confused:|  20 taken for 5: 2 of 3|  3 taken for 4: 1 of 1");
}
