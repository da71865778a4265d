// Generation of labelled image data sets: one HDF5 file for training, one for validation.
#pragma once

#include <cstdint>
#include <string>

#include "data/generate/generate_weather.h"

namespace vit_hybrid::data {

/// Options of `vit_hybrid data generate` for images.
struct GenerateImagesOptions {
  std::string out;              ///< folder to be made; it gets train.h5 and valid.h5
  int64_t train_images = 2000;  ///< 1 to 100,000,000
  int64_t valid_images = 500;   ///< 0 to 100,000,000; 0: no valid.h5
  int64_t size = 64;            ///< pixels of a side, 8 to 1024
  int64_t classes = 10;         ///< 2 to 30
  uint64_t seed = 0;            ///< an image is a function of the seed, its number, its size and the number of classes
  bool overwrite = false;       ///< replace files of the same names in a folder that is not empty
};

/// Error(kUsage) with one line for each option out of its range; `out` is not looked at.
void check_options(const GenerateImagesOptions& options);

/// Writes OUT/train.h5 and OUT/valid.h5 with the datasets `images` (n, size, size, 3), uint8, and `labels` (n), int64;
/// the attribute `classes` of `labels` names the classes, separated by commas. Every rank paints and writes its part of
/// each file. Validation images continue the numbers of training images. `progress` (may be empty) is called on rank 0.
/// Collective over `group`, with the same options on all ranks; errors are agreed: Error(kUsage), Error(kCannotCreate),
/// Error(kIo).
void generate_images(const GenerateImagesOptions& options, const comm::MpiGroup& group,
                     const GenerationProgress& progress = {});

}  // namespace vit_hybrid::data
