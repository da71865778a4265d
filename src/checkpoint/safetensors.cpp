// Reading and writing of safetensors files by offsets.
#include "src/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>

#include <bit>
#include <cstdio>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

static_assert(std::endian::native == std::endian::little, "the format's bytes are little-endian");

constexpr int64_t kLengthBytes = 8;  // of the header's length, before it

struct FloatType {
  const char* name;
  at::ScalarType type;
};
constexpr FloatType kFloatTypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}};

const char* name_of(at::ScalarType type) {
  for (const FloatType& known : kFloatTypes) {
    if (known.type == type) {
      return known.name;
    }
  }
  VH_ASSERT(false, str("no safetensors type for ", c10::toString(type)));
}

int64_t header_length(const data::PosixFile& file) {
  uint64_t length = 0;
  const int64_t size = file.size();
  if (size >= kLengthBytes) {
    file.read(0, &length, kLengthBytes);
  }
  if (size < kLengthBytes || length > static_cast<uint64_t>(kMostSafetensorsHeader) ||
      static_cast<int64_t>(length) > size - kLengthBytes) {
    throw Error(ErrorClass::kBadData,
                str(file.path(), " is no safetensors file: it has ", size, " bytes, of which the header would be ",
                    length, " (at most ", kMostSafetensorsHeader, ")"),
                "it is damaged, truncated or of another format");
  }
  return static_cast<int64_t>(length);
}

SafetensorsHeader make_header(const std::vector<SafetensorsItem>& items,
                              const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  int64_t position = 0;
  for (const SafetensorsItem& item : items) {
    auto bytes = static_cast<int64_t>(c10::elementSize(item.type));
    for (const int64_t extent : item.shape) {
      bytes *= extent;
    }
    header.tensors.push_back({item.name, name_of(item.type), item.shape, position, position + bytes});
    position += bytes;
  }
  return header;
}

// Removes what was written so far unless the file got its name.
class Unfinished {
 public:
  explicit Unfinished(std::string path) : path_(std::move(path)) {}
  ~Unfinished() {
    if (!path_.empty()) {
      std::remove(path_.c_str());
    }
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  void finish() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path, data::PosixFile::Access::kRead) {
  const int64_t length = header_length(file_);
  std::string json(static_cast<size_t>(length), '\0');
  file_.read(kLengthBytes, json.data(), length);
  data_begin_ = kLengthBytes + length;
  header_ = parse_safetensors_header(json, file_.size() - data_begin_, path);
}

at::Tensor SafetensorsReader::read(const SafetensorsEntry& entry) const {
  for (const FloatType& known : kFloatTypes) {
    if (entry.type == known.name) {
      const MemoryScope scope(MemoryClass::kData);
      const at::Tensor values = at::empty(entry.shape, at::TensorOptions(known.type));
      file_.read(data_begin_ + entry.begin, values.mutable_data_ptr(), entry.end - entry.begin);
      return values;
    }
  }
  throw Error(ErrorClass::kBadData,
              str(path(), ": tensor '", entry.name, "' is of type ", entry.type, "; allowed are F64, F32, F16, BF16"));
}

void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<at::Tensor(size_t)>& values) {
  const SafetensorsHeader header = make_header(items, metadata);
  const std::string text = safetensors_header_text(header);
  const std::string temporary = data::temporary_name(path);
  data::PosixFile file(temporary, data::PosixFile::Access::kCreate);
  Unfinished unfinished(temporary);
  const uint64_t length = text.size();
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  file.write(0, &length, kLengthBytes);
  file.write(kLengthBytes, text.data(), static_cast<int64_t>(length));
  for (size_t i = 0; i < items.size(); ++i) {
    const at::Tensor tensor = values(i);
    VH_ASSERT(tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == items[i].type &&
                  tensor.sizes() == at::IntArrayRef(items[i].shape),
              items[i].name);
    file.write(data_begin + header.tensors[i].begin, tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()));
  }
  file.sync();
  file.close();
  data::rename_file(temporary, path);
  unfinished.finish();
}

}  // namespace vit_hybrid::train
