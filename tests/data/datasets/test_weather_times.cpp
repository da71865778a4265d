// Single states of a weather data set: units of channels, and values in them. (Files are read by mpi_tests.)
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include "data/datasets/weather_dataset.h"

using namespace vit_hybrid::data;

TEST_CASE("weather times: the variables of ERA5 have their units, other names have none") {
  CHECK(era5_unit("u10") == "m/s");
  CHECK(era5_unit("v1000") == "m/s");
  CHECK(era5_unit("t2m") == "K");
  CHECK(era5_unit("t850") == "K");
  CHECK(era5_unit("sp") == "Pa");
  CHECK(era5_unit("msl") == "Pa");
  CHECK(era5_unit("z50") == "m2/s2");
  CHECK(era5_unit("r850") == "%");
  CHECK(era5_unit("tcwv") == "kg/m2");
  for (const char* name : {"u", "tracer_1", "height", "", "500", "zeta"}) {
    CAPTURE(name);
    CHECK(era5_unit(name).empty());
  }
}

TEST_CASE("weather times: values in the units of the data are mean + std x, channel by channel") {
  const at::Tensor normalised = at::tensor({1.0, -2.0, 0.5, 0.0}, at::kFloat).reshape({2, 1, 2});
  const at::Tensor values = denormalize_field(normalised, {{10.0, -1.0}, {2.0, 4.0}});
  CHECK(values.equal(at::tensor({12.0, 6.0, 1.0, -1.0}, at::kFloat).reshape({2, 1, 2})));
  CHECK(normalised[0][0][0].item<double>() == 1.0);  // left as it was
}
