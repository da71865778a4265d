// Reading of all times, the test for even spacing, and whether the stored type holds the times that are new.
#include "data/hdf5/hdf5_scale_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "a long double holds every 64-bit integer");

using Values = std::vector<long double>;

// Of a value in the file beside the one that was meant.
long double rounding_of(hid_t type, const Values& values) {
  if (H5Tget_class(type) == H5T_INTEGER) {
    return 0;
  }
  size_t fraction_bits = 0;
  size_t ignored = 0;
  H5Tget_fields(type, &ignored, &ignored, &ignored, &ignored, &fraction_bits);
  long double largest = 0;
  for (const long double value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  return std::ldexp(largest, -static_cast<int>(fraction_bits));
}

// The mean is nearer to what was meant than the last two values, which are rounded.
long double spacing_of(const Values& times) {
  return (times.back() - times.front()) / static_cast<long double>(times.size() - 1);
}

bool is_even(const Values& times, long double rounding) {
  const long double spacing = spacing_of(times);
  return std::adjacent_find(times.begin(), times.end(), [&](long double before, long double after) {
           return !(std::fabs(after - before - spacing) <= 2 * rounding);  // also where one is no number
         }) == times.end();
}

bool holds(hid_t type, const Values& values, long double rounding) {
  if (H5Tget_size(type) > sizeof(long double)) {
    return false;
  }
  Values stored = values;
  if (H5Tconvert(H5T_NATIVE_LDOUBLE, type, stored.size(), stored.data(), nullptr, H5P_DEFAULT) < 0 ||
      H5Tconvert(type, H5T_NATIVE_LDOUBLE, stored.size(), stored.data(), nullptr, H5P_DEFAULT) < 0) {
    return false;
  }
  return std::equal(values.begin(), values.end(), stored.begin(),
                    [&](long double a, long double b) { return std::fabs(a - b) <= rounding; });
}

Hdf5Times none(const std::string& why_not) {
  return {{}, why_not};
}

}  // namespace

Hdf5Times hdf5_times(hid_t scale, int64_t num_times, int64_t first, int64_t count) {
  const Hid type(H5Dget_type(scale), &H5Tclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) {
    return none("its values are no numbers");
  }
  const Hid space(H5Dget_space(scale), &H5Sclose);
  if (const auto shape = hdf5_shape(space.get()); shape != std::vector<int64_t>{num_times}) {
    return none(str("its shape is (", join(shape), "), there are ", num_times, " times"));
  }
  Values known(static_cast<size_t>(num_times));
  if (H5Dread(scale, H5T_NATIVE_LDOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, known.data()) < 0) {
    return none("it cannot be read: " + hdf5_reason());
  }
  const auto begin = known.begin() + std::min(first, num_times);
  const auto end = known.begin() + std::min(first + count, num_times);
  Hdf5Times times{{begin, end}, ""};
  if (first + count <= num_times) {
    return times;
  }
  const long double rounding = rounding_of(type.get(), known);
  if (num_times == 1 || !is_even(known, rounding)) {
    return none(str("the forecast goes beyond the file's last time, and its ", num_times,
                    num_times == 1 ? " value has no spacing" : " values are not evenly spaced"));
  }
  Values more;
  for (int64_t time = std::max(first, num_times); time < first + count; ++time) {
    more.push_back(known.back() + spacing_of(known) * static_cast<long double>(time - num_times + 1));
  }
  if (!holds(type.get(), more, std::max(rounding, rounding_of(type.get(), more)))) {
    return none(str("its type (", hdf5_type_name(type.get()), ") does not hold the times behind the file's last one"));
  }
  times.values.insert(times.values.end(), more.begin(), more.end());
  return times;
}

}  // namespace vit_hybrid::data
