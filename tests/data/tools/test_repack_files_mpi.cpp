// Repacking: values, attributes and scales survive every change of layout and type, whatever the number of ranks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "data/hdf5/hdf5_copy.h"
#include "data/hdf5/hdf5_open.h"
#include "data/hdf5/hdf5_rows.h"
#include "data/hdf5/hdf5_tree.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_source.h"
#include "data/tools/inspect_files.h"
#include "data/tools/repack_files.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/in_groups.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/typed_file.h"

namespace vit_hybrid::data {
namespace {

namespace fs = std::filesystem;
using testing::agreed_error;
using testing::contains;
using testing::counted;
using testing::file_bytes;
using testing::on_rank_0;
using testing::ScratchFolder;
using testing::Stored;

struct Source {
  const char* name;
  at::ScalarType type;
  std::vector<int64_t> chunk;
  int gzip;
  Stored stored;
  at::ScalarType kept;  // type of the values in memory
};

const std::vector<Source>& sources() {
  static const std::vector<Source> all{{"contiguous", at::kFloat, {}, 0, Stored::kAsInMemory, at::kFloat},
                                       {"gzip", at::kFloat, {2, 2, 3, 5}, 4, Stored::kAsInMemory, at::kFloat},
                                       {"double", at::kDouble, {3, 1, 4, 5}, 0, Stored::kAsInMemory, at::kDouble},
                                       {"big", at::kFloat, {}, 0, Stored::kBigEndian, at::kFloat},
                                       {"half", at::kFloat, {1, 3, 4, 5}, 0, Stored::kHalf, at::kHalf},
                                       {"bytes", at::kByte, {4, 3, 4, 5}, 1, Stored::kAsInMemory, at::kByte}};
  return all;
}

// Whole numbers below 256, which every type holds.
at::Tensor values_of(const Source& source) {
  return counted({7, 3, 4, 5}).remainder(251).to(source.type);
}

}  // namespace

TEST_CASE("repack: every kind of dataset to every layout and type") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  for (const Source& source : sources()) {
    CAPTURE(source.name);
    const std::string input = folder.file(str(source.name, ".h5"));
    const at::Tensor values = values_of(source);
    on_rank_0(group, [&] {
      testing::write_hdf5_file(
          input, {{"x", values, source.chunk, source.gzip, source.stored}, {"labels", counted({7}, at::kLong)}},
          {"a", "bc", "d"});
    });
    for (const RepackLayout layout : {RepackLayout::kContiguous, RepackLayout::kSampleChunks}) {
      for (const RepackType type : {RepackType::kKeep, RepackType::kBFloat16, RepackType::kFloat16}) {
        if (source.type == at::kByte && type != RepackType::kKeep) {
          continue;
        }
        const std::string out = folder.file(str(source.name, static_cast<int>(layout), static_cast<int>(type)));
        const auto done = repack_files(group, {{input}, out, "x", layout, type, 512}, {});
        REQUIRE(done.size() == 1);
        const at::ScalarType stored = type == RepackType::kKeep       ? source.kept
                                      : type == RepackType::kBFloat16 ? at::kBFloat16
                                                                      : at::kHalf;
        const ArrayLayout found = inspect_dataset(done[0].path, "x", "channels");
        CHECK((found.type == stored));
        CHECK(found.attribute == "a,bc,d");
        const bool is_contiguous = layout == RepackLayout::kContiguous;
        CHECK((found.storage == (is_contiguous ? ArrayLayout::Storage::kContiguous : ArrayLayout::Storage::kChunked)));
        CHECK((is_contiguous ? found.offset : found.chunk_offsets.at(3)) % 512 == 0);
        CHECK(at::equal(read_whole_dataset(done[0].path, "x"), values.to(stored)));
        CHECK(at::equal(read_whole_dataset(done[0].path, "labels"), counted({7}, at::kLong)));
        CHECK(!fs::exists(temporary_name(done[0].path)));
      }
    }
  }
}

