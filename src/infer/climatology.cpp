// Which climatology counts, and its fields at rows of the data.
#include "src/infer/climatology.h"

#include <ATen/ops/stack.h>
#include <unistd.h>

#include <algorithm>

#include "data/datasets/year_files.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/train/data_source.h"

namespace vit_hybrid::train {

Climatology::Climatology(const DataConfig& data, const std::string& path, const data::WeatherTimes& times,
                         const comm::MpiGroup& group)
    : times_(times) {
  const std::string of_stats = data.stats.empty() ? "" : data.stats + "/climatology.nc";
  const bool is_there = path.empty() && data.time_means.empty() && !of_stats.empty() &&
                        group.min(::access(of_stats.c_str(), R_OK) == 0 ? 1 : 0) > 0;
  // What only lies beside the statistics is nothing for data without dates.
  const bool have_dates = std::all_of(times.files().begin(), times.files().end(), [](const data::RowFile& file) {
    return file.layout.times.kind == data::TimeAxis::Kind::kDates;
  });
  const std::string& found = is_there && have_dates ? of_stats : path;
  if (found.empty()) {
    mean_ = climatology_of(data, group, times);
    return;
  }
  by_day_.emplace(group, found, data::FieldQuery{.dataset = "fields", .variables = data.variables}, times);
  comm::agreed(group, [&] {
    if (!have_dates) {
      throw Error(ErrorClass::kBadData,
                  str("the data in ", data.valid_data, " have no dates, which the climatology ", found, " is by"),
                  "leave --climatology out: anomalies are then against --time-means");
    }
  });
  seconds_ = data::seconds_of_rows(group, times.files());
}

void Climatology::require(const std::vector<Range>& runs) const {
  if (!by_day_) {
    return;
  }
  std::vector<data::DayTime> needed;
  for (const Range& run : runs) {
    for (int64_t row = run.begin; row < run.end; ++row) {
      needed.push_back(day_time(row));
    }
  }
  by_day_->require(needed);
}

at::Tensor Climatology::read(int64_t row, int64_t count) const {
  if (!by_day_) {
    return mean_;
  }
  std::vector<at::Tensor> fields;
  for (int64_t i = row; i < row + count; ++i) {
    fields.push_back(by_day_->read(day_time(i)));
  }
  return at::stack(fields);
}

std::string Climatology::text() const {
  return by_day_ ? "day and hour" : mean_.defined() ? "time means" : "channel means";
}

data::DayTime Climatology::day_time(int64_t row) const {
  return data::day_time(seconds_[static_cast<size_t>(row)], times_.file_of(row).layout.times);
}

}  // namespace vit_hybrid::train
