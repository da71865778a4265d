// Rows of hours and days out of chunks of several of them: values, and how often each chunk is read. The reference is
// the array itself.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "data/datasets/day_climatology.h"
#include "data/reading/chunk_rows.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;

namespace {

constexpr int64_t kHours = 4, kDays = 366, kLatitudes = 2, kLongitudes = 3;

using Chunks = std::map<std::vector<int64_t>, int64_t>;  // how often each was read, by its hour and day

// An array in memory, whose every call decodes the chunks that it touches once.
class ArrayReader : public RowReader {
 public:
  ArrayReader(at::Tensor values, ArrayLayout layout, Chunks& decoded)
      : values_(std::move(values)), layout_(std::move(layout)), decoded_(decoded) {}

  void read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& /*arrived*/) override {
    std::map<std::vector<int64_t>, bool> touched;
    const size_t inner = layout_.dims[1] == DimKind::kLatitude ? 3 : 1;
    for (const RowRead& row : rows) {
      for (const RowBox& box : boxes) {
        at::Tensor values = values_[row.row];
        for (size_t d = 0; d < box.size.size(); ++d) {
          values = values.narrow(static_cast<int64_t>(d), box.start[d], box.size[d]);
        }
        const at::Tensor flat = values.contiguous();
        std::copy_n(flat.const_data_ptr<float>(), flat.numel(), static_cast<float*>(row.to) + box.at);
        for (int64_t i = box.start[inner - 1]; i < box.start[inner - 1] + box.size[inner - 1]; ++i) {
          touched[{row.row / layout_.chunk.front(), i / layout_.chunk[inner]}] = true;
        }
      }
    }
    for (const auto& [chunk, ignored] : touched) {
      ++decoded_[chunk];
    }
  }

 private:
  at::Tensor values_;
  ArrayLayout layout_;
  Chunks& decoded_;
};

struct Array {
  ArrayLayout layout;
  at::Tensor values;   // as the layout has them
  at::Tensor by_hour;  // hour, day, latitude, longitude
  RowBox box;          // a field
};

// Hours first, or days first and hours last.
Array make_array(bool is_hour_first, int64_t hours, int64_t days) {
  Array array;
  array.by_hour =
      at::arange(kHours * kDays * kLatitudes * kLongitudes, at::kFloat).view({kHours, kDays, kLatitudes, kLongitudes});
  array.layout.type = at::kFloat;
  if (is_hour_first) {
    array.layout.dims = {DimKind::kTime, DimKind::kOther, DimKind::kLatitude, DimKind::kLongitude};
    array.layout.chunk = {hours, days, kLatitudes, kLongitudes};
    array.values = array.by_hour;
    array.box = {{0, 0, 0}, {1, kLatitudes, kLongitudes}, 5};
  } else {
    array.layout.dims = {DimKind::kOther, DimKind::kLatitude, DimKind::kLongitude, DimKind::kTime};
    array.layout.chunk = {days, kLatitudes, kLongitudes, hours};
    array.values = array.by_hour.permute({1, 2, 3, 0}).contiguous();
    array.box = {{0, 0, 0}, {kLatitudes, kLongitudes, 1}, 5};
  }
  array.layout.shape = array.values.sizes().vec();
  return array;
}

// Every day in the order of time, and with each the one `ahead` days later; how often each chunk was read.
Chunks read_year(const Array& array, int64_t most_days, int64_t ahead) {
  Chunks decoded;
  HourDayReader reader(array.layout, std::make_unique<ArrayReader>(array.values, array.layout, decoded), most_days);
  const at::Tensor to = at::empty({array.box.at + array.box.num_values()}, at::kFloat);
  bool is_right = true;
  for (int64_t row = 0; row < kDays * kHours; ++row) {
    for (const int64_t day : {row / kHours, std::min(row / kHours + ahead, kDays - 1)}) {
      const int64_t hour = row % kHours;
      const RowRead read{0, hour * kDays + day, to.data_ptr()};
      int64_t told = 0;
      reader.read({&read, 1}, {&array.box, 1}, [&](size_t, int64_t, int64_t bytes) { told += bytes; });
      is_right = is_right && told == array.box.num_values() * 4 &&
                 to.narrow(0, array.box.at, array.box.num_values()).equal(array.by_hour[hour][day].reshape({-1}));
    }
  }
  CHECK(is_right);
  return decoded;
}

bool all_are(const Chunks& decoded, int64_t times) {
  return std::all_of(decoded.begin(), decoded.end(), [&](const auto& chunk) { return chunk.second == times; });
}

}  // namespace

TEST_CASE("hours and days: each chunk is read once where memory allows it, else as often as it must") {
  for (const bool is_hour_first : {true, false}) {
    CAPTURE(is_hour_first);
    for (const auto& [hours, days] : {std::pair<int64_t, int64_t>{1, 183}, {4, 366}, {2, 100}, {3, 7}, {4, 1}}) {
      const Array array = make_array(is_hour_first, hours, days);
      const auto num_chunks = static_cast<size_t>(((kHours + hours - 1) / hours) * ((kDays + days - 1) / days));
      const Chunks decoded = read_year(array, 2 * kDays, 5);
      CHECK_MESSAGE((decoded.size() == num_chunks && all_are(decoded, 1)),
                    "chunks of " << hours << " hours x " << days << " days");
    }
    // Of 20 days at most: 10 at once, and those 5 days ahead lie in the next ones at most.
    const Chunks in_parts = read_year(make_array(is_hour_first, 1, 100), 20, 5);
    for (const auto& [chunk, times] : in_parts) {
      CHECK(times == (chunk[is_hour_first ? 1 : 0] < 3 ? 10 : 7));
    }
    // Less than two days: nothing is kept.
    CHECK(all_are(read_year(make_array(is_hour_first, 1, 61), 1, 0), 2 * 61));
  }
}

TEST_CASE("hours and days: chunks of one field are read as they are asked for") {
  const Array array = make_array(true, 1, 1);
  CHECK(all_are(read_year(array, 1000, 0), 2));
}
