// Scores: the sums and what they become, and their lines and records.
#include "src/report/scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "model/losses.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kHead = 2;  // samples, loss

// sqrt(mean_ij w_i (a - b)^2) summed over the samples, by channel.
at::Tensor rmse_sum(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weights) {
  return ((a - b).square() * weights).mean({2, 3}).sqrt().sum(0);
}

// Anomaly correlation summed over the samples, by channel. A constant anomaly field has none: it counts as 0.
at::Tensor acc_sum(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weights) {
  const at::Tensor covariance = (a * b * weights).sum({2, 3});
  const at::Tensor scale = ((a.square() * weights).sum({2, 3}) * (b.square() * weights).sum({2, 3})).sqrt();
  return (covariance / scale).nan_to_num(0.0, 0.0, 0.0).sum(0);
}

at::Tensor to_host_double(const at::Tensor& tensor) {
  return tensor.to(at::kCPU, at::kDouble);
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

EvaluationSums::EvaluationSums(int64_t channels)
    : channels_(channels), sums_(at::zeros({kHead + (channels > 0 ? 4 * channels : 2)}, at::kDouble)) {}

EvaluationSums EvaluationSums::forecast(int64_t channels, at::Tensor weights, at::Tensor climatology) {
  EvaluationSums result(channels);
  result.weights_ = to_host_double(weights).reshape({-1, 1});
  result.climatology_ = climatology.defined() ? to_host_double(climatology) : climatology;
  return result;
}

EvaluationSums EvaluationSums::classification() {
  return EvaluationSums(0);
}

void EvaluationSums::add_forecast(double loss_sum, const at::Tensor& prediction, const at::Tensor& target,
                                  const at::Tensor& input) {
  VH_ASSERT(channels_ > 0, "sums of a classification");
  at::Tensor forecast = to_host_double(prediction);
  at::Tensor truth = to_host_double(target);
  at::Tensor start = to_host_double(input);
  sums_[0] += forecast.size(0);
  sums_[1] += loss_sum;
  const auto block = [this](int64_t i) { return sums_.narrow(0, kHead + i * channels_, channels_); };
  block(0).add_(rmse_sum(forecast, truth, weights_));
  block(2).add_(rmse_sum(start, truth, weights_));
  if (climatology_.defined()) {
    forecast = forecast - climatology_;
    truth = truth - climatology_;
    start = start - climatology_;
  }
  block(1).add_(acc_sum(forecast, truth, weights_));
  block(3).add_(acc_sum(start, truth, weights_));
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
