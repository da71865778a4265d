// PatchGrid: a field or image as patches, of which the last ones of a side may be cut.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace vit_hybrid::kernels {

/// A field [channels, height, width] as patches row by row. Where a side is no multiple of the patch's, the last
/// patches of that side are cut: they lie partly south or east of the field, and those pixels are padded.
struct PatchGrid {
  int64_t height = 0;
  int64_t width = 0;
  int64_t patch_height = 0;
  int64_t patch_width = 0;
  int64_t channels = 0;

  int64_t rows() const { return (height + patch_height - 1) / patch_height; }
  int64_t columns() const { return (width + patch_width - 1) / patch_width; }
  int64_t num_patches() const { return rows() * columns(); }
  int64_t patch_pixels() const { return patch_height * patch_width; }
  int64_t num_features() const { return patch_pixels() * channels; }
  bool is_cut() const { return height % patch_height != 0 || width % patch_width != 0; }
  /// The share of the pixels of all patches that is padded.
  double padded_share() const {
    return 1.0 - static_cast<double>(height * width) / static_cast<double>(num_patches() * patch_pixels());
  }
};

/// What the pixels beyond the field hold.
enum class Padding {
  kZero,    ///< of images
  kPlanet,  ///< what follows in the east is the west's first columns, in the south the last row again
};

/// Fields [B, C, H, W] as patches [B, P, C ph pw], a copy: the features of a patch over (channel, row, column), as the
/// kernel of a convolution has them. A patch is at most as large as the field.
at::Tensor patchify(const at::Tensor& fields, const PatchGrid& grid, Padding padding);

/// Patches [B, P, ph pw C], the features of each over (row, column, channel), as fields [B, C, H, W], a copy; padded
/// pixels are left out.
at::Tensor unpatchify(const at::Tensor& patches, const PatchGrid& grid);

}  // namespace vit_hybrid::kernels
