// Moments, scores by both rules, and spectra against closed forms; the order of roots and means.
#include "src/report/lead_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

using namespace vit_hybrid;
using namespace vit_hybrid::train;

namespace {

double score(const LeadFigures& figures, int64_t channel, FieldScore which) {
  return figures.scores[channel][which].item<double>();
}

}  // namespace

TEST_CASE("lead scores: moments are the weighted means of products of anomalies, of rows of any width") {
  for (const int64_t width : {1, 7, 8, 19}) {
    for (const bool by_sample : {false, true}) {
      const auto field = [&] { return at::randn({3, 2, 5, width}, at::kDouble); };
      const at::Tensor f = field(), y = field(), p = field(), all = field();
      const at::Tensor mean = by_sample ? all : all[0];
      const at::Tensor weights = at::tensor({0.2, 1.3, 2.0, 1.0, 0.5}, at::kDouble);
      const at::Tensor moments = field_moments(f, y, p, weights, mean);
      const auto average = [&](const at::Tensor& x) { return (x * weights.view({5, 1})).mean({2, 3}); };
      const at::Tensor a = f - mean, b = y - mean, s = p - mean;
      const std::vector<at::Tensor> expected = {
          average(f - y),      average((f - y).square()), average(a * b), average(a.square()),
          average(b.square()), average((p - y).square()), average(s * b), average(s.square())};
      for (int64_t m = 0; m < kNumFieldMoments; ++m) {
        CAPTURE(m);
        CHECK((moments.select(2, m) - expected[static_cast<size_t>(m)]).abs().max().item<double>() < 1e-14);
      }
    }
  }
}

TEST_CASE("lead scores: the reference takes the root of each start, WeatherBench that of the mean, in units") {
  const data::Grid grid{{90, 0, -90}, {}};
  const data::Normalization units{{10.0}, {4.0}};
  const at::Tensor truth = at::ones({2, 1, 3, 4});
  at::Tensor forecast = at::ones({2, 1, 3, 4});
  forecast[0] += 1.0;
  forecast[1] -= 3.0;  // squared errors 1 and 9, everywhere
  for (const ScoreRules rules : {ScoreRules::kReference, ScoreRules::kWeatherBench}) {
    const bool is_reference = rules == ScoreRules::kReference;
    const double unit = is_reference ? 1.0 : 4.0;
    LeadSums sums(rules, {{1, 6.0}, {4, 24.0}}, grid, units, 3, 4);
    const at::Tensor power = sums.power(truth[0]).expand({2, 1, 3});
    sums.add(0, forecast.narrow(0, 0, 1), truth.narrow(0, 0, 1), power, truth.narrow(0, 0, 1), {});
    sums.add(0, forecast.narrow(0, 1, 1), truth.narrow(0, 1, 1), power, truth.narrow(0, 1, 1), {});
    sums.add(1, forecast, truth, power, truth, {});
    for (const LeadFigures& figures : sums.finish(sums.sums())) {
      CHECK(figures.samples == 2);
      CHECK(score(figures, 0, kRmse) == doctest::Approx(unit * (is_reference ? 2.0 : std::sqrt(5.0))));
      CHECK(score(figures, 0, kBias) == doctest::Approx(-1.0 * unit));
      // Anomalies against 0: 2 and -2 of the forecast, 1 of the truth. Each start correlates fully, or against.
      CHECK(score(figures, 0, kAcc) == doctest::Approx(0.0));
      CHECK(score(figures, 0, kActivity) == doctest::Approx(2.0 * unit));
      CHECK(score(figures, 0, kClimatologyRmse) == doctest::Approx(unit));
      CHECK(score(figures, 0, kPersistenceRmse) == 0.0);
      CHECK(score(figures, 0, kPersistenceAcc) == doctest::Approx(1.0));
      const double mean = is_reference ? 1.0 : 10.0 + 4.0;
      CHECK(figures.truth_spectrum[0][0].item<double>() == doctest::Approx(mean * mean));
    }
  }
}

TEST_CASE("lead scores: zonal power is that of each wave, and all of it the mean square") {
  constexpr double kTurn = 2.0 * std::numbers::pi;
  const data::Normalization same = data::Normalization::identity(1);
  for (const int64_t width : {9, 16}) {
    const at::Tensor angle = kTurn / static_cast<double>(width) * at::arange(width, at::kDouble);
    const at::Tensor row = 2.0 + 3.0 * at::cos(angle * 2) + 0.5 * at::sin(angle * 4);
    const at::Tensor weights = at::tensor({0.5, 1.5}, at::kDouble);
    const at::Tensor power = zonal_power(row.expand({1, 2, width}).contiguous(), weights, same)[0];
    CHECK(power.numel() == width / 2 + 1);
    CHECK(power[0].item<double>() == doctest::Approx(4.0));
    CHECK(power[2].item<double>() == doctest::Approx(4.5));
    CHECK(power[4].item<double>() == doctest::Approx(0.125));
    CHECK(power.sum().item<double>() == doctest::Approx(8.625));
    const at::Tensor field = at::randn({1, 2, width}, at::kDouble);
    const at::Tensor of_all = zonal_power(field, weights, {{0.3}, {2.0}});
    const at::Tensor square = (field * 2.0 + 0.3).square() * weights.view({2, 1});
    CHECK(of_all.sum().item<double>() == doctest::Approx(square.mean().item<double>()).epsilon(1e-13));
  }
}
