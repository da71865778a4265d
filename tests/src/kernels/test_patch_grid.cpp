// Patches of fields and back, against sums over indices.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <doctest/doctest.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/kernels/patch_grid.h"

using namespace vit_hybrid;
using kernels::PatchGrid;

namespace {

const PatchGrid kGrids[] = {{6, 8, 2, 4, 3}, {7, 8, 3, 2, 2}, {6, 7, 2, 4, 3}, {7, 9, 3, 4, 2},
                            {5, 5, 5, 5, 1}, {5, 4, 3, 3, 1}, {1, 9, 1, 5, 2}};

at::Tensor numbered(const PatchGrid& grid) {
  return at::arange(2 * grid.channels * grid.height * grid.width, at::kDouble)
      .add_(1.0)
      .view({2, grid.channels, grid.height, grid.width});
}

}  // namespace

TEST_CASE("patch grid: counts of whole and cut patches") {
  const PatchGrid era5{721, 1440, 7, 8, 73}, cut{721, 1440, 8, 8, 20};
  CHECK(era5.rows() == 103);
  CHECK(era5.num_patches() == 103 * 180);
  CHECK_FALSE(era5.is_cut());
  CHECK(era5.padded_share() == 0.0);
  CHECK(cut.rows() == 91);
  CHECK(cut.num_patches() == 91 * 180);
  CHECK(cut.is_cut());
  CHECK(cut.padded_share() == doctest::Approx(7.0 / 728.0));
}

TEST_CASE("patch grid: a patch has its pixels, and beyond the field zeros, or the west's and the last row's") {
  for (const PatchGrid& grid : kGrids) {
    CAPTURE(grid.height);
    CAPTURE(grid.width);
    const at::Tensor fields = numbered(grid);
    for (const auto padding : {kernels::Padding::kZero, kernels::Padding::kPlanet}) {
      const at::Tensor patches = kernels::patchify(fields, grid, padding);
      REQUIRE(patches.sizes() == at::IntArrayRef({2, grid.num_patches(), grid.num_features()}));
      const auto field = fields.accessor<double, 4>();
      const auto patch = patches.accessor<double, 3>();
      bool is_right = true;
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t p = 0; p < grid.num_patches(); ++p) {
          for (int64_t i = 0; i < grid.num_features(); ++i) {
            const int64_t channel = i / grid.patch_pixels(), pixel = i % grid.patch_pixels();
            const int64_t row = p / grid.columns() * grid.patch_height + pixel / grid.patch_width;
            const int64_t column = p % grid.columns() * grid.patch_width + pixel % grid.patch_width;
            const bool is_inside = row < grid.height && column < grid.width;
            const double beyond = padding == kernels::Padding::kZero
                                      ? 0.0
                                      : field[n][channel][std::min(row, grid.height - 1)][column % grid.width];
            is_right = is_right && patch[n][p][i] == (is_inside ? field[n][channel][row][column] : beyond);
          }
        }
      }
      CHECK(is_right);
    }
  }
}

TEST_CASE("patch grid: fields come back from their patches, whatever is beyond them") {
  for (const PatchGrid& grid : kGrids) {
    CAPTURE(grid.height);
    CAPTURE(grid.width);
    const at::Tensor fields = numbered(grid);
    // The features of a prediction run over (row, column, channel), those of an input over (channel, row, column).
    const at::Tensor patches = kernels::patchify(fields, grid, kernels::Padding::kPlanet)
                                   .view({2, grid.num_patches(), grid.channels, grid.patch_pixels()})
                                   .transpose(2, 3)
                                   .flatten(2);
    CHECK(kernels::unpatchify(patches, grid).equal(fields));
  }
}

TEST_CASE("patch grid: fields of another shape, and patches larger than the field, are refused") {
  const at::Tensor fields = numbered({6, 8, 2, 4, 3});
  CHECK_THROWS_AS(kernels::patchify(fields, {6, 9, 2, 4, 3}, kernels::Padding::kZero), Error);
  CHECK_THROWS_AS(kernels::patchify(fields, {6, 8, 7, 4, 3}, kernels::Padding::kPlanet), Error);
}
