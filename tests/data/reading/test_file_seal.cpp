// The seal of a file: every byte outside of what is left to others, and the length.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "data/reading/file_seal.h"
#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using data::PosixFile;

namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kBytes = kBlock + 5000;
// One at the end of the block and the other at the end of the file: nothing is left before and behind them.
const std::vector<Range> kOthers = {{kBytes - 10, kBytes}, {kBlock, kBlock + 100}, {kBlock + 100, kBlock + 1000}};

void make_sealed(const std::string& path) {
  const std::string bytes(kBytes, 'x');
  const PosixFile file(path, PosixFile::Access::kCreate);
  file.write(0, bytes.data(), kBytes);
  data::write_seal(file, kBlock, kOthers);
}

void flip(const std::string& path, int64_t offset) {
  const PosixFile file(path, PosixFile::Access::kUpdate);
  char byte = 0;
  file.read(offset, &byte, 1);
  byte = static_cast<char>(byte ^ 1);
  file.write(offset, &byte, 1);
}

}  // namespace

TEST_CASE("file seal: what it answers for, byte by byte") {
  const ScratchFolder folder;
  const std::string path = folder.file("sealed");
  make_sealed(path);
  const std::vector<Range> expected = {{0, kBlock}, {kBlock + 1000, kBytes - 10}};
  CHECK((data::check_seal(path) == expected));
  for (int64_t offset = 0; offset < kBytes; offset += 3) {
    CAPTURE(offset);
    flip(path, offset);
    if (expected[0].contains(offset) || expected[1].contains(offset)) {
      if (offset >= kBlock) {
        const Error error = thrown_error([&] { data::check_seal(path); });
        CHECK(contains(error.message(), "is damaged: the bytes from 5096 to 9086"));
      } else {  // without its name there is no seal
        bool is_seal = false;
        try {
          is_seal = data::check_seal(path).has_value();
        } catch (const Error& error) {
          CHECK((error.error_class() == ErrorClass::kBadData));
        }
        CHECK_FALSE(is_seal);
      }
    } else {
      CHECK((data::check_seal(path) == expected));
    }
    flip(path, offset);
  }
}

TEST_CASE("file seal: another length, and no seal") {
  const ScratchFolder folder;
  const std::string path = folder.file("sealed");
  make_sealed(path);
  for (const int64_t bytes : {kBytes - 1, kBytes + 1, kBlock, kBlock - 1, int64_t{70}}) {
    std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
    const Error error = thrown_error([&] { data::check_seal(path); });
    CHECK((error.error_class() == ErrorClass::kBadData));
    CHECK(contains(error.message(), "it has " + std::to_string(bytes) + " bytes"));
    make_sealed(path);
  }
  for (const auto* text :
       {"", "vit_hybrid", "no seal but long enough for one, which has a head of many characters..."}) {
    std::ofstream(folder.file("other"), std::ios::trunc) << text;
    CHECK_FALSE(data::check_seal(folder.file("other")));
  }
}

TEST_CASE("file seal: its block holds as many ranges as it was made for") {
  const ScratchFolder folder;
  for (const int64_t num : {1, 80, 81, 1000}) {
    const int64_t block = data::seal_block_bytes(num);
    CHECK((block & (block - 1)) == 0);
    const int64_t gap = 3000000;  // the numbers of a large file; most of it is not stored
    std::vector<Range> others;
    for (int64_t i = 0; i + 1 < num; ++i) {
      others.push_back({block + i * gap + 1, block + (i + 1) * gap});
    }
    std::filesystem::path path = folder.file("many");
    std::ofstream(path).close();
    std::filesystem::resize_file(path, static_cast<uintmax_t>(block + (num - 1) * gap + 1));
    data::write_seal(PosixFile(path, PosixFile::Access::kUpdate), block, others);
    CHECK(data::check_seal(path)->size() == static_cast<size_t>(num) + 1);
  }
}
