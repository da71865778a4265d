// .npy files: bytes as NumPy writes them, every shape there and back, and each kind of damage.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "data/datasets/npy.h"
#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What numpy.save(f, numpy.array([1.5, -2.0], '<f4').reshape(1, 2, 1, 1)) writes: 128 bytes before the values.
std::string numpy_file(const std::string& dictionary, const std::string& values) {
  std::string text = dictionary + std::string(117 - dictionary.size(), ' ') + "\n";
  return std::string("\x93NUMPY\x01\x00v\x00", 10) + text + values;
}

const std::string kTwoFloats("\x00\x00\xc0\x3f\x00\x00\x00\xc0", 8);

ErrorClass class_of_reading(const std::string& path) {
  try {
    read_npy(path);
  } catch (const Error& error) {
    CHECK(error.message().find(path) != std::string::npos);
    return error.error_class();
  }
  return ErrorClass::kInternal;
}

}  // namespace

TEST_CASE("npy: NumPy's bytes are read and written") {
  const testing::ScratchFolder folder;
  const std::string bytes = numpy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 1, 1), }", kTwoFloats);
  write_bytes(folder.file("a.npy"), bytes);
  const at::Tensor values = read_npy(folder.file("a.npy"));
  CHECK(values.sizes().vec() == std::vector<int64_t>{1, 2, 1, 1});
  CHECK((values.scalar_type() == at::kFloat));
  CHECK(values.const_data_ptr<float>()[0] == 1.5f);
  CHECK(values.const_data_ptr<float>()[1] == -2.0f);
  replace_npy({{folder.file("b.npy"), values}});
  CHECK(read_bytes(folder.file("b.npy")) == bytes);
}

TEST_CASE("npy: every shape comes back") {
  const testing::ScratchFolder folder;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {1}, {7}, {0, 3}, {2, 3, 4}, {1, 20, 1, 1}, {1, 1, 2, 1, 2, 1, 2}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      int64_t count = 1;
      for (const int64_t extent : shape) {
        count *= extent;
      }
      const at::Tensor values = at::arange(count, type).sub(0.25).reshape(shape);
      replace_npy({{folder.file("x.npy"), values}});
      const at::Tensor back = read_npy(folder.file("x.npy"));
      CHECK((back.scalar_type() == type));
      CHECK((back.sizes() == values.sizes()));
      CHECK(at::equal(back, values));
    }
  }
  const at::Tensor transposed = at::arange(6, at::kFloat).reshape({2, 3}).t();
  replace_npy({{folder.file("t.npy"), transposed}});
  CHECK(at::equal(read_npy(folder.file("t.npy")), transposed));
}

TEST_CASE("npy: files that belong together are replaced together, or not at all") {
  const testing::ScratchFolder folder;
  const at::Tensor old_values = at::arange(3, at::kFloat);
  const at::Tensor new_values = at::arange(5, at::kDouble);
  replace_npy({{folder.file("a.npy"), old_values}});
  CHECK_THROWS_AS(replace_npy({{folder.file("a.npy"), new_values}, {folder.file("no/b.npy"), new_values}}), Error);
  CHECK(at::equal(read_npy(folder.file("a.npy")), old_values));
  CHECK_FALSE(std::filesystem::exists(folder.file("a.npy.partial")));
  // The second name cannot be taken: then the old first file is gone, and no new one beside what is old.
  std::filesystem::create_directories(folder.file("b.npy") + "/full");
  CHECK_THROWS_AS(replace_npy({{folder.file("b.npy"), new_values}, {folder.file("a.npy"), new_values}}), Error);
  CHECK_FALSE(std::filesystem::exists(folder.file("a.npy")));
  replace_npy({{folder.file("a.npy"), new_values}, {folder.file("c.npy"), old_values}});
  CHECK(at::equal(read_npy(folder.file("a.npy")), new_values));
  CHECK(at::equal(read_npy(folder.file("c.npy")), old_values));
}

TEST_CASE("npy: versions 2 and 3 have a longer length") {
  const testing::ScratchFolder folder;
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  for (const char version : {'\x02', '\x03'}) {
    std::string bytes = "\x93NUMPY";
    bytes += version;
    bytes.append(1, '\0').append(1, static_cast<char>(text.size())).append(3, '\0');
    write_bytes(folder.file("v.npy"), bytes + text + kTwoFloats);
    CHECK(read_npy(folder.file("v.npy")).const_data_ptr<float>()[1] == -2.0f);
  }
}

TEST_CASE("npy: an array of more dims than NumPy has is refused in few words") {
  const testing::ScratchFolder folder;
  std::string ones = "1,";
  for (int i = 0; i < 64; ++i)
    ones += "1,";
  const std::string text = "{'descr':'<f4','fortran_order':False,'shape':(" + ones + ")}";
  std::string header = text + std::string(300 - text.size(), ' ') + "\n";
  const char length[] = {static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  write_bytes(folder.file("x.npy"), std::string("\x93NUMPY\x01\x00", 8) + std::string(length, 2) + header + "abcd");
  const Error error = testing::thrown_error([&] { read_npy(folder.file("x.npy")); });
  CHECK_MESSAGE(testing::contains(error.message(), "more than 64 dims"), error.message());
}

TEST_CASE("npy: what is damaged or of another kind is refused") {
  const testing::ScratchFolder folder;
  const std::string path = folder.file("bad.npy");
  CHECK(class_of_reading(path) == ErrorClass::kMissingInput);
  const std::string good = numpy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", kTwoFloats);
  for (size_t size = 0; size < good.size(); ++size) {  // truncated anywhere
    write_bytes(path, good.substr(0, size));
    CHECK(class_of_reading(path) == ErrorClass::kBadData);
  }
  for (const char* dictionary :
       {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", "{'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': False, }", "{'descr': '<f4', 'fortran_order': False, 'shape': (x,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2 }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 0, 4294967296), }"}) {
    CAPTURE(dictionary);
    write_bytes(path, numpy_file(dictionary, kTwoFloats));
    CHECK(class_of_reading(path) == ErrorClass::kBadData);
  }
  const std::string digits = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::string(16000, '9') + ",), }";
  const std::string length = {static_cast<char>(digits.size() % 256), static_cast<char>(digits.size() / 256)};
  write_bytes(path, good.substr(0, 8) + length + digits + kTwoFloats);
  CHECK(testing::contains(testing::thrown_error([&] { read_npy(path); }).message(), "its shape (9999"));
  CHECK(testing::thrown_error([&] { read_npy(path); }).message().size() < 400 + path.size());
  CHECK_THROWS_AS(replace_npy({{folder.file("no/such/folder.npy"), at::arange(2, at::kFloat)}}), Error);
}

}  // namespace vit_hybrid::data
