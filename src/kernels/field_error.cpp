// The error of patches against fields: on the host loops over runs of a patch, compiled for several instruction sets of
// which the program takes the widest at its start, and its sums and gradients over samples in parallel; and the host or
// a GPU chosen.

// How a vector is passed differs between instruction sets; here none is, everything is inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "src/kernels/field_error.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/gemm/packing.h"
#include "src/kernels/half_conversion.h"
#include "src/kernels/lanes.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kWeightsBehind = 15;

// Vectors of doubles in one of F.
template <class F>
constexpr int64_t kDoubles = Lanes<F>::kWidth / Lanes<double>::kWidth;

enum class Weighing { kNone, kWeights };

template <ErrorPower kPower, Weighing kWeighing, class T, class F>
VH_INLINE FieldSums sums_of(const T* prediction, const F* truth, const double* weights, int64_t n) {
  using Doubles = typename Lanes<double>::V;
  Doubles error[kDoubles<F>] = {};
  Doubles of_truth[kDoubles<F>] = {};
  for_lanes<F>(n, [=, &error, &of_truth](int64_t i, auto part) VH_INLINED {
    typename Lanes<F>::V predicted, value;
    part.load(prediction + i, predicted);
    part.load(truth + i, value);
    Doubles difference[kDoubles<F>], wide[kDoubles<F>];
    to_double(predicted - value, difference);
    to_double(value, wide);
#pragma GCC unroll 2
    for (int64_t k = 0; k < kDoubles<F>; ++k) {
      Doubles of_error, of_value;
      if constexpr (kPower == ErrorPower::kSquare) {
        of_error = difference[k] * difference[k];
        of_value = wide[k] * wide[k];
      } else {
        of_error = difference[k] < 0.0 ? -difference[k] : difference[k];
        of_value = wide[k] < 0.0 ? -wide[k] : wide[k];
      }
      if constexpr (kWeighing == Weighing::kWeights) {
        Doubles weight;
        Lanes<double>::load(weights + i + k * Lanes<double>::kWidth, weight);
        of_error *= weight;
        of_value *= weight;
      }
      error[k] += of_error;
      of_truth[k] += of_value;
    }
  });
#pragma GCC unroll 2
  for (int64_t k = 1; k < kDoubles<F>; ++k) {
    error[0] += error[k];
    of_truth[0] += of_truth[k];
  }
  return {sum_of<double>(error[0]), sum_of<double>(of_truth[0])};
}

template <ErrorPower kPower, Weighing kWeighing, class T, class F>
VH_INLINE void gradients_of(const T* prediction, const F* truth, const double* weights, double factor, T* to,
                            int64_t n) {
  using V = typename Lanes<F>::V;
  using Doubles = typename Lanes<double>::V;
  for_lanes<F>(n, [=](int64_t i, auto part) VH_INLINED {
    V predicted, value;
    part.load(prediction + i, predicted);
    part.load(truth + i, value);
    Doubles product[kDoubles<F>];
    to_double(predicted - value, product);
#pragma GCC unroll 2
    for (int64_t k = 0; k < kDoubles<F>; ++k) {
      if constexpr (kPower == ErrorPower::kAbsolute) {
        const Doubles one = Doubles{} + 1.0;
        product[k] = product[k] > 0.0 ? one : product[k] < 0.0 ? -one : product[k];
      }
      if constexpr (kWeighing == Weighing::kWeights) {
        Doubles weight;
        Lanes<double>::load(weights + i + k * Lanes<double>::kWidth, weight);
        product[k] *= weight * factor;
      } else {
        product[k] *= factor;
      }
    }
    from_double(product, value);
    part.store(to + i, value);
  });
}

}  // namespace

// T: float, double, bf16 or fp16; F: float, or double for double. Rows of n elements. `weights` multiply what is added
// up and the gradient; null: ones. They are read in whole vectors: kWeightsBehind more lie behind the n, finite.

