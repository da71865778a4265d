// Safetensors files: tensors of floating-point numbers read and written under any names.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "data/reading/posix_file.h"
#include "src/checkpoint/safetensors_header.h"

namespace vit_hybrid::train {

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
