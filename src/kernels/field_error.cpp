// The error of patches against fields: its sums and gradients over samples in parallel on the host, and the host or a
// GPU chosen.
#include "src/kernels/field_error.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "src/kernels/field_error_rows.h"
#include "src/kernels/gemm/packing.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

namespace {

// The truth in the order of the prediction's features, a band (a row of patches) at a time: its lines are read as they
// lie, and the predictions of a band lie together. What is padded holds anything.
template <class F>
class TrueBands {
 public:
  TrueBands(const at::Tensor& fields, const PatchGrid& grid)
      : data_(fields.const_data_ptr<F>()),
        grid_(grid),
        band_(static_cast<size_t>(grid.columns() * grid.num_features())) {}

  // [columns, features]; the bands of all samples are counted through.
  const F* gather(int64_t band) {
    const int64_t plane = grid_.height * grid_.width;
    const int64_t first_line = band % grid_.rows() * grid_.patch_height;
    const int64_t num_lines = std::min(grid_.patch_height, grid_.height - first_line);
    const F* const corner = data_ + band / grid_.rows() * grid_.channels * plane + first_line * grid_.width;
    for (int64_t row = 0; row < num_lines; ++row) {
      for (int64_t column = 0; column < grid_.columns(); ++column) {
        const int64_t first = column * grid_.patch_width;
        transpose_block(
            corner + row * grid_.width + first, plane, grid_.channels, std::min(grid_.patch_width, grid_.width - first),
            band_.data() + column * grid_.num_features() + row * grid_.patch_width * grid_.channels, grid_.channels);
      }
    }
    return band_.data();
  }

 private:
  const F* data_;
  PatchGrid grid_;
  std::vector<F> band_;
};

// Calls use(first, count) for the runs of elements of the band in row `row` that are not padded.
template <class Use>
void for_runs(const PatchGrid& grid, int64_t row, const Use& use) {
  const int64_t features = grid.num_features(), line = grid.patch_width * grid.channels;
  const int64_t num_lines = std::min(grid.patch_height, grid.height - row * grid.patch_height);
  const int64_t num_whole = grid.width / grid.patch_width, cut = grid.width % grid.patch_width;
  if (num_lines == grid.patch_height) {
    use(0, num_whole * features);
  } else {
    for (int64_t column = 0; column < num_whole; ++column) {
      use(column * features, num_lines * line);
    }
  }
  for (int64_t i = 0; cut != 0 && i < num_lines; ++i) {
    use(num_whole * features + i * line, cut * grid.channels);
  }
}

// Calls use(band, offset, truth, count) for the runs of each band, `offset` being that in the predictions.
template <class F, class Use>
void for_bands(const at::Tensor& fields, const PatchGrid& grid, const Use& use) {
  const int64_t elements = grid.columns() * grid.num_features();
  at::parallel_for(0, fields.size(0) * grid.rows(), 1, [&](int64_t begin, int64_t end) {
    TrueBands<F> bands(fields, grid);
    for (int64_t band = begin; band < end; ++band) {
      const F* const truth = bands.gather(band);
      for_runs(grid, band % grid.rows(),
               [&](int64_t first, int64_t count) { use(band, band * elements + first, truth + first, count); });
    }
  });
}

template <class T>
void squares_on_host(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                     const at::Tensor& sums) {
  using F = typename FloatRow<T>::Float;
  const int64_t num_samples = prediction.size(0);
  const T* const predicted = prediction.const_data_ptr<T>();
  std::vector<FieldSquares> bands(static_cast<size_t>(num_samples * grid.rows()));
  for_bands<F>(fields, grid, [&](int64_t band, int64_t offset, const F* truth, int64_t count) {
    const FieldSquares run = field_squares_row(predicted + offset, truth, count);
    bands[static_cast<size_t>(band)].error += run.error;
    bands[static_cast<size_t>(band)].truth += run.truth;
  });
  auto* const data = sums.mutable_data_ptr<double>();
  for (size_t band = 0; band < bands.size(); ++band) {
    const int64_t sample = static_cast<int64_t>(band) / grid.rows();
    data[sample] += bands[band].error;
    data[num_samples + sample] += bands[band].truth;
  }
}

template <class T>
void gradient_on_host(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                      const double* factors, const at::Tensor& gradient) {
  using F = typename FloatRow<T>::Float;
  const T* const predicted = prediction.const_data_ptr<T>();
  T* const to = gradient.mutable_data_ptr<T>();
  for_bands<F>(fields, grid, [&](int64_t band, int64_t offset, const F* truth, int64_t count) {
    scaled_difference_row(predicted + offset, truth, factors[band / grid.rows()], to + offset, count);
  });
}

}  // namespace

at::Tensor field_squares(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid) {
  if (!prediction.is_cpu()) {
    return device_field_squares(prediction, fields, grid);
  }
  at::Tensor sums = at::zeros({2, prediction.size(0)}, at::TensorOptions(at::kDouble));
  with_float_type(prediction.scalar_type(),
                  [&](auto zero) { squares_on_host<decltype(zero)>(prediction, fields, grid, sums); });
  return sums;
}

at::Tensor field_gradient(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                          const at::Tensor& factors) {
  if (!prediction.is_cpu()) {
    return device_field_gradient(prediction, fields, grid, factors);
  }
  at::Tensor gradient = grid.is_cut() ? at::zeros_like(prediction) : at::empty_like(prediction);
  with_float_type(prediction.scalar_type(), [&](auto zero) {
    gradient_on_host<decltype(zero)>(prediction, fields, grid, factors.const_data_ptr<double>(), gradient);
  });
  return gradient;
}

}  // namespace vit_hybrid::kernels
