// Repacking: values, attributes and scales survive every change of layout and type, whatever the number of ranks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <filesystem>

#include "data/hdf5_description.h"
#include "data/hdf5_rows.h"
#include "data/posix_file.h"
#include "data/tools/repack_files.h"
#include "parallel/comm/mpi_group.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/in_groups.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scaled_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

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
        const Hdf5Layout found = inspect_dataset(done[0].path, "x", "channels");
        CHECK((found.type == stored));
        CHECK(found.attribute == "a,bc,d");
        const bool is_contiguous = layout == RepackLayout::kContiguous;
        CHECK((found.storage == (is_contiguous ? Hdf5Layout::Storage::kContiguous : Hdf5Layout::Storage::kChunked)));
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
  CHECK((inspect_dataset(done.at(0).path, "x").storage == Hdf5Layout::Storage::kContiguous));
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
}

}  // namespace vit_hybrid::data
