// .npy files: the header's text read and written, the values moved as they lie in memory.
#include "data/datasets/npy.h"

#include <ATen/ops/empty.h>

#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "data/reading/box_runs.h"
#include "data/reading/posix_file.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

static_assert(std::endian::native == std::endian::little, "values are moved as they lie in memory");

constexpr size_t kMostDims = 64;  // NumPy has no more
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kValueAlignment = 64;        // of the first value
constexpr int64_t kLongestHeader = 64 * 1024;  // of a plain array; a damaged length must not ask for gigabytes

struct Header {
  at::ScalarType type;
  std::vector<int64_t> shape;
  int64_t size;  // bytes before the first value
};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorClass::kBadData, str(path, ": ", what), "a .npy file of float32 or float64 in C order is needed");
}

// The text after the key, up to where the next one may begin: "'<f4', 'fortran_order': ...".
std::string_view value_of(const std::string& path, std::string_view text, std::string_view key) {
  const size_t at = text.find(str("'", key, "'"));
  const size_t colon = at == text.npos ? at : text.find(':', at);
  const size_t begin = colon == text.npos ? colon : text.find_first_not_of(' ', colon + 1);
  if (begin == text.npos) {
    fail(path, str("its header has no '", key, "'"));
  }
  return text.substr(begin);
}

at::ScalarType parse_type(const std::string& path, std::string_view value) {
  const std::string_view name = value.substr(0, value.find('\'', 1) + 1);
  if (name == "'<f4'" || name == "'=f4'") {
    return at::kFloat;
  }
  if (name == "'<f8'" || name == "'=f8'") {
    return at::kDouble;
  }
  fail(path, str("its values are of type ", shown(name.empty() ? value.substr(0, 16) : name)));
}

std::vector<int64_t> parse_shape(const std::string& path, std::string_view value) {
  const size_t close = value.find(')');
  if (value.front() != '(' || close == value.npos) {
    fail(path, "the shape in its header is no tuple");
  }
  std::vector<int64_t> shape;
  for (std::string_view rest = value.substr(1, close - 1); !rest.empty();) {
    int64_t extent = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
    if (error != std::errc() || extent < 0) {
      fail(path, str("its shape ", shown(value.substr(0, close + 1)), " cannot be read"));
    }
    shape.push_back(extent);
    if (shape.size() > kMostDims) {
      fail(path, str("its shape has more than ", kMostDims, " dims"));
    }
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    rest.remove_prefix(std::min(rest.find_first_not_of(", "), rest.size()));
  }
  return shape;
}

Header read_header(const PosixFile& file) {
  const std::string& path = file.path();
  const int64_t size = file.size();
  unsigned char start[12] = {};
  if (size < 12) {
    fail(path, str("it has ", size, " bytes and is no .npy file"));
  }
  file.read(0, start, sizeof(start));
  if (std::memcmp(start, kMagic.data(), kMagic.size()) != 0) {
    fail(path, "it does not start as a .npy file does");
  }
  const int major = start[6];
  if (major < 1 || major > 3) {
    fail(path, str("its format version is ", major, ", known are 1 to 3"));
  }
  const int64_t before = major == 1 ? 10 : 12;
  int64_t length = start[8] | start[9] << 8;
  if (major > 1) {
    length |= static_cast<int64_t>(start[10]) << 16 | static_cast<int64_t>(start[11]) << 24;
  }
  if (before + length > size || length > kLongestHeader) {
    fail(path, str("its header of ", length, " bytes does not fit into ", size));
  }
  std::string text(static_cast<size_t>(length), ' ');
  file.read(before, text.data(), length);
  if (!value_of(path, text, "fortran_order").starts_with("False")) {
    fail(path, "its values are in Fortran order");
  }
  return {parse_type(path, value_of(path, text, "descr")), parse_shape(path, value_of(path, text, "shape")),
          before + length};
}

std::string make_header(const at::Tensor& values) {
  const auto shape = values.sizes();
  const std::string tuple = str("(", join(shape), shape.size() == 1 ? ",)" : ")");
  std::string text = str("{'descr': '", values.scalar_type() == at::kFloat ? "<f4" : "<f8",
                         "', 'fortran_order': False, 'shape': ", tuple, ", }");
  const auto unpadded = static_cast<int64_t>(kMagic.size() + 4 + text.size() + 1);
  text.append(static_cast<size_t>((kValueAlignment - unpadded % kValueAlignment) % kValueAlignment), ' ');
  text.push_back('\n');
  std::string header(kMagic);
  header.append({1, 0, static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)});
  return header + text;
}

void write_temporary(const std::string& path, const at::Tensor& values) {
  VH_ASSERT(values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble),
            str("tensor for ", path));
  const at::Tensor packed = values.contiguous();
  const std::string header = make_header(packed);
  PosixFile file(temporary_name(path), PosixFile::Access::kCreate);
  file.write(0, header.data(), static_cast<int64_t>(header.size()));
  file.write(static_cast<int64_t>(header.size()), packed.data_ptr(), static_cast<int64_t>(packed.nbytes()));
  file.close();
}

}  // namespace

at::Tensor read_npy(const std::string& path) {
  const PosixFile file(path, PosixFile::Access::kRead);
  const Header header = read_header(file);
  const auto item = static_cast<int64_t>(c10::elementSize(header.type));
  const int64_t available = file.size() - header.size;
  const auto bytes = bytes_of_shape(header.shape, item);
  if (!bytes || *bytes > available) {
    throw Error(ErrorClass::kBadData,
                str(path, ": shape (", shown(join(header.shape)), ") of ", item, "-byte values needs more than the ",
                    available, " bytes that follow its header"),
                "the file is truncated: copy or make it again");
  }
  at::Tensor values = at::empty(header.shape, header.type);
  file.read(header.size, values.data_ptr(), *bytes);
  return values;
}

void replace_npy(const NpyFiles& files, const std::vector<std::string>& beside) {
  try {
    for (const auto& [path, values] : files) {
      write_temporary(path, values);
    }
  } catch (const Error&) {
    for (const auto& [path, values] : files) {
      std::remove(temporary_name(path).c_str());
    }
    throw;
  }
  for (const std::string& path : beside) {
    std::remove(path.c_str());
  }
  for (const auto& [path, values] : files) {
    std::remove(path.c_str());
  }
  for (const auto& [path, values] : files) {
    rename_file(temporary_name(path), path);
  }
}

}  // namespace vit_hybrid::data
