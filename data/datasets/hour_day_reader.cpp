// Blocks of hours and days that lie in the same chunks, read at once and kept.
#include "data/datasets/hour_day_reader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace vit_hybrid::data {

HourDayReader::HourDayReader(const ArrayLayout& array, std::unique_ptr<RowReader> reader, int64_t most_days)
    : type_(array.type),
      reader_(std::move(reader)),
      is_hour_first_(array.dims.front() == DimKind::kTime),
      outer_(blocks_along(array, is_hour_first_ ? DimKind::kTime : DimKind::kOther)),
      inner_(blocks_along(array, is_hour_first_ ? DimKind::kOther : DimKind::kTime)),
      kept_(1) {
  Blocks &hours = is_hour_first_ ? outer_ : inner_, &days = is_hour_first_ ? inner_ : outer_;
  if (most_days < 2) {
    hours.size = days.size = 1;
    return;
  }
  // Leads of one start may lie on both sides of a border.
  days.size = std::min(days.size, most_days / 2);
  const int64_t of_day = (hours.count + hours.size - 1) / hours.size;
  const int64_t of_all_days = (days.count + days.chunk - 1) / days.chunk * ((days.chunk + days.size - 1) / days.size);
  kept_ = LruCache<at::Tensor>(static_cast<size_t>(std::min(most_days / days.size, of_all_days) * of_day));
}

HourDayReader::Blocks HourDayReader::blocks_along(const ArrayLayout& array, DimKind kind) const {
  const auto dim = static_cast<size_t>(std::find(array.dims.begin(), array.dims.end(), kind) - array.dims.begin());
  const int64_t chunk = array.chunk.empty() ? 1 : array.chunk[dim];
  return {dim, array.shape[dim], chunk, chunk};
}

Range HourDayReader::Blocks::around(int64_t index) const {
  const int64_t begin = index / chunk * chunk;
  const int64_t first = index - (index - begin) % size;
  return {first, std::min({first + size, begin + chunk, count})};
}

RowBox HourDayReader::in_block(RowBox box, const Range& inner) const {
  box.start[inner_.dim - 1] = inner.begin;
  box.size[inner_.dim - 1] = inner.size();
  return box;
}

at::Tensor HourDayReader::read_block(const Range& outer, const Range& inner, std::span<const RowBox> boxes) const {
  std::vector<RowBox> of_block;
  int64_t values = 0;
  for (const RowBox& box : boxes) {
    of_block.push_back(in_block(box, inner));
    of_block.back().at = std::exchange(values, values + of_block.back().num_values());
  }
  const at::Tensor block = at::empty({outer.size(), values}, type_);
  std::vector<RowRead> rows;
  for (int64_t row = outer.begin; row < outer.end; ++row) {
    rows.push_back({0, row, block[row - outer.begin].data_ptr()});
  }
  reader_->read(rows, of_block, {});
  return block;
}

void HourDayReader::read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) {
  const int64_t num_days = is_hour_first_ ? inner_.count : outer_.count;
  const auto item = static_cast<int64_t>(c10::elementSize(type_));
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t in_outer = rows[i].row / num_days, in_inner = rows[i].row % num_days;
    if (!is_hour_first_) {
      std::swap(in_outer, in_inner);
    }
    const Range outer = outer_.around(in_outer), inner = inner_.around(in_inner);
    const auto make = [&] { return std::make_shared<at::Tensor>(read_block(outer, inner, boxes)); };
    const bool is_alone = outer_.size == 1 && inner_.size == 1;  // it is not worth its memory
    const auto block = is_alone ? make() : kept_.get(outer.begin * inner_.count + inner.begin, make);
    const at::Tensor row = (*block)[in_outer - outer.begin];
    int64_t at = 0;
    for (const RowBox& box : boxes) {
      const RowBox there = in_block(box, inner);
      const at::Tensor values = row.narrow(0, at, there.num_values()).view(there.size);
      at::from_blob(static_cast<char*>(rows[i].to) + box.at * item, box.size, at::TensorOptions(type_))
          .copy_(values.narrow(static_cast<int64_t>(inner_.dim) - 1, in_inner - inner.begin, 1));
      at += there.num_values();
      if (arrived) {
        arrived(i, box.at * item, box.num_values() * item);
      }
    }
  }
}

}  // namespace vit_hybrid::data
