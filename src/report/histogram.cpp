// Histogram: values are put into their buckets by the first bits of their numbers.
#include "src/report/histogram.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <numeric>

#include "src/base/memory_tracker.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kBlock = 1 << 14;            // values that are summed up by themselves, whichever thread has them
constexpr int64_t kCopied = int64_t{1} << 22;  // values of a GPU that are on the host at a time

// Positive limits but the last.
std::vector<double> positive_limits() {
  std::vector<double> limits;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) {
    limits.push_back(limit);
  }
  return limits;
}

// A cell has the numbers from one power of two to the next whose first four bits of the mantissa are equal: the last is
// less than 1.1 times the first, so that one limit at most is among them.
class Cells {
 public:
  Cells() {
    const std::vector<double> limits = positive_limits();
    num_limits_ = std::ssize(limits);
    first_ = cell_of(limits.front());
    int64_t below = 0;
    for (int64_t cell = first_; cell <= cell_of(limits.back()); ++cell) {
      const auto begin = std::bit_cast<double>(cell << kDropped);
      while (limits[static_cast<size_t>(below)] < begin) {
        ++below;
      }
      cells_.push_back({limits[static_cast<size_t>(below)], below});
    }
  }

  // Without branches: signs cannot be foretold, and half of the time would go into that.
  size_t bucket_of(double value) const {
    const double magnitude = std::abs(value);
    const Cell& cell = cells_[static_cast<size_t>(std::clamp<int64_t>(cell_of(magnitude) - first_, 0, last()))];
    const auto is_negative = static_cast<int64_t>(value < 0.0);
    // A limit itself belongs to the values above it.
    const int64_t is_above = int{magnitude > cell.limit} | (int{magnitude == cell.limit} & (is_negative ^ 1));
    const int64_t below = cell.below + is_above;
    return static_cast<size_t>(num_limits_ + 1 + (below ^ -is_negative));  // ~below is -below - 1
  }

 private:
  struct Cell {
    double limit;   // the first that is not below the cell
    int64_t below;  // limits that are
  };

  static constexpr int kDropped = 48;  // bits of a double behind sign, exponent and four bits of the mantissa
  static int64_t cell_of(double magnitude) { return std::bit_cast<int64_t>(magnitude) >> kDropped; }
  int64_t last() const { return std::ssize(cells_) - 1; }

  std::vector<Cell> cells_;
  int64_t first_ = 0;
  int64_t num_limits_ = 0;
};

const Cells& cells() {
  static const Cells made;
  return made;
}

// All of a Histogram but its counts, of one block.
struct Figures {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  double sum_of_squares = 0.0;
  int64_t not_finite = 0;
};

template <class T>
Figures count_block(const T* values, int64_t size, double factor, const Cells& cells, std::vector<int64_t>& counts) {
  Figures figures;
  for (int64_t i = 0; i < size; ++i) {
    const double value = static_cast<double>(values[i]) * factor;
    if (!std::isfinite(value)) {
      ++figures.not_finite;
      continue;
    }
    figures.least = std::min(figures.least, value);
    figures.most = std::max(figures.most, value);
    figures.sum += value;
    figures.sum_of_squares += value * value;
    ++counts[cells.bucket_of(value)];
  }
  return figures;
}

void add(const Figures& figures, Histogram& histogram) {
  histogram.least = std::min(histogram.least, figures.least);
  histogram.most = std::max(histogram.most, figures.most);
  histogram.sum += figures.sum;
  histogram.sum_of_squares += figures.sum_of_squares;
  histogram.not_finite += figures.not_finite;
}

template <class T>
void count_on_host(const T* values, int64_t size, double factor, Histogram& histogram) {
  const int64_t num_blocks = (size + kBlock - 1) / kBlock;
  std::vector<Figures> figures(static_cast<size_t>(num_blocks));
  std::mutex counts_are_added;
  at::parallel_for(0, num_blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> counts(histogram.counts.size());
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      figures[static_cast<size_t>(block)] =
          count_block(values + first, std::min(kBlock, size - first), factor, cells(), counts);
    }
    const std::lock_guard lock(counts_are_added);
    std::transform(counts.begin(), counts.end(), histogram.counts.begin(), histogram.counts.begin(), std::plus<>());
  });
  for (const Figures& of_block : figures) {
    add(of_block, histogram);
  }
}

}  // namespace

const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    const std::vector<double> positive = positive_limits();
    std::vector<double> all;
    std::transform(positive.rbegin(), positive.rend(), std::back_inserter(all), std::negate<>());
    all.push_back(0.0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

size_t bucket_of(double value) {
  return cells().bucket_of(value);
}

int64_t Histogram::size() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void count(const at::Tensor& values, double factor, Histogram& histogram) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const int64_t step = values.is_cpu() ? std::max<int64_t>(values.numel(), 1) : kCopied;
  for (int64_t begin = 0; begin < values.numel(); begin += step) {
    const at::Tensor here = values.narrow(0, begin, std::min(step, values.numel() - begin)).cpu();
    kernels::with_float_type(here.scalar_type(), [&](auto zero) {
      count_on_host(here.const_data_ptr<decltype(zero)>(), here.numel(), factor, histogram);
    });
  }
}

}  // namespace vit_hybrid::train
