// PeriodicField: a doubly periodic grid of doubles with one ring of halo cells.
#include "data/generate/periodic_field.h"

#include <algorithm>

namespace vit_hybrid::data {

PeriodicField::PeriodicField(int64_t rows, int64_t columns)
    : rows_(rows), columns_(columns), values_(static_cast<size_t>((rows + 2) * (columns + 2)), 0.0) {}

void PeriodicField::wrap() {
  for (int64_t j = 0; j < rows_; ++j) {
    double* values = row(j);
    values[-1] = values[columns_ - 1];
    values[columns_] = values[0];
  }
  std::copy_n(row(rows_ - 1) - 1, stride(), row(-1) - 1);
  std::copy_n(row(0) - 1, stride(), row(rows_) - 1);
}

double PeriodicField::sum() const {
  double total = 0.0;
  for (int64_t j = 0; j < rows_; ++j) {
    const double* values = row(j);
    double row_total = 0.0;
    for (int64_t i = 0; i < columns_; ++i) {
      row_total += values[i];
    }
    total += row_total;
  }
  return total;
}

}  // namespace vit_hybrid::data
