// Fields to patches and back, region by region: the whole patches, and those that are cut in the south, the east or
// both. Pixels of patches: [B, C, R, ph, Q, pw], in the order of the field's, with R rows and Q columns of patches.
#include "src/kernels/patch_grid.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::kernels {

namespace {

// Patches along a side that have equally many pixels in the field.
struct Part {
  int64_t first;   // patch
  int64_t count;   // of patches
  int64_t extent;  // pixels of each
};

std::vector<Part> parts_of(int64_t side, int64_t patch) {
  std::vector<Part> parts = {{0, side / patch, patch}};
  if (side % patch != 0) parts.push_back({side / patch, 1, side % patch});
  return parts;
}

at::Tensor region_of_patches(const at::Tensor& pixels, const Part& rows, const Part& columns) {
  return pixels.narrow(2, rows.first, rows.count)
      .narrow(3, 0, rows.extent)
      .narrow(4, columns.first, columns.count)
      .narrow(5, 0, columns.extent);
}

// As that of the patches, but from `first_column` of the field on.
at::Tensor region_of_fields(const at::Tensor& fields, const PatchGrid& grid, const Part& rows, int64_t first_column,
                            const Part& columns) {
  return fields.narrow(2, rows.first * grid.patch_height, rows.count * rows.extent)
      .narrow(3, first_column, columns.count * columns.extent)
      .view({fields.size(0), grid.channels, rows.count, rows.extent, columns.count, columns.extent});
}

template <class Use>
void for_regions(const at::Tensor& fields, const at::Tensor& pixels, const PatchGrid& grid, const Use& use) {
  for (const Part& rows : parts_of(grid.height, grid.patch_height)) {
    for (const Part& columns : parts_of(grid.width, grid.patch_width)) {
      use(region_of_fields(fields, grid, rows, columns.first * grid.patch_width, columns),
          region_of_patches(pixels, rows, columns));
    }
  }
}

void continue_planet(const at::Tensor& fields, const at::Tensor& pixels, const PatchGrid& grid) {
  if (const int64_t cut = grid.width % grid.patch_width; cut != 0) {
    const int64_t missing = grid.patch_width - cut;
    for (const Part& rows : parts_of(grid.height, grid.patch_height)) {
      region_of_patches(pixels, rows, {grid.columns() - 1, 1, grid.patch_width})
          .narrow(5, cut, missing)
          .copy_(region_of_fields(fields, grid, rows, 0, {0, 1, missing}));
    }
  }
  if (const int64_t cut = grid.height % grid.patch_height; cut != 0) {
    const at::Tensor last = pixels.narrow(2, grid.rows() - 1, 1);
    last.narrow(3, cut, grid.patch_height - cut).copy_(last.narrow(3, cut - 1, 1));
  }
}

}  // namespace

at::Tensor patchify(const at::Tensor& fields, const PatchGrid& grid, Padding padding) {
  const std::vector<int64_t> expected = {fields.size(0), grid.channels, grid.height, grid.width};
  VH_ASSERT(
      fields.sizes() == at::IntArrayRef(expected) && grid.patch_height <= grid.height && grid.patch_width <= grid.width,
      str("fields [", join(fields.sizes()), "], expected [", join(expected), "]"));
  const std::vector<int64_t> shape = {fields.size(0), grid.rows(),       grid.columns(),
                                      grid.channels,  grid.patch_height, grid.patch_width};
  const bool has_zeros = grid.is_cut() && padding == Padding::kZero;
  const at::Tensor patches = has_zeros ? at::zeros(shape, fields.options()) : at::empty(shape, fields.options());
  const at::Tensor pixels = patches.permute({0, 3, 1, 4, 2, 5});
  for_regions(fields, pixels, grid, [](const at::Tensor& field, const at::Tensor& patch) { patch.copy_(field); });
  if (padding == Padding::kPlanet) continue_planet(fields, pixels, grid);
  return patches.view({fields.size(0), grid.num_patches(), grid.num_features()});
}

at::Tensor unpatchify(const at::Tensor& patches, const PatchGrid& grid) {
  const int64_t num_samples = patches.size(0);
  const at::Tensor pixels =
      patches.view({num_samples, grid.rows(), grid.columns(), grid.patch_height, grid.patch_width, grid.channels})
          .permute({0, 5, 1, 3, 2, 4});
  at::Tensor fields = at::empty({num_samples, grid.channels, grid.height, grid.width}, patches.options());
  for_regions(fields, pixels, grid, [](const at::Tensor& field, const at::Tensor& patch) { field.copy_(patch); });
  return fields;
}

}  // namespace vit_hybrid::kernels
