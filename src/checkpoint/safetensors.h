// The safetensors format: its header, its JSON, and files of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/reading/posix_file.h"

namespace vit_hybrid::train {

/// One tensor of the file; its bytes are [begin, end) of the data behind the header.
struct SafetensorsEntry {
  std::string name;
  std::string type;  ///< as the format names it: "F32", "BF16", "I64"
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  ///< in order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Reads the JSON of a header in front of `data_bytes` bytes of data. Error(kBadData), which names `where`, for
/// everything that is not exactly a header as the format has it: other JSON, names given twice, unknown types, shapes
/// that do not make the size, and bytes of the data that belong to no tensor or to two.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& where);

/// A file opened for reading; its header is checked as parse_safetensors_header() says.
class SafetensorsReader {
 public:
  /// Error(kMissingInput), Error(kBadData).
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  /// Host tensor of the type in the file. Error(kBadData) for a type other than F64, F32, F16 and BF16.
  at::Tensor read(const SafetensorsEntry& entry) const;

 private:
  data::PosixFile file_;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

/// What to write: a name, and the tensor's shape and type (kDouble, kFloat, kHalf, kBFloat16).
struct SafetensorsItem {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;
};

/// Writes the items in their order under a temporary name, flushes and renames. `values(i)` gives the tensor of item i
/// (host, contiguous, of its shape and type), one after the other, so that only one is in memory. Error(kCannotCreate),
/// Error(kIo).
void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<at::Tensor(size_t)>& values);

}  // namespace vit_hybrid::train
