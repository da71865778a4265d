// The error of patches against fields: its sums and gradients over samples in parallel on the host, and the host or a
// GPU chosen.
#include "src/kernels/field_error.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/field_error_rows.h"
#include "src/kernels/gemm/packing.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

PatchGrid grid_of(const at::Tensor& patches, const at::Tensor& fields) {
  const int64_t channels = fields.size(1);
  const auto patch = static_cast<int64_t>(
      std::lround(std::sqrt(static_cast<double>(patches.size(2)) / static_cast<double>(channels))));
  VH_ASSERT(patch > 0, str("patches [", join(patches.sizes()), "]"));
  const PatchGrid grid{fields.size(2) / patch, fields.size(3) / patch, patch, channels};
  VH_ASSERT(patches.size(0) == fields.size(0) && patches.size(1) == grid.num_patches() &&
                patches.size(2) == grid.num_features() && grid.height() == fields.size(2) &&
                grid.width() == fields.size(3),
            str("patches [", join(patches.sizes()), "] of fields [", join(fields.sizes()), "]"));
  return grid;
}

at::Tensor unpatchify(const at::Tensor& patches, const PatchGrid& grid) {
  const int64_t num_samples = patches.size(0);
  return patches.view({num_samples, grid.rows, grid.columns, grid.patch, grid.patch, grid.channels})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({num_samples, grid.channels, grid.height(), grid.width()});
}

namespace {

// The truth in the order of the prediction's features, a band (a row of patches) at a time: its lines are read as they
// lie, and the predictions of a band lie together.
template <class F>
class TrueBands {
 public:
  TrueBands(const at::Tensor& fields, const PatchGrid& grid)
      : data_(fields.const_data_ptr<F>()),
        grid_(grid),
        band_(static_cast<size_t>(grid.columns * grid.num_features())) {}

  // [columns, features]; the bands of all samples are counted through.
  const F* gather(int64_t band) {
    const int64_t plane = grid_.height() * grid_.width();
    const int64_t first_line = band % grid_.rows * grid_.patch;
    const F* const corner = data_ + band / grid_.rows * grid_.channels * plane + first_line * grid_.width();
    for (int64_t row = 0; row < grid_.patch; ++row) {
      for (int64_t column = 0; column < grid_.columns; ++column) {
        transpose_block(corner + row * grid_.width() + column * grid_.patch, plane, grid_.channels, grid_.patch,
                        band_.data() + column * grid_.num_features() + row * grid_.patch * grid_.channels,
                        grid_.channels);
      }
    }
    return band_.data();
  }

 private:
  const F* data_;
  PatchGrid grid_;
  std::vector<F> band_;
};

// Calls `use(band, offset, truth, count)` for the elements of each band, `offset` being that in the predictions.
template <class F, class Use>
void for_bands(const at::Tensor& fields, const PatchGrid& grid, const Use& use) {
  const int64_t count = grid.columns * grid.num_features();
  at::parallel_for(0, fields.size(0) * grid.rows, 1, [&](int64_t begin, int64_t end) {
    TrueBands<F> truth(fields, grid);
    for (int64_t band = begin; band < end; ++band) {
      use(band, band * count, truth.gather(band), count);
    }
  });
}

template <class T>
void squares_on_host(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                     const at::Tensor& sums) {
  using F = typename FloatRow<T>::Float;
  const int64_t num_samples = prediction.size(0);
  const T* const predicted = prediction.const_data_ptr<T>();
  std::vector<FieldSquares> bands(static_cast<size_t>(num_samples * grid.rows));
  for_bands<F>(fields, grid, [&](int64_t band, int64_t offset, const F* truth, int64_t count) {
    bands[static_cast<size_t>(band)] = field_squares_row(predicted + offset, truth, count);
  });
  auto* const data = sums.mutable_data_ptr<double>();
  for (size_t band = 0; band < bands.size(); ++band) {
    const int64_t sample = static_cast<int64_t>(band) / grid.rows;
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
  for_bands<F>(fields, grid, [=](int64_t band, int64_t offset, const F* truth, int64_t count) {
    scaled_difference_row(predicted + offset, truth, factors[band / grid.rows], to + offset, count);
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
  at::Tensor gradient = at::empty_like(prediction);
  with_float_type(prediction.scalar_type(), [&](auto zero) {
    gradient_on_host<decltype(zero)>(prediction, fields, grid, factors.const_data_ptr<double>(), gradient);
  });
  return gradient;
}

}  // namespace vit_hybrid::kernels
