// Histograms of weights and gradients are those of whole tensors, in every layout: counted once more, value by value.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "tests/support/mpi_test.h"
#include "tests/support/test_layouts.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

using train::Histogram;
using train::ParameterHistograms;

Experiment experiment(const char* precision) {
  Experiment result;
  result.name = precision;
  result.options.model = small_forecaster();
  result.options.model.depth = 3;
  result.options.model.dropout = 0.1;
  result.options.precision = zero::make_precision_policy(precision);
  result.options.loss_scale = zero::loss_scale_options(result.name == "fp16", 0.0);
  result.options.clip_norm = 1e-3;        // the gradient's histogram is of the one before clipping
  result.options.bucket_bytes = 8 << 10;  // several buckets
  result.options.seed = 11;
  result.learning_rate = 1e-4;
  result.global_batches = {17, 4};
  return result;
}

// By TensorFlow's rule, written once more: ascending limits, and the first of them that is above the value.
Histogram counted(const at::Tensor& whole) {
  std::vector<double> limits = {0.0, std::numeric_limits<double>::max()};
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) {
    limits.insert(limits.end(), {limit, -limit});
  }
  std::sort(limits.begin(), limits.end());
  Histogram histogram;
  histogram.counts.assign(limits.size(), 0);
  const at::Tensor flat = whole.contiguous();
  const auto* const values = flat.const_data_ptr<double>();
  for (const double value : std::vector<double>(values, values + flat.numel())) {
    ++histogram.counts[static_cast<size_t>(std::upper_bound(limits.begin(), limits.end(), value) - limits.begin())];
    histogram.least = std::min(histogram.least, value);
    histogram.most = std::max(histogram.most, value);
    histogram.sum += value;
    histogram.sum_of_squares += value * value;
  }
  return histogram;
}

bool is_close(double a, double b, double scale) {
  return std::abs(a - b) <= 1e-11 * scale;
}

void check_sums(const Histogram& found, const Histogram& wanted) {
  const double size = std::sqrt(wanted.sum_of_squares * static_cast<double>(wanted.size()));  // bounds the absolute sum
  CHECK(is_close(found.sum, wanted.sum, size));
  CHECK(is_close(found.sum_of_squares, wanted.sum_of_squares, wanted.sum_of_squares));
  CHECK(found.not_finite == 0);
}

// Values below the smallest limit are rounding errors where they should be 0, as the gradient of the keys' bias: their
// sign depends on the layout.
std::vector<int64_t> without_signs_of_zero(std::vector<int64_t> counts) {
  const size_t below_zero = counts.size() / 2 - 1;
  counts[below_zero] += counts[below_zero + 1];
  counts[below_zero + 1] = 0;
  return counts;
}

void check_equal(const Histogram& found, const Histogram& wanted) {
  CHECK(without_signs_of_zero(found.counts) == without_signs_of_zero(wanted.counts));
  const double largest = std::max(std::abs(wanted.least), std::abs(wanted.most));
  CHECK(is_close(found.least, wanted.least, largest));
  CHECK(is_close(found.most, wanted.most, largest));
  check_sums(found, wanted);
}

void check_same(const Histogram& found, const Histogram& wanted) {
  CHECK(found.counts == wanted.counts);
  CHECK(found.least == wanted.least);
  CHECK(found.most == wanted.most);
  check_sums(found, wanted);
}

// The most by which the numbers of values below a limit differ.
int64_t distance(const Histogram& a, const Histogram& b) {
  int64_t largest = 0;
  int64_t difference = 0;
  for (size_t i = 0; i < a.counts.size(); ++i) {
    difference += a.counts[i] - b.counts[i];
    largest = std::max(largest, std::abs(difference));
  }
  return largest;
}

}  // namespace

TEST_CASE("histograms: fp64 counts in every layout are those of one process") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const Experiment trained = experiment("fp64");
  const comm::MpiGroup alone = world.split(world.rank());
  const TrainingOutcome reference = run(trained, Layout{}, alone);
  for (const Layout& layout : test_layouts(world.size())) {
    CAPTURE(layout.text());
    Training training(trained, layout, world);
    training.run_steps();
    const auto all = training.histograms();
    CHECK(all.size() == reference.parameters.size());
    for (const ParameterHistograms& found : all) {
      CAPTURE(found.name);
      check_equal(found.weights, counted(reference.parameters.at(found.name)));
      check_equal(found.gradient, counted(reference.gradients.back().at(found.name)));
    }
  }
}

TEST_CASE("histograms: in each precision they are of the layout's own values, and close to one process's") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() > 4) {
    return;  // no kind of layout that is not among those of fewer ranks
  }
  for (const char* const precision : {"fp32", "bf16", "fp16", "bf16 with half gradients"}) {
    Experiment trained = experiment(std::string(precision).substr(0, 4).c_str());
    CAPTURE(precision);
    if (std::string(precision).ends_with("gradients")) {
      trained.options.precision.gradient = trained.options.precision.reduce = at::kBFloat16;
    }
    const comm::MpiGroup alone = world.split(world.rank());
    Training one(trained, Layout{}, alone);
    one.run_steps();
    const auto reference = one.histograms();
    for (const Layout& layout : test_layouts(world.size())) {
      CAPTURE(layout.text());
      Training training(trained, layout, world);
      training.run_steps();
      const auto all = training.histograms();
      const TrainingOutcome own = training.outcome();  // whole tensors of this rank's stage
      REQUIRE(all.size() == reference.size());
      for (size_t i = 0; i < all.size(); ++i) {
        CAPTURE(all[i].name);
        REQUIRE(all[i].name == reference[i].name);
        CHECK(all[i].weights.size() == reference[i].weights.size());
        CHECK(all[i].gradient.size() == reference[i].gradient.size());
        if (all[i].name.ends_with("weight")) {  // biases begin at 0, where Adam makes steps of rounding errors' signs
          CHECK(distance(all[i].weights, reference[i].weights) <= 2 + all[i].weights.size() / 100);
        }
        if (own.parameters.contains(all[i].name)) {
          check_same(all[i].weights, counted(own.parameters.at(all[i].name)));
          check_same(all[i].gradient, counted(own.gradients.back().at(all[i].name)));
        }
      }
    }
  }
}
