// The header of a safetensors file: which tensors it holds, of which type and shape, and where. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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

/// The format's limit for the header's length, in bytes.
inline constexpr int64_t kMostSafetensorsHeader = 100'000'000;

/// Bytes of a value of a type of the format; 0 for an unknown type.
int64_t safetensors_type_bytes(std::string_view type);

/// Reads the JSON of a header in front of `data_bytes` bytes of data. Error(kBadData), which names `where`, for
/// everything that is not exactly a header as the format has it: other JSON, names given twice, unknown types, shapes
/// that do not make the size, and bytes of the data that belong to no tensor or to two.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& where);

/// The JSON of a header, padded with blanks so that the data behind it begins at a multiple of 8 bytes.
std::string safetensors_header_text(const SafetensorsHeader& header);

}  // namespace vit_hybrid::train
