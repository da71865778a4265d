// The index of a climatology's rows by day and hour.
#include "data/datasets/day_climatology.h"

#include <algorithm>
#include <cmath>

#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

WeatherOptions climatology_options(const std::string& path, const FieldQuery& query, const WeatherTimes& fields) {
  WeatherOptions options;
  options.folder = path;
  options.normalization = part_of(fields.normalization(), fields.channels().predicted());
  options.fields = {.dataset = query.dataset,
                    .channels = part_of_names(fields.given_channels(), fields.channels().predicted()),
                    .variables = query.variables};
  options.lead = {.rows = 1};
  return options;
}

}  // namespace

DayClimatology::Key DayClimatology::key_of(const DayTime& time) {
  return {time.day_of_year, std::llround(time.seconds)};
}

DayClimatology::DayClimatology(const comm::MpiGroup& group, const std::string& path, const FieldQuery& query,
                               const WeatherTimes& fields)
    : path_(path), times_(group, climatology_options(path, query, fields)) {
  comm::agreed(group, [&] {
    if (times_.target_shape() != fields.target_shape() || !same_grid(times_.grid(), fields.grid())) {
      throw Error(
          ErrorClass::kBadData,
          str("the climatology ", path, " has fields (", join(times_.target_shape()), ") of ", grid_text(times_.grid()),
              ", the data (", join(fields.target_shape()), ") of ", grid_text(fields.grid())),
          "make it of these channels on this grid: data stats --climatology");
    }
    for (size_t c = 0; c < times_.units().size(); ++c) {
      const std::string &unit = times_.units()[c], &expected = fields.units()[c];
      if (!unit.empty() && !expected.empty() && !is_same_unit(unit, expected)) {
        throw Error(ErrorClass::kBadData,
                    str("the climatology ", path, " has ", shown(fields.channel_names()[c]), " in ", shown(unit),
                        ", the data in ", shown(expected)),
                    "convert the values of one of them, or make it of these data: data stats --climatology");
      }
    }
    for (const RowFile& file : times_.files()) {
      if (file.layout.times.kind != TimeAxis::Kind::kDates) {
        throw Error(ErrorClass::kBadData, str("the climatology ", file.path, " has no dates"),
                    "needed is a row for each day of a year at each hour of the data: data stats --climatology");
      }
    }
  });
  const auto seconds = seconds_of_rows(group, times_.files());
  comm::agreed(group, [&] {
    for (int64_t row = 0; row < std::ssize(seconds); ++row) {
      const DayTime time = day_time(seconds[static_cast<size_t>(row)], times_.file_of(row).layout.times);
      if (!rows_.try_emplace(key_of(time), row).second) {
        throw Error(ErrorClass::kBadData,
                    str(path_, " is no climatology: it has day ", time.day_of_year, " of the year at ",
                        time.seconds / kSecondsOfHour, " hours twice"),
                    "needed is one row for each day of a year at each hour: data stats --climatology");
      }
    }
  });
}

void DayClimatology::require(const std::vector<DayTime>& times) const {
  const auto missing =
      std::find_if(times.begin(), times.end(), [&](const DayTime& time) { return !rows_.contains(key_of(time)); });
  if (missing != times.end()) {
    throw Error(ErrorClass::kBadData,
                str("the climatology ", path_, " has no row for day ", missing->day_of_year, " of the year at ",
                    missing->seconds / kSecondsOfHour, " hours"),
                "needed is a row for each day of a leap year at each hour of the data: data stats --climatology");
  }
}

at::Tensor DayClimatology::read(const DayTime& time) const {
  return times_.read(rows_.at(key_of(time)));
}

}  // namespace vit_hybrid::data
