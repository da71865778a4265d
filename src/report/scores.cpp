// Scores: the sums and what they become, and their lines and records.
#include "src/report/scores.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "model/losses.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kHead = 2;  // samples, loss

// So that the loop is compiled to vectors and errors grow more slowly.
constexpr int64_t kPartialSums = 8;
using PartialSums = std::array<double, kPartialSums>;

// Of a field of `height` rows; `climatology` has a row for each, or one for all (stride 0).
template <class T>
void plane_moments(const T* f, const T* y, const T* p, const T* climatology, int64_t climatology_stride,
                   const double* weights, int64_t height, int64_t width, double* to) {
  std::fill_n(to, kNumFieldMoments, 0.0);
  for (int64_t i = 0; i < height; ++i, f += width, y += width, p += width, climatology += climatology_stride) {
    std::array<PartialSums, kNumFieldMoments> sums{};
    const auto add = [&](int64_t j, size_t part) {
      const double forecast = f[j], truth = y[j], start = p[j], mean = climatology[j];
      const double error = forecast - truth, persistence_error = start - truth;
      const double a = forecast - mean, b = truth - mean, s = start - mean;
      sums[kError][part] += error;
      sums[kSquaredError][part] += error * error;
      sums[kCovariance][part] += a * b;
      sums[kForecastVariance][part] += a * a;
      sums[kTruthVariance][part] += b * b;
      sums[kPersistenceError][part] += persistence_error * persistence_error;
      sums[kPersistenceCovariance][part] += s * b;
      sums[kPersistenceVariance][part] += s * s;
    };
    const int64_t whole = width - width % kPartialSums;
    for (int64_t j = 0; j < whole; j += kPartialSums) {
      for (int64_t part = 0; part < kPartialSums; ++part) {
        add(j + part, static_cast<size_t>(part));
      }
    }
    for (int64_t j = whole; j < width; ++j) {
      add(j, 0);
    }
    for (size_t m = 0; m < sums.size(); ++m) {
      to[m] += weights[i] * std::accumulate(sums[m].begin(), sums[m].end(), 0.0);
    }
  }
  for (int64_t m = 0; m < kNumFieldMoments; ++m) {
    to[m] /= static_cast<double>(height * width);
  }
}

template <class T>
void planes_moments(const at::Tensor& f, const at::Tensor& y, const at::Tensor& p, const at::Tensor& climatology,
                    const at::Tensor& weights, const at::Tensor& to) {
  const int64_t channels = f.size(1), height = f.size(2), width = f.size(3);
  const int64_t plane = height * width;
  const bool is_known = climatology.defined(), by_sample = is_known && climatology.dim() == 4;
  const std::vector<T> zeros(static_cast<size_t>(is_known ? 0 : width));
  const auto* const row_weights = weights.const_data_ptr<double>();
  auto* const out = to.mutable_data_ptr<double>();
  at::parallel_for(0, f.size(0) * channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = [plane](const at::Tensor& fields, int64_t number) {
        return fields.const_data_ptr<T>() + number * plane;
      };
      plane_moments(at(f, i), at(y, i), at(p, i),
                    is_known ? at(climatology, by_sample ? i : i % channels) : zeros.data(), is_known ? width : 0,
                    row_weights, height, width, out + i * kNumFieldMoments);
    }
  });
}

std::vector<double> means(const at::Tensor& sums, int64_t begin, int64_t count, double samples) {
  const double* values = sums.const_data_ptr<double>() + begin;
  std::vector<double> result(values, values + count);
  for (double& value : result) {
    value /= samples;
  }
  return result;
}

constexpr size_t kRowNameWidth = 22;
constexpr size_t kFigureWidth = 14;

std::string row(const std::string& name, const std::vector<std::string>& cells) {
  std::string out = name + std::string(name.size() < kRowNameWidth ? kRowNameWidth - name.size() : 1, ' ');
  for (const std::string& cell : cells) {
    out += right_text(cell, kFigureWidth);
  }
  return out;
}

std::string row(const std::string& name, double rmse, double persistence_rmse, double acc, double persistence_acc) {
  return row(
      name, {fixed_text(rmse, 6), fixed_text(persistence_rmse, 6), fixed_text(acc, 6), fixed_text(persistence_acc, 6)});
}

Json by_name(const std::vector<std::string>& names, const std::vector<double>& values) {
  Json object = Json::object();
  for (size_t i = 0; i < values.size(); ++i) {
    object[i < names.size() ? names[i] : str("c", i)] = values[i];
  }
  return object;
}

}  // namespace

at::Tensor field_moments(const at::Tensor& forecast, const at::Tensor& truth, const at::Tensor& persistence,
                         const at::Tensor& weights, const at::Tensor& climatology) {
  const bool is_double = forecast.scalar_type() == at::kDouble || truth.scalar_type() == at::kDouble;
  const auto host = [&](const at::Tensor& fields) {
    return fields.defined() ? fields.to(at::kCPU, is_double ? at::kDouble : at::kFloat).contiguous() : fields;
  };
  const at::Tensor f = host(forecast), y = host(truth), p = host(persistence), mean = host(climatology);
  VH_ASSERT(f.dim() == 4 && f.sizes() == y.sizes() && f.sizes() == p.sizes() && weights.numel() == f.size(2) &&
                (!mean.defined() || mean.sizes() == (mean.dim() == 4 ? f.sizes() : f.sizes().slice(1))),
            str("fields of ", join(f.sizes()), " and ", join(y.sizes())));
  const at::Tensor out = at::empty({f.size(0), f.size(1), kNumFieldMoments}, at::kDouble);
  (is_double ? planes_moments<double> : planes_moments<float>)(f, y, p, mean, weights, out);
  return out;
}

