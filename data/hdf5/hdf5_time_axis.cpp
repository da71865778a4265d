// Reading of a scale of times and of its attributes of the climate and forecast (CF) conventions.
#include "data/hdf5/hdf5_time_axis.h"

#include <algorithm>
#include <vector>

#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_virtual.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

// What netCDF-4 calls the scale of a dim that has no values.
constexpr const char* kNoValues = "This is a netCDF dimension but not a netCDF variable";

// Nothing where the scale is none of times.
std::vector<double> values_of(hid_t scale, int64_t num_rows) {
  const Hid type(H5Dget_type(scale), &H5Tclose);
  const Hid space(H5Dget_space(scale), &H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  std::vector<double> values;
  if ((kind == H5T_INTEGER || kind == H5T_FLOAT) && hdf5_shape(space.get()) == std::vector<int64_t>{num_rows} &&
      !hdf5_text_attribute(scale, "NAME").starts_with(kNoValues)) {
    hdf5_require_parts(scale, str(hdf5_file_name(scale), ": scale '", shown(hdf5_object_name(scale)), "'"));
    values.resize(static_cast<size_t>(num_rows));
    if (H5Dread(scale, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
      values.clear();
    }
  }
  return values;
}

}  // namespace

TimeAxis hdf5_time_axis(hid_t dataset, const std::string& where) {
  const Hid space(H5Dget_space(dataset), &H5Sclose);
  const auto shape = hdf5_shape(space.get());
  const auto scales = hdf5_attached_scales(dataset);
  for (size_t i = 0; !shape.empty() && shape.front() > 0 && i < scales.front().size(); ++i) {
    const Hid& scale = scales.front()[i];
    const std::vector<double> values = values_of(scale.get(), shape.front());
    if (values.empty()) {
      continue;
    }
    const TimeAxis axis = time_axis(values.front(), values.back(), hdf5_text_attribute(scale.get(), "units"),
                                    hdf5_text_attribute(scale.get(), "calendar"));
    const auto bad = std::adjacent_find(values.begin(), values.end(), [](double a, double b) { return !(a < b); });
    if (bad != values.end() && axis.kind == TimeAxis::Kind::kDates) {
      throw Error(ErrorClass::kBadData,
                  str(where, ": its times do not ascend: row ", bad - values.begin(), " has ", *bad, ", the next one ",
                      *(bad + 1), " (", shown(hdf5_text_attribute(scale.get(), "units")), ")"),
                  "sort the rows of the file by time, each once");
    }
    H5Eclear2(H5E_DEFAULT);
    return bad == values.end() ? axis : TimeAxis{};
  }
  H5Eclear2(H5E_DEFAULT);
  return {};
}

}  // namespace vit_hybrid::data
