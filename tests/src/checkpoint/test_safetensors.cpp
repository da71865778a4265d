// Safetensors: bytes as the format has them, every type there and back, every kind of damage, and mutated files.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "src/checkpoint/safetensors.h"
#include "tests/support/contains.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::train {
namespace {

using testing::contains;
using testing::ScratchFolder;
using testing::thrown_error;

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string file_of(const std::string& json, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>((json.size() >> (8 * i)) & 0xff);
  }
  return bytes + json + data;
}

std::string header_refusal(const std::string& json, int64_t data_bytes) {
  const Error error = thrown_error([&] { parse_safetensors_header(json, data_bytes, "f"); });
  CHECK_MESSAGE((error.error_class() == ErrorClass::kBadData), json);
  CHECK(error.message().starts_with("f is no safetensors file"));
  return error.message();
}

// Two tensors as safetensors.torch.save_file wrote them (version 0.6): a = [1.5, -2], b = [[7]] of bfloat16.
const std::string kPythonsFile =
    file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
            R"("b":{"dtype":"BF16","shape":[1,1],"data_offsets":[8,10]}}     )",
            std::string("\x00\x00\xc0\x3f\x00\x00\x00\xc0\xe0\x40", 10));

}  // namespace

TEST_CASE("safetensors: the bytes of the Python package are read") {
  const ScratchFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_bytes(path, kPythonsFile);
  const SafetensorsReader reader(path);
  CHECK(reader.header().metadata.at("format") == "pt");
  REQUIRE(reader.header().tensors.size() == 2);
  const at::Tensor a = reader.read(reader.header().tensors[0]);
  REQUIRE(a.sizes().vec() == std::vector<int64_t>{2});
  CHECK(a.const_data_ptr<float>()[0] == 1.5f);
  CHECK(a.const_data_ptr<float>()[1] == -2.0f);
  const at::Tensor b = reader.read(reader.header().tensors[1]);
  CHECK((b.scalar_type() == at::kBFloat16));
  CHECK(b.sizes().vec() == std::vector<int64_t>{1, 1});
  CHECK(b.to(at::kFloat).item<float>() == 7.0f);
}

TEST_CASE("safetensors: every type and shape comes back, and the data begin at a multiple of 8") {
  const ScratchFolder folder;
  const std::string path = folder.file("a.safetensors");
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const std::vector<std::vector<int64_t>> shapes = {{3}, {}, {2, 0, 5}, {1, 2, 3, 4}};
    std::vector<SafetensorsItem> items;
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < shapes.size(); ++i) {
      int64_t count = 1;
      for (const int64_t extent : shapes[i]) {
        count *= extent;
      }
      tensors.push_back((at::arange(count, at::kDouble) - 1.5).to(type).reshape(shapes[i]));
      items.push_back({"t\"" + std::to_string(i) + "\xc3\xa9", shapes[i], type});
    }
    write_safetensors(path, items, {{"a", "b\n"}}, [&](size_t i) { return tensors[i]; });
    CHECK(static_cast<unsigned char>(read_bytes(path)[0]) % 8 == 0);
    const SafetensorsReader reader(path);
    CHECK(reader.header().metadata == std::map<std::string, std::string>{{"a", "b\n"}});
    REQUIRE(reader.header().tensors.size() == items.size());
    size_t found = 0;
    for (const SafetensorsEntry& entry : reader.header().tensors) {
      for (size_t i = 0; i < items.size(); ++i) {
        if (items[i].name == entry.name) {
          CHECK(at::equal(reader.read(entry), tensors[i]));
          ++found;
        }
      }
    }
    CHECK(found == items.size());
  }
  CHECK(!std::filesystem::exists(data::temporary_name(path)));
}

