// Patches and fields.
#include "src/kernels/patch_grid.h"

#include <cmath>

#include "src/base/error.h"
#include "src/base/text.h"

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

}  // namespace vit_hybrid::kernels
