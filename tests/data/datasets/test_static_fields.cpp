// Static fields from HDF5 files and Zarr stores written here, in every order of dims, against closed forms.
#include "data/datasets/static_fields.h"

#include <ATen/ops/empty.h>
#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "data/datasets/field_catalogue.h"
#include "data/zarr/zarr_metadata.h"
#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {

namespace {

using testing::contains;
using testing::ScratchFolder;
using Numbers = std::vector<double>;
using Kinds = std::vector<DimKind>;

const Numbers kLatitudes = {60, 0, -60};
const Numbers kLongitudes = {0, 90, 180, 270};
const Grid kGrid = {kLatitudes, kLongitudes};
const std::vector<int64_t> kShape = {3, 4};
const Numbers kHeight = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 23};  // of the points, row after row
const Numbers kLand = {0, 0, 0.25, 0, 1, 1, 0, 0, 0.5, 0, 0, 0};

Numbers turned(const Numbers& values, size_t num_rows) {
  Numbers result;
  for (size_t j = 0; j < values.size() / num_rows; ++j) {
    for (size_t i = 0; i < num_rows; ++i) {
      result.push_back(values[i * (values.size() / num_rows) + j]);
    }
  }
  return result;
}

at::Tensor tensor_of(const Numbers& values, const std::vector<int64_t>& shape, at::ScalarType type = at::kFloat) {
  const at::Tensor result = at::empty(shape, at::kDouble);
  std::copy(values.begin(), values.end(), result.mutable_data_ptr<double>());
  return result.to(type);
}

void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

struct ZarrVariable {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::string> dims;
  Numbers values;
  ZarrJson attributes = ZarrJson::object();
  bool is_packed = false;  // 16-bit integers, else float32
};

template <class T>
std::string bytes_of(const Numbers& values) {
  const std::vector<T> converted(values.begin(), values.end());
  return {reinterpret_cast<const char*>(converted.data()), converted.size() * sizeof(T)};
}

// A store of version 2 whose arrays are one chunk of zlib each.
void write_store(const std::string& folder, std::vector<ZarrVariable> variables) {
  write_text(folder + "/.zgroup", R"({"zarr_format": 2})");
  variables.push_back({"latitude", {3}, {"latitude"}, kLatitudes});
  variables.push_back({"longitude", {4}, {"longitude"}, kLongitudes});
  for (ZarrVariable& variable : variables) {
    std::string key = "0";
    for (size_t d = 1; d < variable.shape.size(); ++d) {
      key += ".0";
    }
    const ZarrJson metadata = {{"shape", variable.shape},
                               {"chunks", variable.shape},
                               {"dtype", variable.is_packed ? "<i2" : "<f4"},
                               {"fill_value", nullptr},
                               {"order", "C"},
                               {"filters", nullptr},
                               {"compressor", {{"id", "zlib"}, {"level", 1}}},
                               {"zarr_format", 2}};
    variable.attributes["_ARRAY_DIMENSIONS"] = variable.dims;
    const std::string bytes =
        variable.is_packed ? bytes_of<int16_t>(variable.values) : bytes_of<float>(variable.values);
    uLongf size = compressBound(bytes.size());
    std::string stored(size, 0);
    REQUIRE(compress(reinterpret_cast<Bytef*>(stored.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                     bytes.size()) == Z_OK);
    stored.resize(size);
    const std::string place = folder + "/" + variable.name;
    write_text(place + "/.zarray", metadata.dump());
    write_text(place + "/.zattrs", variable.attributes.dump());
    write_text(place + "/" + key, stored);
  }
}

void write_static_file(const std::string& path, std::vector<testing::TestDataset> datasets) {
  datasets.push_back({"latitude", tensor_of(kLatitudes, {3})});
  datasets.push_back({"longitude", tensor_of(kLongitudes, {4})});
  testing::write_hdf5_file(path, datasets);
}

using Strings = std::vector<std::string>;

StaticFields read_static(const std::string& path, const Strings& names, const std::string& variables = {},
                         const Grid& grid = kGrid, const std::vector<int64_t>& shape = kShape) {
  return read_static_fields({path}, names, variables, grid, shape);
}

// Of mean 6.5.
void check_height(const at::Tensor& field) {
  double squares = 0.0;
  for (const double value : kHeight)
    squares += (value - 6.5) * (value - 6.5) / 12.0;
  REQUIRE(field.numel() == 12);
  for (size_t i = 0; i < kHeight.size(); ++i) {
    const double expected = (kHeight[i] - 6.5) / std::sqrt(squares);
    CHECK(std::abs(field.contiguous().const_data_ptr<float>()[i] - expected) < 1e-6);
  }
}

void check_land(const StaticFields& fields, int64_t first, double tolerance = 0.0) {
  for (size_t i = 0; i < kLand.size(); ++i) {
    const float* const values = fields.values[first].const_data_ptr<float>();
    CHECK(std::abs(values[i] - kLand[i]) <= tolerance);
    CHECK(values[i + 12] == 1.0F - values[i]);
  }
}

Error static_refusal(const std::string& path, const Strings& names, const std::string& variables = {},
                     const Grid& grid = kGrid, const std::vector<int64_t>& shape = kShape) {
  const Error error = testing::thrown_error([&] { read_static(path, names, variables, grid, shape); });
  CAPTURE(error.message());
  CHECK(!contains(error.message(), "\n"));
  return error;
}

}  // namespace

