// Pure parts of the data tools: moments, cost of reads, words of a command line.
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "data/tools/inspect_files.h"
#include "data/tools/row_statistics.h"
#include "src/commands/command.h"

namespace vit_hybrid::data {
namespace {

ArrayLayout field_layout(std::vector<int64_t> chunk, ArrayLayout::Storage storage) {
  ArrayLayout layout;
  layout.shape = {10, 4, 12, 16};
  layout.storage = storage;
  layout.chunk = std::move(chunk);
  int64_t num_chunks = layout.chunk.empty() ? 0 : 1;
  int64_t chunk_bytes = 4;
  for (size_t d = 0; d < layout.chunk.size(); ++d) {
    num_chunks *= (layout.shape[d] + layout.chunk[d] - 1) / layout.chunk[d];
    chunk_bytes *= layout.chunk[d];
  }
  for (int64_t i = 0; i < num_chunks; ++i) {
    layout.chunk_offsets.push_back(i * (chunk_bytes + 100));  // no two of them adjacent
    layout.chunk_bytes.push_back(chunk_bytes / 2);
  }
  if (storage != ArrayLayout::Storage::kFiltered) {
    layout.chunk_bytes.clear();
  }
  return layout;
}

}  // namespace

TEST_CASE("channel moments: the same from parts as from all, and what is missing") {
  const at::Tensor values = at::randn({6, 3, 50}, at::kDouble).mul_(3.0).add_(1e4);
  std::vector<ChannelMoments> moments(3);
  for (int64_t row = 0; row < 6; ++row) {
    add_row(values[row].contiguous(), {1, 3, 50}, moments);
  }
  for (int64_t c = 0; c < 3; ++c) {
    const at::Tensor channel = values.select(1, c);
    const ChannelMoments& m = moments[static_cast<size_t>(c)];
    CHECK(m.count == 300);
    CHECK(m.mean == doctest::Approx(channel.mean().item<double>()).epsilon(1e-14));
    CHECK(m.deviation() == doctest::Approx(channel.std(/*unbiased=*/false).item<double>()).epsilon(1e-11));
    CHECK(m.min == channel.min().item<double>());
    CHECK(m.max == channel.max().item<double>());
  }
  at::Tensor row = at::arange(20, at::kFloat);
  row[3] = std::numeric_limits<float>::quiet_NaN();
  row[7] = std::numeric_limits<float>::infinity();
  std::vector<ChannelMoments> holed(1);
  add_row(row, {1, 1, 20}, holed);
  CHECK(holed[0].num_nan == 1);
  CHECK(holed[0].num_infinite == 1);
  CHECK(holed[0].count == 18);
  CHECK(holed[0].mean == doctest::Approx(180.0 / 18.0));
  ChannelMoments copy;
  double packed[ChannelMoments::kPacked];
  holed[0].pack(packed);
  copy = ChannelMoments::unpack(packed);
  copy.merge(ChannelMoments());  // nothing
  CHECK(copy.mean == holed[0].mean);
  CHECK(copy.max == 19.0);
}

TEST_CASE("channel moments: where channels lie") {
  const std::vector<int64_t> fields = {5, 3, 4, 6};
  const std::vector<int64_t> images = {5, 4, 6, 3};
  const std::vector<int64_t> labels = {5};
  CHECK(channel_places(fields, at::kFloat).channels == 3);
  CHECK(channel_places(fields, at::kFloat).inner == 24);
  CHECK(channel_places(images, at::kByte).channels == 3);
  CHECK(channel_places(images, at::kByte).outer == 24);
  CHECK(channel_places(labels, at::kLong).channels == 1);
  std::vector<ChannelMoments> moments(3);
  add_row(at::arange(4 * 6 * 3, at::kByte).reshape({4, 6, 3}), channel_places(images, at::kByte), moments);
  CHECK(moments[0].min == 0.0);
  CHECK(moments[1].min == 1.0);
  CHECK(moments[2].max == 71.0);
  CHECK(moments[2].mean == doctest::Approx(2.0 + 3.0 * 11.5));
}

TEST_CASE("read cost: contiguous rows, bands, chunks and filters") {
  using Storage = ArrayLayout::Storage;
  const int64_t row = 4 * 12 * 16 * 4;
  const ArrayLayout contiguous = field_layout({}, Storage::kContiguous);
  const RowBox whole = RowBox::whole(contiguous);
  ReadCost cost = read_cost(contiguous, 3, whole);
  CHECK(cost.num_reads == 1);
  CHECK(cost.bytes_wanted == row);
  CHECK(cost.amplification() == 1.0);
  CHECK(slow_because(contiguous, cost).empty());
  cost = read_cost(contiguous, 3, latitude_band(contiguous, 1, 3));
  CHECK(cost.num_reads == 4);  // one a channel
  CHECK(cost.bytes_needed == row / 3);

  // Chunks of two rows, two channels, half of the latitudes: a row is in 4 chunks, of each of which it is a half.
  const std::vector<int64_t> chunk = {2, 2, 6, 16};
  cost = read_cost(field_layout(chunk, Storage::kChunked), 3, whole);
  CHECK(cost.num_reads == 4);
  CHECK(cost.bytes_needed == row);
  const ArrayLayout filtered = field_layout(chunk, Storage::kFiltered);
  cost = read_cost(filtered, 3, whole);
  CHECK(cost.num_reads == 4);
  CHECK(cost.bytes_needed == 2 * row);
  CHECK(cost.bytes_in_file == row);
  CHECK(cost.amplification() == 2.0);
  CHECK(slow_because(filtered, cost).find("2.00 times") != std::string::npos);
  cost = read_cost(filtered, 3, latitude_band(filtered, 0, 2));
  CHECK(cost.num_reads == 2);
  CHECK(cost.amplification() == 2.0);
  cost = read_cost(filtered, 3, latitude_band(filtered, 0, 3));  // 4 latitudes of chunks of 6, one row of two
  CHECK(cost.amplification() == 3.0);

  // Each latitude its own chunk: 48 reads of 64 bytes.
  const ArrayLayout scattered = field_layout({1, 1, 1, 16}, Storage::kChunked);
  cost = read_cost(scattered, 0, whole);
  CHECK(cost.num_reads == 48);
  CHECK(slow_because(scattered, cost) == "a sample is 48 reads of 64 bytes");
}

}  // namespace vit_hybrid::data
