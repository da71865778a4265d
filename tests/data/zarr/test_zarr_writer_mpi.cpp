// Stores that are written: the same arrays and values read again, by any number of ranks, and none before their end.
#include "data/zarr/zarr_writer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "data/reading/row_reader.h"
#include "data/zarr/zarr_fields.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/partition.h"
#include "tests/support/mpi_test.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
namespace fs = std::filesystem;

namespace {

std::vector<data::ZarrArray> arrays_to_write() {
  return {data::zarr_array_to_write("z", {5, 2, 4, 3}, {1, 2, 4, 3}, {"time", "level", "latitude", "longitude"},
                                    at::kFloat, {{"units", "m**2 s**-2"}}),
          data::zarr_array_to_write("level", {2}, {2}, {"level"}, at::kDouble, {{"units", "hPa"}}),
          data::zarr_array_to_write("number", {5}, {5}, {"time"}, at::kLong)};
}

at::Tensor levels_to_write() {
  return at::arange(2, at::kDouble).mul(350.0).add(500.0);
}

}  // namespace

TEST_CASE("zarr writer: what ranks have written together is read again") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder scratch(world);
  const std::string folder = scratch.file("a.zarr");
  const at::Tensor values = at::arange(5 * 2 * 4 * 3, at::kFloat).mul(0.7).view({5, 2, 4, 3});
  data::ZarrWriter writer(world, folder, arrays_to_write(), {{"title", "a test"}});
  const Range mine = Partition(5, world.size()).part(world.rank());
  for (int64_t time = mine.begin; time < mine.end; ++time) {
    writer.write("z", std::vector<int64_t>{time, 0, 0, 0}, values.narrow(0, time, 1));
  }
  if (world.rank() == 0) {
    writer.write("level", std::vector<int64_t>{0}, levels_to_write());
    writer.write("number", std::vector<int64_t>{0}, at::arange(5, at::kLong));
  }
  world.barrier();
  CHECK_FALSE(data::is_zarr_store(folder));
  CHECK_FALSE(data::is_zarr_store(folder + "/z"));
  world.barrier();
  writer.finish();
  CHECK(data::is_zarr_store(folder));

  const data::ZarrStore store = data::read_zarr_store(folder);
  CHECK((store.attributes == data::ZarrJson{{"title", "a test"}}));
  REQUIRE(store.arrays.size() == 3);
  for (const data::ZarrArray& wanted : arrays_to_write()) {
    INFO(wanted.name);
    const auto found = std::find_if(store.arrays.begin(), store.arrays.end(),
                                    [&](const data::ZarrArray& array) { return array.name == wanted.name; });
    REQUIRE(found != store.arrays.end());
    CHECK(found->refused == "");
    CHECK(found->shape == wanted.shape);
    CHECK(found->chunk == wanted.chunk);
    CHECK(found->dims == wanted.dims);
    CHECK((found->type == wanted.type));
    CHECK((found->codecs == wanted.codecs));
    CHECK((found->attributes == wanted.attributes));
    CHECK(std::isnan(*found->fill_value) == std::isnan(*wanted.fill_value));
    CHECK(found->chunk_path(std::vector<int64_t>(wanted.shape.size(), 0)) ==
          wanted.chunk_path(std::vector<int64_t>(wanted.shape.size(), 0)));
  }
  const data::ZarrFields fields(folder);
  const auto variables = fields.variables();
  REQUIRE(variables.size() == 1);
  CHECK(variables[0].levels == std::vector<double>{500.0, 850.0});
  const data::ArrayLayout layout = fields.inspect(variables[0], true);
  CHECK(layout.unwritten == "");
  const at::Tensor stored = at::empty({5, 2, 4, 3});
  std::vector<data::RowRead> rows;
  for (int64_t time = 0; time < 5; ++time) {
    rows.push_back({0, time, stored.mutable_data_ptr<float>() + time * stored.stride(0)});
  }
  data::DirectRowReader({{folder, layout}}).read(rows, std::vector{data::RowBox::whole(layout)}, {});
  CHECK(at::equal(stored, values));
  world.barrier();

  // A store that is written anew is none until its end, and keeps the chunks that nobody replaces.
  data::ZarrWriter again(world, folder, arrays_to_write());
  CHECK_FALSE(data::is_zarr_store(folder));
  CHECK_FALSE(fs::exists(folder + "/z/zarr.json"));
  CHECK(fs::exists(folder + "/z/c/4/0/0/0"));
  world.barrier();
}

TEST_CASE("zarr writer: paths in a store that are its own") {
  const auto arrays = arrays_to_write();
  for (const char* path : {"z/c/0/0/0/0", "z/c/4/0/0/0", "level/c/0", "number/c/0"}) {
    INFO(path);
    CHECK(data::is_chunk_of(arrays, path));
    CHECK_FALSE(data::is_metadata_of(arrays, path));
  }
  for (const char* path : {"z/c/5/0/0/0", "z/c/0/1/0/0", "z/c/0/0/0", "z/c/00/0/0/0", "z/c/0/0/0/0/", "z/c/-0/0/0/0",
                           "t/c/0/0/0/0", "z/0/0/0/0", "z", "zarr.json.partial", "z/c/0/0/0/x", "z/c//0/0/0"}) {
    INFO(path);
    CHECK_FALSE(data::is_chunk_of(arrays, path));
    CHECK_FALSE(data::is_metadata_of(arrays, path));
  }
  CHECK(data::is_metadata_of(arrays, "zarr.json"));
  CHECK(data::is_metadata_of(arrays, "level/zarr.json"));
  CHECK_FALSE(data::is_metadata_of(arrays, "t/zarr.json"));
}