TEST_CASE("repack: a virtual dataset becomes a real one") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor values = counted({4, 2, 3});
  const std::string input = folder.file("virtual.h5");
  on_rank_0(group, [&] {
    testing::write_hdf5_file(folder.file("a.h5"), {{"x", values}});
    testing::write_hdf5_file(folder.file("b.h5"), {{"x", values.neg()}});
    testing::write_virtual_file(input, "x", {folder.file("a.h5"), folder.file("b.h5")}, {4, 2, 3});
  });
  const auto done = repack_files(group, {{input}, folder.file("out"), "x"}, {});
  CHECK((inspect_dataset(done.at(0).path, "x").storage == ArrayLayout::Storage::kContiguous));
  CHECK(at::equal(read_whole_dataset(done.at(0).path, "x"), at::cat({values, values.neg()})));
  group.barrier();
}

TEST_CASE("repack: the same bytes from any number of ranks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  for (const RepackLayout layout : {RepackLayout::kContiguous, RepackLayout::kSampleChunks}) {
    const std::string input = folder.file("gzip.h5");
    on_rank_0(group, [&] { testing::write_scaled_file(input, counted({13, 2, 4, 5}), {"u", "v"}); });
    testing::in_groups(group, [&](const comm::MpiGroup& part, const std::string& name) {
      repack_files(part, {{input}, folder.file(str(name, static_cast<int>(layout))), "", layout}, {});
    });
    const auto bytes = [&](const char* name) {
      return file_bytes(folder.file(str(name, static_cast<int>(layout), "/gzip.h5")));
    };
    CHECK(!bytes("one").empty());
    CHECK((bytes("one") == bytes("all")));
    if (group.size() > 1) {
      CHECK((bytes("one") == bytes("rest")));
    }
    group.barrier();  // before the input is written anew
  }
}

TEST_CASE("repack: scales, groups, links and attributes are kept") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor fields = counted({5, 2, 4, 5});
  const std::string input = folder.file("scaled.h5");
  on_rank_0(group, [&] { testing::write_scaled_file(input, fields, {"u10", "t850"}); });
  CHECK(inspect_dataset(input, "fields", "channels").attribute == "u10,t850");
  const auto done = repack_files(group, {{input}, folder.file("out")}, {});
  const std::string& path = done.at(0).path;
  const auto before = describe_hdf5_file(input);
  const auto after = describe_hdf5_file(path);
  REQUIRE(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    CAPTURE(before[i].name);
    CHECK(before[i].name == after[i].name);
    CHECK((before[i].dims == after[i].dims));
    CHECK((before[i].attributes == after[i].attributes));
    CHECK(before[i].channels == after[i].channels);
    CHECK(before[i].type == after[i].type);
  }
  CHECK(inspect_dataset(path, "fields", "channels").attribute == "u10,t850");
  CHECK(testing::first_user_of_scale(path, "lat") == "/fields");
  CHECK(at::equal(read_whole_dataset(path, "state"), fields));  // through the link
  CHECK(at::equal(read_whole_dataset(path, "grid/levels"), counted({3}, at::kDouble).mul(0.5)));
  group.barrier();
}

