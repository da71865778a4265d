// Image folders as HDF5: classes, order, pixels, bad files, and the same file from any number of ranks.
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "data/hdf5/hdf5_rows.h"
#include "data/reading/posix_file.h"
#include "data/tools/convert_images.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/text.h"
#include "tests/support/contains.h"
#include "tests/support/image_files.h"
#include "tests/support/in_groups.h"
#include "tests/support/on_rank_0.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

namespace fs = std::filesystem;
using testing::agreed_error;
using testing::contains;
using testing::file_bytes;
using testing::on_rank_0;
using testing::PngKind;
using testing::ScratchFolder;
using testing::TestImage;

constexpr int kSize = 16;
constexpr int kImagesPerClass = 12;

// One gray level tells class and number: 60 c + 4 i.
uint8_t level(int label, int number) {
  return static_cast<uint8_t>(60 * label + 4 * number);
}

TestImage flat(int height, int width, uint8_t value) {
  return {height, width, 3, std::vector<uint8_t>(static_cast<size_t>(3 * height * width), value)};
}

// Class folders that are not made in the order of their names; of different sizes; every other file a JPEG.
void write_folder(const std::string& folder) {
  const std::vector<std::string> names{"n01", "n02", "n10"};
  for (const int label : {2, 0, 1}) {
    const std::string inner = folder + "/" + names[static_cast<size_t>(label)];
    fs::create_directories(inner);
    for (int i = 0; i < kImagesPerClass; ++i) {
      const TestImage image = flat(20 + i, 40 - i, level(label, i));
      if (i % 2 == 0) {
        testing::write_jpeg_file(str(inner, "/", 100 + i, ".JPEG"), image);
      } else {
        testing::write_png_file(str(inner, "/", 100 + i, ".png"), image, PngKind::kColor);
      }
    }
  }
  testing::write_png_file(folder + "/n02/png_by_content.JPEG", flat(30, 30, 7), PngKind::kColor);
  std::ofstream(folder + "/n02/notes.txt") << "not an image";
  testing::write_png_file(folder + "/of_no_class.png", flat(30, 30, 7), PngKind::kColor);
}

ConvertOptions options_for(const std::string& folder, const std::string& out) {
  ConvertOptions options;
  options.inputs = {folder};
  options.out = out;
  options.size = kSize;
  options.seed = 3;
  return options;
}

}  // namespace

TEST_CASE("convert: every image once, with its label, mixed, from any number of ranks") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  on_rank_0(group, [&] { write_folder(folder.file("images")); });
  testing::in_groups(group, [&](const comm::MpiGroup& part, const std::string& name) {
    const ConvertedImages done = convert_images(part, options_for(folder.file("images"), folder.file(name + ".h5")));
    CHECK(done.num_images == 3 * kImagesPerClass + 1);
    CHECK(done.num_classes == 3);
    CHECK(done.num_ignored == 1);
    CHECK(done.num_stray == 1);
    CHECK(done.bad.empty());
  });
  const std::string path = folder.file("all.h5");
  CHECK((file_bytes(folder.file("one.h5")) == file_bytes(path)));
  if (group.size() > 1) {
    CHECK((file_bytes(folder.file("rest.h5")) == file_bytes(path)));
  }
  CHECK(inspect_dataset(path, "labels", "classes").attribute == "n01,n02,n10");
  const at::Tensor images = read_whole_dataset(path, "images");
  const at::Tensor labels = read_whole_dataset(path, "labels");
  REQUIRE((images.sizes() == at::IntArrayRef({3 * kImagesPerClass + 1, kSize, kSize, 3})));
  std::vector<int64_t> seen;
  std::map<int64_t, std::vector<int>> levels;
  for (int64_t i = 0; i < images.size(0); ++i) {
    const int64_t label = labels[i].item<int64_t>();
    seen.push_back(label);
    CHECK(images[i].max().item<int>() - images[i].min().item<int>() <= 1);  // flat in, flat out
    levels[label].push_back(images[i][kSize / 2][kSize / 2][1].item<int>());
  }
  CHECK(!std::is_sorted(seen.begin(), seen.end()));
  for (int label = 0; label < 3; ++label) {
    std::vector<int> expected;
    for (int i = 0; i < kImagesPerClass; ++i) {
      expected.push_back(level(label, i));
    }
    if (label == 1) {
      expected.push_back(7);
    }
    std::sort(expected.begin(), expected.end());
    std::vector<int>& found = levels[label];
    std::sort(found.begin(), found.end());
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(std::abs(found[i] - expected[i]) <= 1);  // JPEG
    }
  }
  ConvertOptions other = options_for(folder.file("images"), folder.file("other.h5"));
  other.seed = 4;
  convert_images(group, other);
  CHECK(!at::equal(read_whole_dataset(other.out, "labels"), labels));
  group.barrier();
}

