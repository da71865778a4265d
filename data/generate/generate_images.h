// Labelled image data sets of painted shapes (ImagePainter): in memory, or one HDF5 file for training and one for
// validation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/datasets/augmentation.h"
#include "data/datasets/dataset.h"
#include "data/generate/generate_weather.h"
#include "data/loading/normalize.h"
#include "data/loading/tensor_pool.h"
#include "src/base/random.h"

namespace vit_hybrid::data {

inline constexpr int64_t kNumImageShapes = 6;
inline constexpr int64_t kNumImageTextures = 5;
inline constexpr int64_t kMaxImageClasses = kNumImageShapes * kNumImageTextures;

/// A figure of one of six shapes, filled with one of five textures, before a background of soft waves. Shape and
/// texture are the class; place, size, angle, colours, background and noise are drawn anew for each image and say
/// nothing of it.
class ImagePainter {
 public:
  /// Images of `size` x `size` pixels in `num_classes` (1 to kMaxImageClasses) classes.
  ImagePainter(int64_t size, int64_t num_classes, uint64_t seed);

  /// Class of an image: they follow one another, so that classes are equally frequent.
  int64_t label(int64_t image) const { return image % num_classes_; }
  /// Paints image `image` as [size, size, 3] bytes, red, green, blue.
  void paint(int64_t image, uint8_t* to) const;
  /// "plain disc", "striped ring", ...
  static std::string class_name(int64_t label);

 private:
  int64_t size_;
  int64_t num_classes_;
  uint64_t seed_;
};

/// Which images: those that generate_images() would write, of the same numbers.
struct PaintedImages {
  int64_t first = 0;  ///< number of the first one
  int64_t count = 1;
  int64_t size = 32;    ///< pixels of a side
  int64_t classes = 6;  ///< 1 to kMaxImageClasses
  uint64_t seed = 0;
};

/// Sample s is image `first` + s, [3, size, size], normalized; the target is its class. The same in every epoch. Takes
/// no memory but for batches.
class PaintedDataset : public Dataset {
 public:
  explicit PaintedDataset(const PaintedImages& images);
  // Batches point to its scaling.
  PaintedDataset(const PaintedDataset&) = delete;
  PaintedDataset& operator=(const PaintedDataset&) = delete;

  int64_t size() const override { return images_.count; }
  std::vector<int64_t> input_shape() const override { return {3, images_.size, images_.size}; }
  std::vector<int64_t> target_shape() const override { return {}; }
  std::vector<std::string> channel_names() const override { return {}; }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return true; }
  const StoredScaling* stored_scaling() const override { return &scaling_; }

  /// Names of the classes with commas between them.
  std::string class_names() const;
  const StoredScaling& scaling() const { return scaling_; }

 private:
  at::Tensor paint(std::span<const int64_t> samples, const Parts& parts) const;

  PaintedImages images_;
  ImagePainter painter_;
  StoredScaling scaling_;
  BatchNormalizer normalizer_;
  mutable TensorPool pool_;
};

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