TEST_CASE("repack: an object of several names stays one, and the dataset may be asked for by any of them") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor fields = counted({6, 2, 4, 5});
  const std::string input = folder.file("linked.h5");
  on_rank_0(group, [&] {
    testing::write_hdf5_file(input, {{"fields", fields, {2, 2, 4, 5}, 1}, {"levels", counted({3})}});
    const Hid file(H5Fopen(input.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose);
    const Hid grid(H5Gcreate2(file.get(), "grid", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), &H5Gclose);
    REQUIRE(H5Lmove(file.get(), "levels", grid.get(), "levels", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    for (const auto& [from, to] :
         {std::pair("grid", "same"), std::pair("fields", "again"), std::pair("/", "grid/up")}) {
      REQUIRE(H5Lcreate_hard(file.get(), from, file.get(), to, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    }
    REQUIRE(H5Lcreate_soft("/fields", file.get(), "state", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    testing::write_hdf5_file(folder.file("outside.h5"), {{"here", counted({2})}});
    testing::add_external_link(folder.file("outside.h5"), "fields", input);
  });
  for (const char* name : {"fields", "/fields", "./fields", "again", "state", "grid/up/fields"}) {
    CAPTURE(name);
    RepackOptions options{{input}, folder.file("out"), name};
    options.type = RepackType::kBFloat16;
    options.layout = RepackLayout::kSampleChunks;
    options.overwrite = true;
    const std::string path = repack_files(group, options, {}).at(0).path;
    for (const char* way : {"fields", "again", "state"}) {
      const ArrayLayout layout = inspect_dataset(path, way);
      CHECK((layout.type == at::kBFloat16));
      CHECK(layout.chunk == std::vector<int64_t>{1, 2, 4, 5});
      CHECK(at::equal(read_whole_dataset(path, way), fields.to(at::kBFloat16)));
    }
    CHECK(at::equal(read_whole_dataset(path, "same/levels"), counted({3})));
    CHECK(at::equal(read_whole_dataset(path, "same/up/grid/levels"), counted({3})));
    group.barrier();
  }
  const Error error = agreed_error(group, [&] {
    repack_files(group, {{folder.file("outside.h5")}, folder.file("out"), "fields"}, {});
  });
  CHECK_MESSAGE(contains(error.what(), "dataset 'fields' is a link to " + input), error.what());
  CHECK(!fs::exists(temporary_name(folder.file("out/outside.h5"))));
  group.barrier();
}

TEST_CASE("repack: what was never written is neither read nor made, and large rows are compared in parts") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string input = folder.file("in.h5");
  on_rank_0(group, [&] {
    testing::write_hdf5_file(input, {{"fields", counted({2, 2, 2})},
                                     {"row", counted({1, 3, 1 << 19})},
                                     {"chunks", counted({1, 3, 1 << 19}), {1, 2, 5000}, 1}});
    const Hid file(H5Fopen(input.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose);
    const std::vector<hsize_t> extents = {hsize_t{1} << 24, hsize_t{1} << 24};
    const std::vector<hsize_t> chunk = {64, 64};
    const Hid space(H5Screate_simple(2, extents.data(), nullptr), &H5Sclose);
    const Hid creation(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
    const auto add = [&](const char* name) {
      return Hid(H5Dcreate2(file.get(), name, H5T_NATIVE_FLOAT, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                 &H5Dclose);
    };
    REQUIRE(add("one run"));
    H5Pset_chunk(creation.get(), 2, chunk.data());
    const Hid sparse = add("sparse");
    const hsize_t most = (hsize_t{1} << 63) - 1;
    const hsize_t page = 4096;
    const Hid line(H5Screate_simple(1, &most, nullptr), &H5Sclose);
    H5Pset_chunk(creation.get(), 1, &page);
    REQUIRE(Hid(H5Dcreate2(file.get(), "most", H5T_NATIVE_UINT8, line.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                &H5Dclose));
    const std::vector<hsize_t> place = {extents[0] - 1, 70};
    H5Sselect_elements(space.get(), H5S_SELECT_SET, 1, place.data());
    const Hid one(H5Screate(H5S_SCALAR), &H5Sclose);
    const float value = 5.0F;
    REQUIRE(H5Dwrite(sparse.get(), H5T_NATIVE_FLOAT, one.get(), space.get(), H5P_DEFAULT, &value) >= 0);
  });
  const std::string path = repack_files(group, {{input}, folder.file("out")}, {}).at(0).path;
  on_rank_0(group, [&] {
    for (const char* name : {"row", "chunks"}) {
      CHECK(at::equal(read_whole_dataset(path, name), counted({1, 3, 1 << 19})));
    }
    CHECK(contains(inspect_dataset(path, "most").unwritten, "2251799813685248 of its 2251799813685248 chunks"));
    Hdf5Rewrite rewrite;
    rewrite.dataset = "fields";
    for (const auto& [dataset_name, at] : {std::pair("row", hsize_t{(1 << 19) - 1}),
                                           std::pair("chunks", hsize_t{1 << 18}), std::pair("sparse", hsize_t{70})}) {
      const char* const name = dataset_name;  // what a lambda may capture
      CAPTURE(name);
      const std::string other = folder.file("other.h5");
      fs::copy_file(path, other, fs::copy_options::overwrite_existing);
      {
        const Hid file(H5Fopen(other.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose);
        const Hid dataset(H5Dopen2(file.get(), name, H5P_DEFAULT), &H5Dclose);
        const Hid space(H5Dget_space(dataset.get()), &H5Sclose);
        std::vector<hsize_t> place;  // in the last row
        for (const int64_t extent : hdf5_shape(space.get())) {
          place.push_back(static_cast<hsize_t>(extent) - 1);
        }
        place.back() = at;
        H5Sselect_elements(space.get(), H5S_SELECT_SET, 1, place.data());
        const Hid one(H5Screate(H5S_SCALAR), &H5Sclose);
        const float value = -1.0F;
        REQUIRE(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, one.get(), space.get(), H5P_DEFAULT, &value) >= 0);
      }
      const Error error = testing::thrown_error([&] { verify_hdf5_copy(path, other, rewrite); });
      CHECK_MESSAGE(contains(error.what(), str("'", name, "' is not read as it was written: its values")),
                    error.what());
    }
  });
}

// Of three points, of which the middle one is in this row: number and bounds do not depend on it.
void add_region(const std::string& path, hsize_t middle) {
  const Hid file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose);
  const Hid fields(H5Dopen2(file.get(), "fields", H5P_DEFAULT), &H5Dclose);
  const Hid space(H5Dget_space(fields.get()), &H5Sclose);
  const std::vector<hsize_t> points = {0, 0, 0, 0, middle, 1, 1, 1, 4, 1, 3, 4};
  REQUIRE(H5Sselect_elements(space.get(), H5S_SELECT_SET, 3, points.data()) >= 0);
  hdset_reg_ref_t region{};
  REQUIRE(H5Rcreate(&region, file.get(), "fields", H5R_DATASET_REGION, space.get()) >= 0);
  const Hid one(H5Screate(H5S_SCALAR), &H5Sclose);
  const Hid dataset(
      H5Lexists(file.get(), "points", H5P_DEFAULT) > 0
          ? H5Dopen2(file.get(), "points", H5P_DEFAULT)
          : H5Dcreate2(file.get(), "points", H5T_STD_REF_DSETREG, one.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      &H5Dclose);
  REQUIRE(H5Dwrite(dataset.get(), H5T_STD_REF_DSETREG, H5S_ALL, H5S_ALL, H5P_DEFAULT, &region) >= 0);
}

TEST_CASE("repack: values of every type beside the fields are kept, and all of the file is read back") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string input = folder.file("typed.h5");
  on_rank_0(group, [&] {
    testing::write_hdf5_file(input, {{"fields", counted({5, 2, 4, 5}), {1, 2, 4, 5}, 1}});
    testing::add_typed_datasets(input, "fields");
    add_region(input, 1);
    testing::add_foreign_filter(input, "foreign", counted({3, 2}), 32100, "made-up");
  });
  const auto done = repack_files(group, {{input}, folder.file("out")}, {});
  const std::string& path = done.at(0).path;
  CHECK(at::equal(read_whole_dataset(path, "fields"), counted({5, 2, 4, 5})));
  on_rank_0(group, [&] {
    CHECK(testing::texts_and_fill(path, "names") == std::vector<std::string>{"one", "", "three", "nothing", "nothing"});
    CHECK(testing::texts_and_fill(path, "chunked").back() == "nothing");
    CHECK(testing::referred_names(path, "references") == std::vector<std::string>{"/names", ""});
    Hdf5Rewrite rewrite;
    rewrite.dataset = "fields";
    verify_hdf5_copy(input, path, rewrite);
    // What is compared is found: a value, an attribute and an object that are others.
    const auto differs = [&](const std::string& text, auto&& change) {
      const std::string other = folder.file("other.h5");
      fs::copy_file(path, other, fs::copy_options::overwrite_existing);
      change(other);
      const Error error = testing::thrown_error([&] { verify_hdf5_copy(path, other, rewrite); });
      CHECK((error.error_class() == ErrorClass::kIo));
      CHECK_MESSAGE(contains(error.what(), text), error.what());
    };
    const auto replaced = [](const char* old, const char* by) {
      return [=](const std::string& other) {
        std::string bytes = file_bytes(other);
        const size_t at = bytes.rfind(old);
        REQUIRE(at != std::string::npos);
        bytes.replace(at, std::string(by).size(), by);
        std::ofstream(other, std::ios::binary) << bytes;
      };
    };
    differs("'names'", replaced("three", "throw"));
    differs("'opaque' is not read as it was written: its values", replaced("abcdef", "abcdeg"));
    differs("'points'", [](const std::string& other) { add_region(other, 2); });
    differs("the list of its objects",
            [](const std::string& other) { testing::add_external_link(other, "l", "x.h5"); });
  });
}

TEST_CASE("repack: datasets whose values are in other files become real ones, unless those are elsewhere") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const at::Tensor raw = counted({6});
  on_rank_0(group, [&] {
    testing::write_hdf5_file(folder.file("part.h5"), {{"x", raw}});
    const PosixFile file(folder.file("raw"), PosixFile::Access::kCreate);
    file.write(0, raw.const_data_ptr(), static_cast<int64_t>(raw.nbytes()));
    testing::write_virtual_file(folder.file("both.h5"), "x", {"part.h5"}, {6});
    testing::add_external_dataset(folder.file("both.h5"), "fields", folder.file("raw"), {6});
  });
  const auto done = repack_files(group, {{folder.file("both.h5")}, folder.file("out"), "fields"}, {});
  on_rank_0(group, [&] { fs::rename(folder.file("raw"), folder.file("gone")); });
  for (const char* name : {"x", "fields"}) {
    CHECK(at::equal(read_whole_dataset(done.at(0).path, name), raw));
  }
  group.barrier();
  // A raw file in another folder is none of the data's, whoever asks and on whatever way.
  on_rank_0(group, [&] {
    fs::create_directories(folder.file("secret"));
    fs::rename(folder.file("gone"), folder.file("secret/raw"));
    fs::create_directories(folder.file("in"));
    testing::write_hdf5_file(folder.file("in/a.h5"), {{"fields", counted({2, 2, 2})}});
    testing::add_external_dataset(folder.file("in/a.h5"), "e", folder.file("secret/raw"), {6});
    testing::write_virtual_file(folder.file("v.h5"), "e", {"in/a.h5"}, {6});
    const Hid virtual_file(H5Fopen(folder.file("v.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT), &H5Fclose);
    const Hid other(H5Fopen(folder.file("in/a.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), &H5Fclose);
    REQUIRE(H5Ocopy(other.get(), "fields", virtual_file.get(), "fields", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    fs::create_symlink(folder.file("secret/raw"), folder.file("in/link"));
    testing::write_hdf5_file(folder.file("in/b.h5"), {{"fields", counted({2, 2, 2})}});
    testing::add_external_dataset(folder.file("in/b.h5"), "e", folder.file("in/link"), {6});
    testing::write_hdf5_file(folder.file("in/c.h5"), {{"fields", counted({1, 1, 6, 2})}});
    testing::add_external_dataset(folder.file("in/c.h5"), "latitude", folder.file("secret/raw"), {6});
  });
  const auto refused = [&](auto&& body, const std::string& name = "e") {
    const Error error = agreed_error(group, body);
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK_MESSAGE(contains(error.what(), str("'", name, "' has external storage in ", folder.file("secret/raw"))),
                  error.what());
    group.barrier();
  };
  for (const char* name : {"in/a.h5", "in/b.h5", "v.h5"}) {
    CAPTURE(name);
    const std::string path = folder.file(name);
    refused([&] { repack_files(group, {{path}, folder.file("out2"), "e"}, {}); });
    refused([&] { inspect_files(group, {{path}}, [](const std::string&) {}); });
    refused([&] { const RowSource source(group, {path}, "e", "", IoMode::kAuto); });
  }
  refused([&] { repack_files(group, {{folder.file("in/a.h5")}, folder.file("out2"), "fields"}, {}); });
  CHECK(!fs::exists(temporary_name(folder.file("out2/a.h5"))));
  refused([&] { repack_files(group, {{folder.file("v.h5")}, folder.file("out2"), "fields"}, {}); });
  refused([&] { const RowSource source(group, {folder.file("in/c.h5")}, "fields", "channels", IoMode::kAuto); },
          "/latitude");
}

TEST_CASE("hdf5: a link at the name of a temporary file is not followed") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string input = folder.file("in.h5");
  const std::string victim = folder.file("victim");
  const auto put_link = [&](const std::string& path) {
    on_rank_0(group, [&] {
      std::ofstream(victim) << "precious";
      fs::create_symlink(victim, temporary_name(path));
    });
  };
  on_rank_0(group, [&] {
    testing::write_hdf5_file(input, {{"fields", counted({2, 2, 2})}});
    fs::create_directories(folder.file("out"));
  });
  put_link(folder.file("out/in.h5"));
  repack_files(group, {{input}, folder.file("out")}, {});
  CHECK(file_bytes(victim) == "precious");
  CHECK(at::equal(read_whole_dataset(folder.file("out/in.h5"), "fields"), counted({2, 2, 2})));
  // HDF5 alone: what stands there when it makes a file is not opened.
  on_rank_0(group, [&] {
    fs::create_symlink(victim, folder.file("link"));
    const Hid access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
    const Error error = testing::thrown_error([&] { hdf5_create_anew(folder.file("link"), Hid(), access); });
    CHECK((error.error_class() == ErrorClass::kCannotCreate));
    CHECK(file_bytes(victim) == "precious");
    hdf5_make_way(folder.file("link"));
    static_cast<void>(hdf5_create_anew(folder.file("link"), Hid(), access));
    CHECK(file_bytes(victim) == "precious");
  });
  const std::string path = folder.file("written.h5");
  put_link(path);
  Hdf5Writer writer(group, path, {{"x", {group.size()}, at::kFloat}});
  const std::vector<int64_t> start = {group.rank()};
  writer.write("x", start, counted({1}));
  writer.finish();
  CHECK(at::equal(read_whole_dataset(path, "x"), at::zeros({group.size()})));
  CHECK(file_bytes(victim) == "precious");
}

TEST_CASE("hdf5: a filter that this HDF5 lacks is named before a row is read") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string input = folder.file("lzf.h5");
  on_rank_0(group, [&] {
    testing::write_hdf5_file(input, {{"labels", counted({4}, at::kLong)}});
    testing::add_foreign_filter(input, "fields", counted({4, 2, 3, 3}), 32100, "made-up");
    testing::write_virtual_file(folder.file("v.h5"), "fields", {"lzf.h5"}, {4, 2, 3, 3});
    testing::add_foreign_filter(input, "unfiltered", counted({4, 2, 3, 3}), 32100, "made-up",
                                testing::FilterResult::kFailed);
  });
  // One that was applied to no chunk, because it made none smaller, is not missed.
  const auto plain = repack_files(group, {{input}, folder.file("out"), "unfiltered"}, {});
  CHECK(at::equal(read_whole_dataset(plain.at(0).path, "unfiltered"), counted({4, 2, 3, 3})));
  for (const char* name : {"lzf.h5", "v.h5"}) {
    const Error error =
        agreed_error(group, [&] { const RowSource source(group, {folder.file(name)}, "fields", "", IoMode::kAuto); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK_MESSAGE(contains(error.what(), input + ": dataset 'fields' is stored with the filter made-up (32100)"),
                  error.what());
    for (const char* remedy : {"HDF5_PLUGIN_PATH", "vit_hybrid data repack", "h5repack -f NONE"}) {
      CHECK(contains(error.hint(), remedy));
    }
  }
  // `data inspect` goes on with what can be read.
  std::string text;
  inspect_files(group, {{input}}, [&](const std::string& part) { text += part; });
  if (group.rank() == 0) {
    CHECK_MESSAGE(contains(text, "cannot be read: this HDF5 lacks the filter made-up (32100)"), text);
    CHECK(contains(text, "labels"));
  }
}

TEST_CASE("repack: what is refused leaves no file") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string input = folder.file("in.h5");
  const std::string out = folder.file("out");
  const at::Tensor large = counted({6, 2, 3, 4}).mul(1000.0);
  on_rank_0(group, [&] {
    testing::write_hdf5_file(input, {{"fields", large}, {"bytes", counted({3, 4}, at::kByte)}});
    fs::create_directories(folder.file("empty"));
  });
  const auto refused = [&](RepackOptions options, ErrorClass error_class, const std::string& text) {
    options.out = options.out.empty() ? out : options.out;
    const Error error = agreed_error(group, [&] { repack_files(group, options, {}); });
    CHECK((error.error_class() == error_class));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
    CHECK(!fs::exists(temporary_name(out + "/in.h5")));
    group.barrier();
  };
  RepackOptions options;
  options.inputs = {input};
  options.type = RepackType::kFloat16;
  refused(options, ErrorClass::kBadData, "row 2, channel 1, element 6 of it: 66000 is more than fp16 holds");
  CHECK(!fs::exists(out + "/in.h5"));
  options.type = RepackType::kKeep;
  options.dataset = "field";
  refused(options, ErrorClass::kBadData, "no dataset 'field'");
  options.dataset = "bytes";
  options.type = RepackType::kBFloat16;
  refused(options, ErrorClass::kUsage, "holds integers");
  options = {{input}, folder.path()};
  refused(options, ErrorClass::kUsage, "is the folder of");
  options = {{folder.file("nowhere.h5")}, out};
  refused(options, ErrorClass::kMissingInput, "nowhere.h5 is not there");
  options = {{folder.file("empty")}, out};
  refused(options, ErrorClass::kMissingInput, "holds no *.h5");
  options = {{input, folder.path()}, out};
  refused(options, ErrorClass::kUsage, "would both become");
  options = {{input}, input};
  refused(options, ErrorClass::kCannotCreate, "in.h5");
  repack_files(group, {{input}, out}, {});
  options = {{input}, out};
  refused(options, ErrorClass::kCannotCreate, "is there already");
  on_rank_0(group, [&] { fs::create_directories(folder.file("taken/in.h5")); });
  options = {{input}, folder.file("taken")};
  options.overwrite = true;
  refused(options, ErrorClass::kCannotCreate, "is no regular file");
  options = {{input}, folder.file("unmade"), "field"};
  refused(options, ErrorClass::kBadData, "no dataset 'field'");
  CHECK(!fs::exists(folder.file("unmade")));
}

}  // namespace vit_hybrid::data