at::Tensor field_scores(const at::Tensor& moments) {
  const auto moment = [&](FieldMoment i) { return moments.select(-1, i); };
  const auto correlation = [&](FieldMoment covariance, FieldMoment variance) {
    return (moment(covariance) / (moment(variance) * moment(kTruthVariance)).sqrt()).nan_to_num(0.0, 0.0, 0.0);
  };
  return at::stack({moment(kError), moment(kSquaredError).sqrt(), correlation(kCovariance, kForecastVariance),
                    moment(kForecastVariance).sqrt(), moment(kTruthVariance).sqrt(), moment(kPersistenceError).sqrt(),
                    correlation(kPersistenceCovariance, kPersistenceVariance)},
                   -1);
}

EvaluationSums::EvaluationSums(int64_t channels)
    : channels_(channels), sums_(at::zeros({kHead + (channels > 0 ? 4 * channels : 2)}, at::kDouble)) {}

EvaluationSums EvaluationSums::forecast(int64_t channels, at::Tensor weights, at::Tensor climatology) {
  EvaluationSums result(channels);
  result.weights_ = weights.to(at::kCPU, at::kDouble).contiguous();
  result.climatology_ = std::move(climatology);
  return result;
}

EvaluationSums EvaluationSums::classification() {
  return EvaluationSums(0);
}

void EvaluationSums::add_forecast(double loss_sum, const at::Tensor& prediction, const at::Tensor& target,
                                  const at::Tensor& input) {
  VH_ASSERT(channels_ > 0, "sums of a classification");
  const at::Tensor scores = field_scores(field_moments(prediction, target, input, weights_, climatology_));
  sums_[0] += prediction.size(0);
  sums_[1] += loss_sum;
  int64_t begin = kHead;
  for (const FieldScore score : {kRmse, kAcc, kPersistenceRmse, kPersistenceAcc}) {
    sums_.narrow(0, begin, channels_).add_(scores.select(-1, score).sum(0));
    begin += channels_;
  }
}

void EvaluationSums::add_classification(double loss_sum, const at::Tensor& logits, const at::Tensor& labels) {
  VH_ASSERT(channels_ == 0, "sums of a forecast");
  sums_[0] += logits.size(0);
  sums_[1] += loss_sum;
  sums_[2] += model::num_correct(logits, labels, 1);
  sums_[3] += model::num_correct(logits, labels, 5);
}

Evaluation EvaluationSums::finish(const at::Tensor& reduced_sums) const {
  Evaluation result;
  const double* values = reduced_sums.const_data_ptr<double>();
  result.samples = static_cast<int64_t>(values[0]);
  if (result.samples == 0) {
    return result;
  }
  const double samples = values[0];
  result.loss = values[1] / samples;
  if (channels_ == 0) {
    result.top1 = values[2] / samples;
    result.top5 = values[3] / samples;
    return result;
  }
  result.rmse = means(reduced_sums, kHead, channels_, samples);
  result.acc = means(reduced_sums, kHead + channels_, channels_, samples);
  result.persistence_rmse = means(reduced_sums, kHead + 2 * channels_, channels_, samples);
  result.persistence_acc = means(reduced_sums, kHead + 3 * channels_, channels_, samples);
  return result;
}

std::string right_text(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

double mean_of(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

std::vector<std::string> table_lines(const Evaluation& figures, const std::vector<std::string>& channels) {
  std::vector<std::string> out = {str(figures.samples, " samples, loss ", fixed_text(figures.loss, 6))};
  if (!figures.is_forecast()) {
    out.push_back(
        str("top-1 ", fixed_text(100.0 * figures.top1, 2), " %, top-5 ", fixed_text(100.0 * figures.top5, 2), " %"));
    return out;
  }
  out.push_back(row("channel", {"RMSE", "persistence", "ACC", "persistence"}));
  for (size_t c = 0; c < figures.rmse.size(); ++c) {
    out.push_back(
        row(channels[c], figures.rmse[c], figures.persistence_rmse[c], figures.acc[c], figures.persistence_acc[c]));
  }
  out.push_back(row("mean", mean_of(figures.rmse), mean_of(figures.persistence_rmse), mean_of(figures.acc),
                    mean_of(figures.persistence_acc)));
  out.push_back("RMSE in standard deviations of each channel");
  return out;
}

Json to_json(const Evaluation& figures, const std::vector<std::string>& channels) {
  Json json = {{"samples", figures.samples}, {"loss", figures.loss}};
  if (figures.is_forecast()) {
    json["rmse"] = by_name(channels, figures.rmse);
    json["acc"] = by_name(channels, figures.acc);
    json["persistence_rmse"] = by_name(channels, figures.persistence_rmse);
    json["persistence_acc"] = by_name(channels, figures.persistence_acc);
  } else {
    json["top1"] = figures.top1;
    json["top5"] = figures.top5;
  }
  return json;
}

}  // namespace vit_hybrid::train
