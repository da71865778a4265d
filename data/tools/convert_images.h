// An image folder as one HDF5 file of images and labels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/datasets/augmentation.h"
#include "data/tools/decoded_image.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

enum class ConvertResize {
  kShorter,  ///< the shorter side becomes `size`, the centre size x size is kept
  kBoth,     ///< both sides become `size`
};

enum class Orientation { kApply, kIgnore };

struct ConvertOptions {
  std::vector<std::string> inputs;  ///< one folder, with a subfolder for each class
  std::string out;                  ///< the HDF5 file
  int64_t size = 256;
  ConvertResize resize = ConvertResize::kShorter;
  Interpolation interpolation = Interpolation::kBilinear;
  Orientation orientation = Orientation::kApply;
  uint64_t seed = 0;  ///< of the order of the images
  bool skip_bad = false;
  bool overwrite = false;
};

struct ConvertedImages {
  int64_t num_images = 0;
  int64_t num_classes = 0;
  int64_t num_ignored = 0;       ///< files that are no images by their names
  int64_t num_stray = 0;         ///< images beside the classes' folders, which are not taken
  std::vector<std::string> bad;  ///< one line for each file that was left out
};

/// The part of an image of this size that becomes the stored one.
Crop stored_crop(int64_t height, int64_t width, int64_t size, ConvertResize resize);

/// Resizes into `to` [size, size, 3].
void store_image(const DecodedImage& image, const ConvertOptions& options, std::span<uint8_t> to);

/// Writes `images` (n, size, size, 3) uint8 and `labels` (n) int64, whose attribute `classes` names the classes (where
/// they do not fit into an attribute, the dataset `class_names` of bytes does), in an order that the seed alone
/// decides. Every rank decodes and writes its part; the file does not depend on the number of ranks. A file that cannot
/// be decoded is an error, or is left out and counted. Collective over `group`; errors are agreed.
ConvertedImages convert_images(const comm::MpiGroup& group, const ConvertOptions& options);

}  // namespace vit_hybrid::data