template <class T, class F>
VH_VERSIONS FieldSums field_sums_row(const T* prediction, const F* truth, const double* weights, ErrorPower power,
                                     int64_t n) {
  if (power == ErrorPower::kSquare) {
    return weights == nullptr ? sums_of<ErrorPower::kSquare, Weighing::kNone>(prediction, truth, weights, n)
                              : sums_of<ErrorPower::kSquare, Weighing::kWeights>(prediction, truth, weights, n);
  }
  return weights == nullptr ? sums_of<ErrorPower::kAbsolute, Weighing::kNone>(prediction, truth, weights, n)
                            : sums_of<ErrorPower::kAbsolute, Weighing::kWeights>(prediction, truth, weights, n);
}

// to = error_gradient(), rounded to T.
template <class T, class F>
VH_VERSIONS void error_gradient_row(const T* prediction, const F* truth, const double* weights, double factor,
                                    ErrorPower power, T* to, int64_t n) {
  if (power == ErrorPower::kSquare && weights == nullptr) {
    gradients_of<ErrorPower::kSquare, Weighing::kNone>(prediction, truth, weights, factor, to, n);
  } else if (power == ErrorPower::kSquare) {
    gradients_of<ErrorPower::kSquare, Weighing::kWeights>(prediction, truth, weights, factor, to, n);
  } else if (weights == nullptr) {
    gradients_of<ErrorPower::kAbsolute, Weighing::kNone>(prediction, truth, weights, factor, to, n);
  } else {
    gradients_of<ErrorPower::kAbsolute, Weighing::kWeights>(prediction, truth, weights, factor, to, n);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T and F are types.
#define VH_INSTANTIATE(T, F)                                                                 \
  template FieldSums field_sums_row(const T*, const F*, const double*, ErrorPower, int64_t); \
  template void error_gradient_row(const T*, const F*, const double*, double, ErrorPower, T*, int64_t)
// NOLINTEND(bugprone-macro-parentheses)

VH_INSTANTIATE(float, float);
VH_INSTANTIATE(double, double);
VH_INSTANTIATE(c10::BFloat16, float);
VH_INSTANTIATE(c10::Half, float);

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

// Weights as rows of patches have them: `row` of the first line of a run, times `channels` in each pixel.
class RunWeights {
 public:
  RunWeights(const FieldWeights& weights, const PatchGrid& grid)
      : rows_(weights.rows.defined() ? weights.rows.const_data_ptr<double>() : nullptr) {
    if (!weights.channels.defined()) {
      return;
    }
    const auto* const channels = weights.channels.const_data_ptr<double>();
    line_.reserve(static_cast<size_t>(grid.patch_width * grid.channels + kWeightsBehind));
    for (int64_t pixel = 0; pixel < grid.patch_width; ++pixel) {
      line_.insert(line_.end(), channels, channels + grid.channels);
    }
    line_.insert(line_.end(), static_cast<size_t>(kWeightsBehind), 0.0);
  }

  double of_row(int64_t row) const { return rows_ == nullptr ? 1.0 : rows_[row]; }
  /// Of a patch's line, or of the begin of it; null: ones.
  const double* of_line() const { return line_.empty() ? nullptr : line_.data(); }

 private:
  const double* rows_;
  std::vector<double> line_;
};

// Whether runs may go over lines, which then have no weights.
enum class Runs { kLong, kLines };

// Calls use(first, count, line) for the runs of elements of the band in row `row` that are not padded, from a line of
// the band on, each within it for kLines.
template <class Use>
void for_runs(const PatchGrid& grid, int64_t row, Runs runs, const Use& use) {
  const int64_t features = grid.num_features(), line = grid.patch_width * grid.channels;
  const int64_t num_lines = std::min(grid.patch_height, grid.height - row * grid.patch_height);
  const int64_t num_whole = grid.width / grid.patch_width, cut = grid.width % grid.patch_width;
  if (runs == Runs::kLines) {
    for (int64_t i = 0; i < num_whole * num_lines; ++i) {
      use(i / num_lines * features + i % num_lines * line, line, i % num_lines);
    }
  } else if (num_lines == grid.patch_height) {
    use(0, num_whole * features, 0);
  } else {
    for (int64_t column = 0; column < num_whole; ++column) {
      use(column * features, num_lines * line, 0);
    }
  }
  for (int64_t i = 0; cut != 0 && i < num_lines; ++i) {
    use(num_whole * features + i * line, cut * grid.channels, i);
  }
}

// A run of predictions and of the truth that belongs to them.
template <class F>
struct BandRun {
  int64_t band;    // of all samples
  int64_t offset;  // in the predictions
  const F* truth;
  int64_t count;
  int64_t row;  // of the field, that of the first line
};

// Calls use(BandRun) for the runs of each band.
template <class F, class Use>
void for_bands(const at::Tensor& fields, const PatchGrid& grid, Runs runs, const Use& use) {
  const int64_t elements = grid.columns() * grid.num_features();
  at::parallel_for(0, fields.size(0) * grid.rows(), 1, [&](int64_t begin, int64_t end) {
    TrueBands<F> bands(fields, grid);
    for (int64_t band = begin; band < end; ++band) {
      const F* const truth = bands.gather(band);
      const int64_t row = band % grid.rows();
      for_runs(grid, row, runs, [&](int64_t first, int64_t count, int64_t line) {
        use(BandRun<F>{band, band * elements + first, truth + first, count, row * grid.patch_height + line});
      });
    }
  });
}

Runs runs_of(const FieldWeights& weights) {
  return weights.is_defined() ? Runs::kLines : Runs::kLong;
}

template <class T>
void sums_on_host(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                  const FieldMeasure& measure, const at::Tensor& sums) {
  using F = typename FloatRow<T>::Float;
  const int64_t num_samples = prediction.size(0);
  const T* const predicted = prediction.const_data_ptr<T>();
  const RunWeights weights(measure.weights, grid);
  std::vector<FieldSums> bands(static_cast<size_t>(num_samples * grid.rows()));
  for_bands<F>(fields, grid, runs_of(measure.weights), [&](const BandRun<F>& run) {
    const FieldSums part =
        field_sums_row(predicted + run.offset, run.truth, weights.of_line(), measure.power, run.count);
    FieldSums& band = bands[static_cast<size_t>(run.band)];
    band.error += part.error * weights.of_row(run.row);
    band.truth += part.truth * weights.of_row(run.row);
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
                      const FieldMeasure& measure, const double* factors, const at::Tensor& gradient) {
  using F = typename FloatRow<T>::Float;
  const T* const predicted = prediction.const_data_ptr<T>();
  T* const to = gradient.mutable_data_ptr<T>();
  const RunWeights weights(measure.weights, grid);
  for_bands<F>(fields, grid, runs_of(measure.weights), [&](const BandRun<F>& run) {
    const double factor = factors[run.band / grid.rows()] * weights.of_row(run.row);
    error_gradient_row(predicted + run.offset, run.truth, weights.of_line(), factor, measure.power, to + run.offset,
                       run.count);
  });
}

void check_weights(const at::Tensor& prediction, const PatchGrid& grid, const FieldWeights& weights) {
  for (const auto& [given, size] : {std::pair(weights.rows, grid.height), std::pair(weights.channels, grid.channels)}) {
    VH_ASSERT(!given.defined() || (given.dim() == 1 && given.size(0) == size && given.is_contiguous() &&
                                   given.scalar_type() == at::kDouble && given.device() == prediction.device()),
              str("weights [", given.defined() ? join(given.sizes()) : "", "] for ", size, " rows or channels"));
  }
}

}  // namespace

at::Tensor field_sums(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                      const FieldMeasure& measure) {
  check_weights(prediction, grid, measure.weights);
  if (!prediction.is_cpu()) {
    return device_field_sums(prediction, fields, grid, measure);
  }
  at::Tensor sums = at::zeros({2, prediction.size(0)}, at::TensorOptions(at::kDouble));
  with_float_type(prediction.scalar_type(),
                  [&](auto zero) { sums_on_host<decltype(zero)>(prediction, fields, grid, measure, sums); });
  return sums;
}

at::Tensor field_gradient(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                          const at::Tensor& factors, const FieldMeasure& measure) {
  check_weights(prediction, grid, measure.weights);
  if (!prediction.is_cpu()) {
    return device_field_gradient(prediction, fields, grid, factors, measure);
  }
  at::Tensor gradient = grid.is_cut() ? at::zeros_like(prediction) : at::empty_like(prediction);
  with_float_type(prediction.scalar_type(), [&](auto zero) {
    gradient_on_host<decltype(zero)>(prediction, fields, grid, measure, factors.const_data_ptr<double>(), gradient);
  });
  return gradient;
}

}  // namespace vit_hybrid::kernels