TEST_CASE("static fields: dims of one field") {
  constexpr auto kNone = DimKind::kUnknown, kTime = DimKind::kTime, kLevel = DimKind::kLevel, kOther = DimKind::kOther,
                 kLat = DimKind::kLatitude, kLon = DimKind::kLongitude, kSingle = DimKind::kSingle;
  CHECK((static_dims({3, 4}, {kNone, kNone}) == Kinds{kLat, kLon}));
  CHECK((static_dims({3, 4}, {kLat, kLon}) == Kinds{kLat, kLon}));
  CHECK((static_dims({4, 3}, {kLon, kLat}) == Kinds{kLon, kLat}));
  CHECK((static_dims({9, 3, 4}, {kNone, kNone, kNone}) == Kinds{kTime, kLat, kLon}));
  CHECK((static_dims({9, 4, 3}, {kTime, kLon, kLat}) == Kinds{kTime, kLon, kLat}));
  CHECK((static_dims({1, 3, 4}, {kOther, kLat, kLon}) == Kinds{kTime, kLat, kLon}));
  CHECK((static_dims({1, 1, 3, 4}, {kTime, kOther, kLat, kLon}) == Kinds{kTime, kSingle, kLat, kLon}));
  CHECK((static_dims({3, 4, 1}, {kLat, kLon, kOther}) == Kinds{kLat, kLon, kSingle}));
  for (const auto& [shape, told] : {std::pair<std::vector<int64_t>, Kinds>{{13, 3, 4}, {kLevel, kLat, kLon}},
                                    {{1, 1, 3, 4}, {kTime, kLevel, kLat, kLon}},
                                    {{9, 2, 3, 4}, {kNone, kNone, kNone, kNone}},
                                    {{12, 3, 4}, {kOther, kLat, kLon}},
                                    {{3, 4}, {kOther, kOther}},
                                    {{9, 3}, {kTime, kLat}},
                                    {{12}, {kLat}}}) {
    CAPTURE(shape.size());
    CHECK(static_dims(shape, told).empty());
  }
}

