// Blocks of rows, each summed by one rank, gathered by all and merged in their order.
#include "data/tools/row_statistics.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "data/tools/row_groups.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/make_communicator.h"
#include "src/base/partition.h"
#include "src/base/progress.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// A function of the data alone, so that the order of merging is too; enough for the ranks to share them evenly.
constexpr int64_t kMostBlocks = 1024;
constexpr int64_t kBufferBytes = int64_t{32} << 20;

struct Place {
  int64_t file;
  int64_t row;
};

Place place_of(const RowSource& source, int64_t row) {
  int64_t file = 0;
  while (row >= source.files()[static_cast<size_t>(file)].layout.num_rows()) {
    row -= source.files()[static_cast<size_t>(file++)].layout.num_rows();
  }
  return {file, row};
}

class BlockSums {
 public:
  BlockSums(const RowSource& source, const RowSelection& rows, const StatisticsRequest& request)
      : source_(source),
        rows_(rows),
        request_(request),
        blocks_(cut(rows)),
        places_(channel_places(layout().shape, layout().type)),
        buffer_(make_buffer()),
        packed_(at::zeros({blocks_.parts(), places_.channels, ChannelMoments::kPacked}, at::kDouble)) {
    if (request.time_means == TimeMeans::kYes) {
      sums_ = at::zeros(buffer_[0].sizes(), at::kDouble);
      counts_ = at::zeros(buffer_[0].sizes(), at::kDouble);
    }
  }

  int64_t num_blocks() const { return blocks_.parts(); }

  void add_block(int64_t block) {
    std::vector<ChannelMoments> moments(static_cast<size_t>(places_.channels));
    const Range part = blocks_.part(block);
    for (int64_t first = part.begin; first < part.end; first += buffer_.size(0)) {
      add_rows({first, std::min(first + buffer_.size(0), part.end)}, moments);
    }
    auto* to = packed_.mutable_data_ptr<double>() + block * places_.channels * ChannelMoments::kPacked;
    for (const ChannelMoments& channel : moments) {
      channel.pack(to);
      to += ChannelMoments::kPacked;
    }
  }

  // Every block was summed by one rank; the others have zeros there.
  RowStatistics finish(const comm::MpiGroup& group) {
    const auto communicator = comm::make_communicator("data", group.duplicate(), at::kCPU);
    communicator->all_reduce(packed_, comm::ReduceOp::kSum).wait();
    RowStatistics result;
    result.channels.resize(static_cast<size_t>(places_.channels));
    const auto* from = packed_.const_data_ptr<double>();
    for (int64_t block = 0; block < num_blocks(); ++block) {
      for (ChannelMoments& channel : result.channels) {
        channel.merge(ChannelMoments::unpack(from));
        from += ChannelMoments::kPacked;
      }
    }
    if (sums_.defined()) {
      communicator->all_reduce(sums_, comm::ReduceOp::kSum).wait();
      communicator->all_reduce(counts_, comm::ReduceOp::kSum).wait();
      result.time_means = sums_.div_(counts_);
    }
    return result;
  }

 private:
  const Hdf5Layout& layout() const { return source_.files().front().layout; }

  // Chunks are cut at where they begin only if all rows are wanted: a few of them lie in different ones.
  RowGroups cut(const RowSelection& rows) const {
    const int64_t unit = rows.count == rows.total ? rows_read_together(layout()) : 1;
    const int64_t num_units = (rows.count + unit - 1) / unit;
    return {rows.count, unit, std::clamp<int64_t>(num_units, 1, kMostBlocks)};
  }

  // At least the rows of a chunk.
  at::Tensor make_buffer() const {
    std::vector<int64_t> shape = layout().shape;
    const int64_t row_bytes = std::max<int64_t>(layout().row_bytes(), 1);
    shape.front() = std::min(std::max(kBufferBytes / row_bytes / blocks_.unit(), int64_t{1}) * blocks_.unit(),
                             std::max<int64_t>(blocks_.largest(), 1));
    return at::empty(shape, layout().type);
  }

  void add_rows(Range rows, std::vector<ChannelMoments>& moments) {
    std::vector<Place> places;
    std::vector<RowRead> reads;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      places.push_back(place_of(source_, rows_.row(i)));
      auto* to = static_cast<char*>(buffer_.data_ptr()) + (i - rows.begin) * layout().row_bytes();
      reads.push_back({places.back().file, places.back().row, to});
    }
    source_.read(std::move(reads));
    for (size_t i = 0; i < places.size(); ++i) {
      add(places[i], buffer_[static_cast<int64_t>(i)], moments);
    }
  }

  void add(const Place& place, const at::Tensor& row, std::vector<ChannelMoments>& moments) {
    int64_t missing_before = 0;
    for (const ChannelMoments& channel : moments) {
      missing_before += channel.num_missing();
    }
    add_row(row, places_, moments);
    int64_t missing = -missing_before;
    for (const ChannelMoments& channel : moments) {
      missing += channel.num_missing();
    }
    if (missing > 0 && request_.missing == MissingValues::kRefuse) {
      refuse(place, row);
    }
    if (sums_.defined()) {
      add_to_time_means(row, missing);
    }
  }

  void add_to_time_means(const at::Tensor& row, int64_t missing) {
    if (missing == 0) {
      sums_.add_(row);
      counts_.add_(1.0);
      return;
    }
    const at::Tensor finite = at::isfinite(row);
    sums_.add_(at::where(finite, row, at::zeros_like(row)));
    counts_.add_(finite);
  }

  [[noreturn]] void refuse(const Place& place, const at::Tensor& row) const {
    const at::Tensor values = row.to(at::kDouble).reshape({-1});
    const auto* first = values.const_data_ptr<double>();
    const auto* bad = std::find_if(first, first + values.numel(), [](double x) { return !std::isfinite(x); });
    const int64_t element = bad - first;
    throw Error(ErrorClass::kBadData,
                str(source_.files()[static_cast<size_t>(place.file)].path, ": dataset '", source_.dataset(),
                    "' is not finite (", *bad, ") at time ", place.row, ", channel ",
                    element / places_.inner % places_.channels, ", element ", element % places_.inner, " of it"),
                "repair the file, or leave such values out with --skip-missing");
  }

  const RowSource& source_;
  const RowSelection rows_;
  const StatisticsRequest& request_;
  const RowGroups blocks_;
  const ChannelPlaces places_;
  const at::Tensor buffer_;  // rows that are read together
  const at::Tensor packed_;
  at::Tensor sums_;
  at::Tensor counts_;
};

}  // namespace

RowSelection RowSelection::of(const RowSource& source, int64_t wanted) {
  int64_t total = 0;
  for (const RowFile& file : source.files()) {
    total += file.layout.num_rows();
  }
  return {total, wanted == 0 ? total : std::min(wanted, total)};
}

RowStatistics row_statistics(const comm::MpiGroup& group, const RowSource& source, const RowSelection& rows,
                             const StatisticsRequest& request) {
  BlockSums sums(source, rows, request);
  const Partition shares(sums.num_blocks(), group.size());
  const Range mine = shares.part(group.rank());
  Progress progress(str("reading ", rows.count, " rows of '", source.dataset(), "' in ", source.files().front().path,
                        source.files().size() > 1 ? str(" and ", source.files().size() - 1, " more files") : ""),
                    shares.largest());
  for (int64_t done = 0; done < shares.largest(); ++done) {
    comm::agreed(group, [&] {
      if (done < mine.size() && rows.count > 0) {
        sums.add_block(mine.begin + done);
      }
    });
    progress.add();
  }
  return sums.finish(group);
}

}  // namespace vit_hybrid::data