TEST_CASE("convert: a folder that several links lead to is read once, and a file beyond all pictures is a bad one") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string images = folder.file("images");
  on_rank_0(group, [&] {
    write_folder(images);
    // 2^41 paths along links that lead back, 2^30 along those that lead on.
    fs::create_directory_symlink(".", images + "/n01/a");
    fs::create_directory_symlink("..", images + "/n01/b");
    for (int i = 0; i < 30; ++i) {
      const std::string inner = str(images, "/n02/", i);
      fs::create_directory(inner);
      fs::create_directory_symlink(str("../", i + 1), inner + "/a");
      fs::create_directory_symlink(str("../", i + 1), inner + "/b");
    }
    fs::create_directory(images + "/n02/30");
    testing::write_png_file(images + "/n02/30/deep.png", flat(30, 30, 7), PngKind::kColor);
    std::ofstream(images + "/n10/long.png") << "text";
    fs::resize_file(images + "/n10/long.png", uintmax_t{1} << 36);
  });
  ConvertOptions options = options_for(images, folder.file("x.h5"));
  options.skip_bad = true;
  const ConvertedImages done = convert_images(group, options);
  // The link `b` of n01 leads to the whole folder, of which each file is found once.
  CHECK(done.num_images == 3 * kImagesPerClass + 1 + 1 + 2 * kImagesPerClass + 3);
  CHECK(done.bad.size() == 2);
  for (const std::string& bad : done.bad) {
    CHECK(contains(bad, str("long.png has ", int64_t{1} << 36, " bytes")));
  }
  group.barrier();
}

TEST_CASE("convert: bad files are named, or left out and counted") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string images = folder.file("images");
  on_rank_0(group, [&] {
    write_folder(images);
    fs::resize_file(images + "/n10/102.JPEG", fs::file_size(images + "/n10/102.JPEG") / 2);
    std::ofstream(images + "/n01/fake.jpg") << "text";
  });
  ConvertOptions options = options_for(images, folder.file("x.h5"));
  const Error error = agreed_error(group, [&] { convert_images(group, options); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  CHECK((contains(error.what(), "102.JPEG") || contains(error.what(), "fake.jpg")));
  CHECK(!fs::exists(options.out));
  CHECK(!fs::exists(temporary_name(options.out)));
  group.barrier();
  options.skip_bad = true;
  const ConvertedImages done = convert_images(group, options);
  CHECK(done.num_images == 3 * kImagesPerClass);
  REQUIRE(done.bad.size() == 2);
  const std::string bad = done.bad[0] + done.bad[1];
  CHECK(contains(bad, "102.JPEG"));
  CHECK(contains(bad, "fake.jpg of 4 bytes is neither a JPEG nor a PNG file"));
  CHECK(read_whole_dataset(options.out, "images").size(0) == 3 * kImagesPerClass);
  CHECK(read_whole_dataset(options.out, "labels").eq(2).sum().item<int64_t>() == kImagesPerClass - 1);
  const Error again = agreed_error(group, [&] { convert_images(group, options); });
  CHECK((again.error_class() == ErrorClass::kCannotCreate));
  group.barrier();
}

TEST_CASE("convert: folders that are refused") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  on_rank_0(group, [&] {
    fs::create_directories(folder.file("flat"));
    testing::write_png_file(folder.file("flat/a.png"), flat(8, 8, 1), PngKind::kColor);
    fs::create_directories(folder.file("empty_class/n01"));
    fs::create_directories(folder.file("comma/a,b"));
    testing::write_png_file(folder.file("comma/a,b/a.png"), flat(8, 8, 1), PngKind::kColor);
    fs::create_directories(folder.file("bad/n01"));
    std::ofstream(folder.file("bad/n01/x.jpg")) << "x";
  });
  const auto refused = [&](const char* name, ErrorClass error_class, const std::string& text) {
    ConvertOptions options = options_for(folder.file(name), folder.file("x.h5"));
    options.skip_bad = true;
    const Error error = agreed_error(group, [&] { convert_images(group, options); });
    CHECK((error.error_class() == error_class));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
    CHECK(!fs::exists(options.out));
    group.barrier();
  };
  refused("nowhere", ErrorClass::kMissingInput, "nowhere");
  refused("flat", ErrorClass::kMissingInput, "has no subfolders");
  refused("empty_class", ErrorClass::kBadData, "holds no *.jpg");
  refused("comma", ErrorClass::kBadData, "'a,b' has a comma");
  refused("bad", ErrorClass::kBadData, "none of the images");
}

TEST_CASE(
    "convert: neither an image that is read nor what is no file is replaced, and what is refused makes no folder") {
  const auto group = comm::MpiGroup::world();
  const ScratchFolder folder(group);
  const std::string images = folder.file("images");
  on_rank_0(group, [&] {
    write_folder(images);
    fs::create_symlink("images/n01", folder.file("same"));
    REQUIRE(::mkfifo(folder.file("fifo").c_str(), 0600) == 0);
  });
  const std::string before = file_bytes(images + "/n01/101.png");
  for (const auto& [out, error_class, text] :
       {std::tuple("images/n01/101.png", ErrorClass::kUsage, "which is what is read"),
        {"same/101.png", ErrorClass::kUsage, "which is what is read"},
        {"fifo", ErrorClass::kCannotCreate, "is no regular file"},
        {"images", ErrorClass::kCannotCreate, "is no regular file"}}) {
    ConvertOptions options = options_for(images, folder.file(out));
    options.overwrite = true;
    const Error error = agreed_error(group, [&] { convert_images(group, options); });
    CHECK((error.error_class() == error_class));
    CHECK_MESSAGE(contains(error.what(), text), error.what());
  }
  CHECK((file_bytes(images + "/n01/101.png") == before));
  CHECK(fs::is_fifo(folder.file("fifo")));
  agreed_error(group, [&] { convert_images(group, options_for(folder.file("none"), folder.file("new/x.h5"))); });
  CHECK(!fs::exists(folder.file("new")));
  group.barrier();
}

}  // namespace vit_hybrid::data