TEST_CASE("static fields: names of the surface's geopotential and of the mask") {
  const auto flat = [](const std::string& name) {
    return FieldVariable{name, {3, 4}, {}, {DimKind::kLatitude, DimKind::kLongitude}, {}, {}};
  };
  const FieldVariable on_levels{"z", {9, 2, 3, 4}, {"time", "level", "lat", "lon"}, {}, {}, {}};
  const auto found = [](const std::vector<FieldVariable>& variables, const std::string& name,
                        const std::string& own = {}) {
    return variables[find_static_field(name, {.variables = own}, variables, "a.nc")].name;
  };
  for (const char* name :
       {"z", "orography", "geopotential_at_surface", "surface_geopotential", "zsfc", "orog", "oro", "geopotential"}) {
    CAPTURE(std::string(name));
    CHECK(found({on_levels, flat("geopotential_at_surface"), flat("lsm")}, name) == "geopotential_at_surface");
    CHECK(found({flat("z"), flat("lsm")}, name) == "z");
    CHECK(found({flat("Z"), flat("LSM")}, name) == "Z");
  }
  for (const char* name : {"lsm", "land_sea_mask", "sftlf", "LSM"}) {
    CHECK(found({flat("z"), flat("land_sea_mask")}, name) == "land_sea_mask");
  }
  CHECK(found({flat("slt"), flat("z")}, "soil", "soil=slt") == "slt");
  CHECK(found({flat("z")}, "z", "z=phi,t=temp") == "z");  // which other files have
  const auto error = [&](const std::vector<FieldVariable>& variables, const std::string& name) {
    return testing::thrown_error([&] { found(variables, name); });
  };
  const Error levels = error({on_levels, flat("lsm")}, "z");
  CHECK(levels.error_class() == ErrorClass::kBadData);
  CHECK(levels.message() == "a.nc has no static field 'z': z (time, level, lat, lon) of 9 x 2 x 3 x 4 is none");
  CHECK(contains(levels.hint(), "without levels"));
  const Error missing = error({flat("lsm"), flat("orography")}, "orografy");
  CHECK(missing.message() == "a.nc has no static field 'orografy'");
  CHECK(contains(missing.hint(), "nearest is 'orography'; it has lsm, orography; --variables"));
  CHECK(contains(error({}, "lsm").hint(), "none of its arrays is one"));
}

TEST_CASE("static fields: from HDF5 files as they are stored") {
  const ScratchFolder folder;
  const std::string file = folder.file("static.nc");
  write_static_file(file, {{"z", tensor_of(kHeight, {3, 4}), {2, 3}, 4, testing::Stored::kAsInMemory, true},
                           {"oro", tensor_of(kHeight, {3, 4}, at::kDouble)},
                           {"zsfc", tensor_of(kHeight, {3, 4}), {}, 0, testing::Stored::kBigEndian},
                           {"height", tensor_of(kHeight, {1, 3, 4}, at::kInt)},
                           {"lsm", tensor_of(kLand, {3, 4})}});
  const StaticFields fields = read_static(file, {"z", "lsm", "height", "oro", "zsfc"});
  CHECK(fields.names == Strings{"z", "lsm", "sea", "height", "oro", "zsfc"});
  REQUIRE(fields.values.sizes() == at::IntArrayRef{6, 3, 4});
  CHECK(fields.values.is_contiguous());
  for (const int64_t channel : {0, 3, 4, 5}) {
    check_height(fields.values[channel]);
  }
  check_land(fields, 1);
  // Of a folder the first; without a grid by the shape alone.
  write_static_file(folder.file("later.nc"), {{"slt", tensor_of(kHeight, {3, 4})}});
  check_height(read_static(folder.path(), {"slt"}, "", {}).values[0]);
  // The first of two times.
  Numbers times = kHeight;
  times.insert(times.end(), kLand.begin(), kLand.end());
  const std::string two = folder.file("two.nc");
  write_static_file(two, {{"z", tensor_of(times, {2, 3, 4}), {1, 3, 4}, 1}});
  check_height(read_static(two, {"orography"}).values[0]);
}

