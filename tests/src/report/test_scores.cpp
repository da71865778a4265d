// Validation figures against loops that follow the definitions.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <cmath>

#include "src/report/scores.h"

using vit_hybrid::train::Evaluation;
using vit_hybrid::train::EvaluationSums;

namespace {

constexpr int64_t kB = 3, kC = 2, kH = 4, kW = 6;

double weighted_rmse(const at::Tensor& a, const at::Tensor& b, const at::Tensor& w, int64_t channel) {
  double total = 0.0;
  for (int64_t n = 0; n < kB; ++n) {
    double sum = 0.0;
    for (int64_t i = 0; i < kH; ++i) {
      for (int64_t j = 0; j < kW; ++j) {
        const double d = a[n][channel][i][j].item<double>() - b[n][channel][i][j].item<double>();
        sum += w[i].item<double>() * d * d;
      }
    }
    total += std::sqrt(sum / (kH * kW));
  }
  return total / kB;
}

double weighted_acc(const at::Tensor& a, const at::Tensor& b, const at::Tensor& mean, const at::Tensor& w,
                    int64_t channel) {
  double total = 0.0;
  for (int64_t n = 0; n < kB; ++n) {
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (int64_t i = 0; i < kH; ++i) {
      for (int64_t j = 0; j < kW; ++j) {
        const double m = mean[channel][i][j].item<double>();
        const double x = a[n][channel][i][j].item<double>() - m;
        const double y = b[n][channel][i][j].item<double>() - m;
        ab += w[i].item<double>() * x * y;
        aa += w[i].item<double>() * x * x;
        bb += w[i].item<double>() * y * y;
      }
    }
    total += ab / std::sqrt(aa * bb);
  }
  return total / kB;
}

}  // namespace

TEST_CASE("evaluation: RMSE, ACC and persistence are the sample means of the weighted definitions") {
  const at::Tensor prediction = at::rand({kB, kC, kH, kW}, at::kDouble);
  const at::Tensor target = at::rand({kB, kC, kH, kW}, at::kDouble);
  const at::Tensor input = at::rand({kB, kC, kH, kW}, at::kDouble);
  const at::Tensor climatology = at::rand({kC, kH, kW}, at::kDouble);
  const at::Tensor weights = at::tensor({0.5, 1.5, 1.2, 0.8}, at::kDouble);
  EvaluationSums sums = EvaluationSums::forecast(kC, weights, climatology);
  sums.add_forecast(0.5, prediction.narrow(0, 0, 2), target.narrow(0, 0, 2), input.narrow(0, 0, 2));
  sums.add_forecast(0.25, prediction.narrow(0, 2, 1), target.narrow(0, 2, 1), input.narrow(0, 2, 1));
  const Evaluation figures = sums.finish(sums.sums());
  CHECK(figures.samples == kB);
  CHECK(figures.loss == doctest::Approx(0.25));
  for (int64_t c = 0; c < kC; ++c) {
    const auto i = static_cast<size_t>(c);
    CHECK(figures.rmse[i] == doctest::Approx(weighted_rmse(prediction, target, weights, c)).epsilon(1e-12));
    CHECK(figures.persistence_rmse[i] == doctest::Approx(weighted_rmse(input, target, weights, c)).epsilon(1e-12));
    CHECK(figures.acc[i] == doctest::Approx(weighted_acc(prediction, target, climatology, weights, c)).epsilon(1e-12));
    CHECK(figures.persistence_acc[i] ==
          doctest::Approx(weighted_acc(input, target, climatology, weights, c)).epsilon(1e-12));
  }
}

TEST_CASE("evaluation: a perfect forecast has no error and correlates fully") {
  const at::Tensor truth = at::rand({kB, kC, kH, kW}, at::kFloat);
  EvaluationSums sums = EvaluationSums::forecast(kC, at::ones({kH}, at::kDouble), at::Tensor());
  sums.add_forecast(0.0, truth, truth, truth);
  const Evaluation figures = sums.finish(sums.sums());
  CHECK(figures.rmse[1] == 0.0);
  CHECK(figures.acc[1] == doctest::Approx(1.0).epsilon(1e-12));
}

TEST_CASE("evaluation: top-1 and top-5 count samples") {
  const at::Tensor logits = at::arange(40, at::kDouble).reshape({4, 10});  // class 9 is always the largest
  const at::Tensor labels = at::tensor({9, 5, 4, 0}, at::kLong);
  EvaluationSums sums = EvaluationSums::classification();
  sums.add_classification(8.0, logits, labels);
  const Evaluation figures = sums.finish(sums.sums());
  CHECK(figures.loss == 2.0);
  CHECK(figures.top1 == 0.25);
  CHECK(figures.top5 == 0.5);
}

TEST_CASE("evaluation: no samples give no figures and no division by zero") {
  const EvaluationSums sums = EvaluationSums::forecast(kC, at::ones({kH}, at::kDouble), at::Tensor());
  const Evaluation figures = sums.finish(sums.sums());
  CHECK(figures.samples == 0);
  CHECK_FALSE(figures.is_forecast());
}