TEST_CASE("safetensors: a writer that fails leaves nothing") {
  const ScratchFolder folder;
  const std::string path = folder.file("a.safetensors");
  const auto write = [&] {
    write_safetensors(path, {{"a", {2}, at::kFloat}}, {},
                      [](size_t) -> at::Tensor { throw Error(ErrorClass::kBadData, "no values"); });
  };
  CHECK((thrown_error(write).error_class() == ErrorClass::kBadData));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("safetensors: every malformed header is refused with its reason") {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK(parse_safetensors_header(good, 8, "f").tensors.size() == 1);
  CHECK(parse_safetensors_header("{}", 0, "f").tensors.empty());
  CHECK(contains(header_refusal(good, 9), "end at byte 8 of 9"));
  CHECK(contains(header_refusal(good, 7), "bytes 0 to 8 of 7"));
  const auto with = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  CHECK(contains(header_refusal("", 0), "begin"));
  CHECK(contains(header_refusal(" {}", 0), "begin"));
  CHECK(contains(header_refusal("[]", 0), "begin"));
  CHECK(contains(header_refusal("{", 0), "not JSON"));
  CHECK(contains(header_refusal("{} x", 0), "not JSON"));
  CHECK(contains(header_refusal("{\"\xff\":1}", 0), "not JSON"));
  CHECK(contains(header_refusal(R"({"a":1})", 0), "a number where none may be"));
  CHECK(contains(header_refusal(R"({"a":[]})", 0), "a list"));
  CHECK(contains(header_refusal(R"({"a":null})", 0), "null"));
  CHECK(contains(header_refusal(R"({"__metadata__":{"x":1}})", 0), "a number"));
  CHECK(contains(header_refusal(R"({"__metadata__":{"x":{}}})", 0), "an object"));
  CHECK(contains(header_refusal(R"({"__metadata__":{"x":"","x":""}})", 0), "twice"));
  CHECK(contains(header_refusal(R"({"a":{},"a":{}})", 0), "no dtype"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[2])"), 8), "no dtype, no shape"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8), "twice"));
  CHECK(contains(header_refusal(with(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8), "unknown type"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])"), 8), "two data_offsets"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"), 8), "unknown field"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8), "negative"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8), "fraction"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8), "a list"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8), "not those of F32 [3]"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8), "bytes 8 to 0"));
  CHECK(contains(header_refusal(with(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615])"), 8),
                 "too large"));
  CHECK(
      contains(header_refusal(
                   with(R"("dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,0])"), 0),
               "not those"));
  CHECK(contains(
      header_refusal(with(R"("dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0])"),
                     0),
      "not those of F32 [0"));
  const std::string two = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)";
  CHECK(contains(header_refusal(two + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), "overlap"));
  CHECK(contains(header_refusal(two + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5), "gap"));
  CHECK(contains(header_refusal(two + R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4), "twice"));
  CHECK(contains(header_refusal(std::string(1'000'000, '{'), 0), "not JSON"));
  std::string deep = R"({"a":{"shape":)" + std::string(1'000'000, '[');
  CHECK(contains(header_refusal(deep, 0), "a list"));
  std::string many = "0";
  for (int i = 0; i < 100; ++i) {
    many += ",1";
  }
  CHECK(contains(header_refusal(with("\"dtype\":\"F32\",\"shape\":[" + many + "],\"data_offsets\":[0,0]"), 0),
                 "too many"));
}

TEST_CASE("safetensors: files that end early or begin with another length are refused") {
  const ScratchFolder folder;
  const std::string path = folder.file("a.safetensors");
  for (size_t size = 0; size < kPythonsFile.size(); ++size) {
    write_bytes(path, kPythonsFile.substr(0, size));
    CHECK((thrown_error([&] { SafetensorsReader reader(path); }).error_class() == ErrorClass::kBadData));
  }
  for (const char* length : {"\xff\xff\xff\xff\xff\xff\xff\xff", "\x00\x00\x00\x00\x01\x00\x00\x00"}) {
    write_bytes(path, std::string(length, 8) + kPythonsFile.substr(8));
    CHECK(contains(thrown_error([&] { SafetensorsReader reader(path); }).message(), "at most 100000000"));
  }
  CHECK((thrown_error([&] { SafetensorsReader reader(folder.file("none")); }).error_class() ==
         ErrorClass::kMissingInput));
}

TEST_CASE("safetensors: a tensor of integers is refused when it is read") {
  const ScratchFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_bytes(path, file_of(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", std::string(8, '\0')));
  const SafetensorsReader reader(path);
  const Error error = thrown_error([&] { reader.read(reader.header().tensors.front()); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  CHECK(contains(error.message(), "I64"));
}

// A mutated file is read, or refused as bad data; nothing else.
TEST_CASE("safetensors: no bytes make the reader do anything else") {
  const ScratchFolder folder;
  const std::string path = folder.file("a.safetensors");
  int64_t num_read = 0;
  constexpr uint64_t kMutations = 4000;
  for (uint64_t i = 0; i < kMutations; ++i) {
    write_bytes(path, testing::mutated(kPythonsFile, i));
    const Error error = thrown_error([&] {
      const SafetensorsReader reader(path);
      for (const SafetensorsEntry& entry : reader.header().tensors) {
        reader.read(entry);
      }
      ++num_read;
    });
    const bool was_read = error.message() == "nothing was thrown";
    CHECK_MESSAGE((was_read || error.error_class() == ErrorClass::kBadData), "mutation ", i, ": ", error.message());
  }
  MESSAGE(num_read << " of " << kMutations << " mutated files were read");
  CHECK(num_read > 0);
  CHECK(num_read < static_cast<int64_t>(kMutations));
}

}  // namespace vit_hybrid::train
