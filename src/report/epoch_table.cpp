// epoch_table(): its columns and rows.
#include "src/report/epoch_table.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/report/evaluation_report.h"

namespace vit_hybrid::train {

namespace {

using Lines = std::vector<std::string>;

std::string cell(const std::string& text) {
  return right_text(text, 14);
}

std::string first_cell(const std::string& text) {
  return right_text(text, 6);
}

const EpochRecord* find_epoch(const std::vector<EpochRecord>& epochs, int64_t number) {
  const auto found =
      std::find_if(epochs.begin(), epochs.end(), [&](const EpochRecord& epoch) { return epoch.epoch == number; });
  return found != epochs.end() ? &*found : nullptr;
}

Lines without_validation(const std::vector<EpochRecord>& epochs) {
  Lines lines = {str(first_cell("epoch"), cell("train loss"), cell("samples/s"))};
  for (const EpochRecord& epoch : epochs) {
    lines.push_back(str(first_cell(std::to_string(epoch.epoch)), cell(fixed_text(epoch.train_loss, 6)),
                        cell(fixed_text(epoch.samples_per_second(), 2))));
  }
  return lines;
}

std::string row(const ValidationRecord& validation, const EpochRecord* epoch) {
  const Evaluation& figures = validation.figures;
  const bool is_forecast = figures.is_forecast();
  return str(first_cell(std::to_string(validation.epoch)),
             cell(epoch != nullptr ? fixed_text(epoch->train_loss, 6) : "-"), cell(fixed_text(figures.loss, 6)),
             cell(fixed_text(is_forecast ? mean_of(figures.rmse) : figures.top1, 6)),
             cell(fixed_text(is_forecast ? mean_of(figures.persistence_rmse) : figures.top5, 6)),
             cell(epoch != nullptr ? fixed_text(epoch->samples_per_second(), 2) : "-"));
}

}  // namespace

std::vector<std::string> epoch_table(const std::vector<EpochRecord>& epochs,
                                     const std::vector<ValidationRecord>& validations) {
  if (validations.empty()) {
    return without_validation(epochs);
  }
  const bool is_forecast = validations.front().figures.is_forecast();
  Lines lines = {str(first_cell("epoch"), cell("train loss"), cell("val loss"), cell(is_forecast ? "RMSE" : "top-1"),
                     cell(is_forecast ? "persistence" : "top-5"), cell("samples/s"))};
  for (const ValidationRecord& validation : validations) {
    lines.push_back(row(validation, find_epoch(epochs, validation.epoch)));
  }
  if (is_forecast) {
    lines.emplace_back(
        "epoch 0 is the untrained network; RMSE and persistence are means over the channels, in standard deviations");
  }
  return lines;
}

}  // namespace vit_hybrid::train
