// The rows of ranks as a file of HDF5.
#include <doctest/doctest.h>
#include <hdf5.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_attributes.h"
#include "data/hdf5/hdf5_open.h"
#include "src/report/run_record.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;

namespace {

// A dataset of three rows, as numbers of the type asked for.
template <class T>
std::vector<T> column(const std::string& path, const std::string& name) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  std::vector<T> values(3);
  CHECK(H5Dread(dataset, std::is_same_v<T, double> ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64, H5S_ALL, H5S_ALL,
                H5P_DEFAULT, values.data()) >= 0);
  H5Dclose(dataset);
  H5Fclose(file);
  return values;
}

std::string texts(const std::string& path, const std::string& name) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  const std::string text = data::hdf5_joined_text(dataset, "texts");
  H5Dclose(dataset);
  H5Fclose(file);
  return text;
}

}  // namespace

TEST_CASE("rank rows: each figure is a dataset, of integers, of numbers, or of texts") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.rank() == 0) {
    const testing::ScratchFolder folder;
    const std::string path = folder.file("ranks.h5");
    const train::Json rows = train::Json::parse(R"([
      {"rank": 0, "host": "n1", "seconds": {"step": 1.5, "rest": 1}, "memory": {"peak": {"data": 9007199254740993}}},
      {"rank": 1, "host": "n2", "seconds": {"step": 2, "rest": 2}, "memory": {"peak": {"data": 0}}, "slow": [{"percent": 7.5}]},
      {"rank": 2, "host": "n1", "seconds": {"step": 0.25}, "memory": {"peak": {"data": -1}}, "slow": []}])");
    const train::Json usage = train::Json::parse(R"([{"rank": 0, "node": {"mean": 1.0}}, {"rank": 1}, {"rank": 2}])");
    train::write_rank_rows(path, {{"ranks", rows}, {"usage", usage}});
    CHECK(column<int64_t>(path, "ranks/rank") == std::vector<int64_t>{0, 1, 2});
    CHECK(column<int64_t>(path, "ranks/memory/peak/data") == std::vector<int64_t>{9007199254740993, 0, -1});
    CHECK(column<double>(path, "ranks/seconds/step") == std::vector<double>{1.5, 2.0, 0.25});
    const auto rest = column<double>(path, "ranks/seconds/rest");
    CHECK((rest[0] == 1.0 && rest[1] == 2.0 && std::isnan(rest[2])));
    CHECK(column<int64_t>(path, "ranks/host") == std::vector<int64_t>{0, 1, 0});
    CHECK(texts(path, "ranks/host") == "n1\nn2\n");
    CHECK(column<int64_t>(path, "ranks/slow") == std::vector<int64_t>{0, 1, 2});
    CHECK(texts(path, "ranks/slow") == "null\n[{\"percent\":7.5}]\n[]\n");
    CHECK(column<double>(path, "usage/node/mean")[0] == 1.0);
    CHECK(std::isnan(column<double>(path, "usage/node/mean")[1]));
  }
  world.barrier();
}
