// Forcings: fields that are computed from time and place: the Sun's height, and cycles of the day and the year.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// Each is called as in ECMWF's earthkit and anemoi, in small letters without the k: "cos_zenith".
enum class Forcing {
  kCosLatitude,
  kSinLatitude,
  kCosLongitude,
  kSinLongitude,
  kCosZenith,     ///< cosine of the Sun's zenith angle, below 0 at night (makani's add_zenith)
  kInsolation,    ///< the same by day, 0 at night
  kCosLocalTime,  ///< of 2 pi (hours UTC / 24 + longitude / 360)
  kSinLocalTime,
  kCosJulianDay,  ///< of 2 pi d / 365.25, d the days since the begin of the year (UTC), with their fraction
  kSinJulianDay,
};

/// By its name or another one that is usual: zenith; cos_solar_zenith_angle, which is the insolation in earthkit;
/// GraphCast's day_progress_cos and year_progress_sin. Nothing for what is none. Pure.
std::optional<Forcing> forcing_named(const std::string& name);
const char* forcing_name(Forcing forcing);
std::vector<std::string> forcing_names();  ///< of all, one each, for messages and help
bool depends_on_time(Forcing forcing);

/// The values at the points of `rows`, a range of latitudes: out [rows, longitudes], float32, of sums in double.
/// `seconds` since the begin of 1970 of the TimeAxis::calendar `calendar`; `grid` has both latitudes and longitudes.
/// The Sun's place is that of the Astronomical Almanac's low-precision formulas (Michalsky, Solar Energy 40 (1988) 227,
/// section 2), right to 0.01 degrees from 1950 to 2050, without refraction. In another calendar than the standard one
/// the hour is the model's, and the season that of the same fraction of the real year of this number. Error(kBadData)
/// for a time that is in no year. Pure.
void compute_forcing(Forcing forcing, double seconds, const std::string& calendar, const Grid& grid, Range rows,
                     float* out);

}  // namespace vit_hybrid::data
