// Layouts as bytes: words of 64 bits, and texts and lists with their length before them.
#include "data/hdf5/hdf5_layout_bytes.h"

#include <bit>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace vit_hybrid::data {

namespace {

class Packer {
 public:
  void add(int64_t word) { bytes_.append(reinterpret_cast<const char*>(&word), sizeof(word)); }
  void add(const std::string& text) {
    add(static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  template <class Word>
  void add(const std::vector<Word>& words) {
    static_assert(sizeof(Word) == sizeof(int64_t));
    add(static_cast<int64_t>(words.size()));
    bytes_.append(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(Word));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  int64_t word() {
    int64_t value = 0;
    copy(&value, sizeof(value));
    return value;
  }
  std::string text() {
    std::string value(static_cast<size_t>(word()), '\0');
    copy(value.data(), value.size());
    return value;
  }
  template <class Word = int64_t>
  std::vector<Word> words() {
    std::vector<Word> values(static_cast<size_t>(word()));
    copy(values.data(), values.size() * sizeof(Word));
    return values;
  }

 private:
  void copy(void* to, size_t size) {
    VH_ASSERT(at_ + size <= bytes_.size(), "packed layouts are too short");
    bytes_.copy(static_cast<char*>(to), size, at_);  // to may be null where size is 0
    at_ += size;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

}  // namespace

std::string pack_layouts(const std::vector<Hdf5Layout>& layouts) {
  Packer packer;
  packer.add(static_cast<int64_t>(layouts.size()));
  for (const Hdf5Layout& layout : layouts) {
    packer.add(layout.shape);
    packer.add(static_cast<int64_t>(layout.type));
    packer.add(static_cast<int64_t>(layout.storage));
    packer.add(layout.opaque_because);
    packer.add(static_cast<int64_t>(layout.is_virtual));
    packer.add(layout.missing_filters);
    packer.add(layout.unwritten);
    packer.add(layout.file_bytes);
    packer.add(layout.offset);
    packer.add(layout.chunk);
    packer.add(layout.chunk_offsets);
    packer.add(layout.chunk_bytes);
    packer.add(layout.chunk_masks);
    packer.add(layout.filters);
    packer.add(static_cast<int64_t>(layout.times.kind));
    packer.add(std::bit_cast<int64_t>(layout.times.first));
    packer.add(std::bit_cast<int64_t>(layout.times.last));
    packer.add(layout.times.calendar);
    packer.add(layout.attribute);
    packer.add(layout.grid.latitudes);
    packer.add(layout.grid.longitudes);
  }
  return packer.take();
}

std::vector<Hdf5Layout> unpack_layouts(const std::string& bytes) {
  Unpacker unpacker(bytes);
  std::vector<Hdf5Layout> layouts(static_cast<size_t>(unpacker.word()));
  for (Hdf5Layout& layout : layouts) {
    layout.shape = unpacker.words();
    layout.type = static_cast<at::ScalarType>(unpacker.word());
    layout.storage = static_cast<Hdf5Layout::Storage>(unpacker.word());
    layout.opaque_because = unpacker.text();
    layout.is_virtual = unpacker.word() != 0;
    layout.missing_filters = unpacker.text();
    layout.unwritten = unpacker.text();
    layout.file_bytes = unpacker.word();
    layout.offset = unpacker.word();
    layout.chunk = unpacker.words();
    layout.chunk_offsets = unpacker.words();
    layout.chunk_bytes = unpacker.words();
    layout.chunk_masks = unpacker.words();
    layout.filters = unpacker.words();
    layout.times.kind = static_cast<TimeAxis::Kind>(unpacker.word());
    layout.times.first = std::bit_cast<double>(unpacker.word());
    layout.times.last = std::bit_cast<double>(unpacker.word());
    layout.times.calendar = unpacker.text();
    layout.attribute = unpacker.text();
    layout.grid.latitudes = unpacker.words<double>();
    layout.grid.longitudes = unpacker.words<double>();
  }
  return layouts;
}

}  // namespace vit_hybrid::data
