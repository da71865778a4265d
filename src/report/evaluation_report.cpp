// The figures of an evaluation: a table and an object.
#include "src/report/evaluation_report.h"

#include <numeric>

#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr size_t kNameWidth = 22;
constexpr size_t kFigureWidth = 14;

std::string row(const std::string& name, const std::vector<std::string>& cells) {
  std::string out = name + std::string(name.size() < kNameWidth ? kNameWidth - name.size() : 1, ' ');
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
