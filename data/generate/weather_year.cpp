// WeatherYear: one year of generated weather, an integration from its own keyed initial state, sample by sample.
#include "data/generate/weather_year.h"

#include <algorithm>
#include <cmath>

#include "data/generate/planet.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr double kSecondsPerHour = 3600.0;
constexpr double kSpinUpHours = 30.0 * 24.0;

int64_t rounded_up(double value) {
  return static_cast<int64_t>(std::ceil(value));
}

RandomStream year_stream(uint64_t seed, int64_t year) {
  return {seed, Purpose::kSyntheticData, name_key("weather"), static_cast<uint64_t>(year)};
}

}  // namespace

int64_t spin_up_samples(double sample_interval_hours) {
  return rounded_up(kSpinUpHours / sample_interval_hours);
}

WeatherYear::WeatherYear(const WeatherYearOptions& options, int64_t year)
    : year_(year),
      channels_(options.channels),
      model_(planet_plane(options.height, options.width), channels_.num_tracers()),
      driving_(model_.grid(), planet_driving(model_.grid(), channels_.num_tracers()), channels_.num_tracers()),
      state_(planet_initial_state(model_.grid(), driving_.options(), year_stream(options.seed, year),
                                  channels_.num_tracers())) {
  const double interval = options.sample_interval_hours * kSecondsPerHour;
  const double longest = std::min(model_.stable_time_step(), driving_.stable_time_step());
  steps_per_sample_ = rounded_up(interval / longest);
  time_step_ = interval / static_cast<double>(steps_per_sample_);
}

void WeatherYear::advance() {
  for (int64_t step = 0; step < steps_per_sample_; ++step) {
    model_.step(state_, time_step_);
    driving_.apply(state_, time_step_);
  }
  for (const PeriodicField& field : state_.fields) {
    if (!std::isfinite(field.sum())) {
      throw Error(ErrorClass::kInternal,
                  str("the generated weather of year ", year_, " blew up (time step ", time_step_, " s)"),
                  "this is a defect of the generator, please report it with your options");
    }
  }
}

}  // namespace vit_hybrid::data