TEST_CASE("static fields: from Zarr stores, dims in either order, packed") {
  const ScratchFolder folder;
  const std::string store = folder.file("era5.zarr");
  Numbers packed = turned(kHeight, 3);
  for (double& value : packed)
    value = (value - 3.0) / 0.5;
  Numbers per_cent = kLand;
  for (double& value : per_cent)
    value *= 100.0;
  write_store(store, {{"geopotential", {1, 1, 3, 4}, {"time", "level", "latitude", "longitude"}, kLand},
                      {"geopotential_at_surface", {4, 3}, {"longitude", "latitude"}, turned(kHeight, 3)},
                      {"packed",
                       {1, 4, 3},
                       {"time", "longitude", "latitude"},
                       packed,
                       {{"scale_factor", 0.5}, {"add_offset", 3.0}},
                       true},
                      {"sftlf", {3, 4}, {"latitude", "longitude"}, per_cent, {{"units", "%"}}},
                      {"mask", {4, 3}, {"longitude", "latitude"}, turned(kLand, 3)}});
  const StaticFields fields = read_static(store, {"z", "land_sea_mask", "packed"});
  CHECK(fields.names == Strings{"z", "lsm", "sea", "packed"});
  check_height(fields.values[0]);
  check_land(fields, 1, 1e-7);
  check_height(fields.values[3]);
  check_land(read_static(store, {"lsm"}, "lsm=mask"), 0);
}

TEST_CASE("static fields: what does not fit is refused in one line") {
  const ScratchFolder folder;
  const std::string file = folder.file("static.nc"), store = folder.file("static.zarr");
  Numbers hole = kHeight;
  hole[6] = std::numeric_limits<double>::quiet_NaN();
  write_static_file(file, {{"z", tensor_of(kHeight, {3, 4})},
                           {"lsm", tensor_of(kHeight, {3, 4})},
                           {"hole", tensor_of(hole, {3, 4})},
                           {"flat", tensor_of(Numbers(12, 7.0), {3, 4})},
                           {"small", tensor_of(kLatitudes, {3, 1})}});
  Numbers missing = kHeight;
  missing[9] = -99;
  write_store(store, {{"z", {3, 4}, {"latitude", "longitude"}, missing, {{"_FillValue", -99}}, true},
                      {"lsm", {3, 4}, {"latitude", "longitude"}, Numbers(12, 0.0)}});
  const auto check = [](const Error& error, const std::string& what, ErrorClass kind = ErrorClass::kBadData) {
    CAPTURE(error.message());
    CHECK(error.error_class() == kind);
    CHECK(contains(error.message(), what));
  };
  check(static_refusal(file, {"lsm"}), "static field 'lsm' is 2 at row 0, column 2; a land-sea mask is in [0, 1]");
  check(static_refusal(file, {"hole"}), "static field 'hole' is missing or nan at row 1, column 2");
  check(static_refusal(store, {"z"}), "static field 'z' is missing or nan at row 2, column 1");
  check(static_refusal(file, {"flat"}), "static field 'flat' is 7 everywhere");
  check(static_refusal(store, {"lsm"}), "static field 'lsm' is 0 everywhere");
  check(static_refusal(file, {"z", "orography"}), "names 'z' and 'orography', which are one field", ErrorClass::kUsage);
  check(static_refusal(file, {"small"}), "has 3 x 1 latitudes and longitudes, the data have 3 x 4");
  check(static_refusal(file, {"z"}, "", {{-60, 0, 60}, kLongitudes}),
        "its latitudes from 60 to -60, the data the other way");
  check(static_refusal(file, {"z"}, "", {kLatitudes, {-180, -90, 0, 90}}),
        "has 3 latitudes from 60 to -60, 4 longitudes from 0 to 270, the data have");
  check(static_refusal(file, {"z"}, "", {{61, 0, -61}, {}}), "the data have 3 latitudes from 61 to -61, no longitudes");
  check(static_refusal(file, {"t"}), "has no static field 't'");
  check(static_refusal(file, {"latitude"}), "has no static field 'latitude'");
  check(static_refusal(folder.file("none"), {"z"}), "is not there", ErrorClass::kMissingInput);
  write_text(folder.file("note.txt"), "CDF");
  check(static_refusal(folder.file("note.txt"), {"z"}), "note.txt");
}

}  // namespace vit_hybrid::data
