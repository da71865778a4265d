// PeriodicField: a doubly periodic grid of doubles with one ring of halo cells, and loops over its rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vit_hybrid::data {

/// Values on a doubly periodic grid of rows x columns. Rows and columns -1 and rows(), columns() are the halo: copies
/// of the opposite edges as of the last wrap(), so that stencils need no index arithmetic.
class PeriodicField {
 public:
  PeriodicField() = default;
  PeriodicField(int64_t rows, int64_t columns);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  /// Row `j` in [-1, rows()]; the result is indexed by column in [-1, columns()].
  double* row(int64_t j) { return values_.data() + (j + 1) * stride() + 1; }
  const double* row(int64_t j) const { return values_.data() + (j + 1) * stride() + 1; }
  double at(int64_t j, int64_t i) const { return row(j)[i]; }
  /// Renews the halo from the interior.
  void wrap();
  /// Sum of the interior, row by row.
  double sum() const;

 private:
  int64_t stride() const { return columns_ + 2; }

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  std::vector<double> values_;
};

inline constexpr int64_t kWorthThreads = 32768;  ///< cells; below, starting threads costs more than a loop

/// Calls `block(begin, end)` for a few rows after the other of a grid, on several threads where that pays; the calls
/// must not depend on each other.
template <class BlockFunction>
void for_each_block(int64_t rows, int64_t columns, const BlockFunction& block) {
  constexpr int64_t kBlockRows = 16;
#pragma omp parallel for schedule(static) if (rows * columns >= kWorthThreads)
  for (int64_t begin = 0; begin < rows; begin += kBlockRows) {
    block(begin, std::min(begin + kBlockRows, rows));
  }
}

/// Calls `row(j)` for every row of a grid, on several threads where that pays; the calls must not depend on each other.
template <class RowFunction>
void for_each_row(int64_t rows, int64_t columns, const RowFunction& row) {
#pragma omp parallel for schedule(static) if (rows * columns >= kWorthThreads)
  for (int64_t j = 0; j < rows; ++j) {
    row(j);
  }
}

}  // namespace vit_hybrid::data
