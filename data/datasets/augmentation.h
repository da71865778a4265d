// Augmentation of images by keyed draws: crops, flips, and mixtures of two.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "data/datasets/dataset.h"
#include "src/base/random.h"

namespace vit_hybrid::data {

/// What a pixel at the edge of a crop is made of: of the crop alone, or also of what lies around it in the image.
enum class CropEdge {
  kCrop,   ///< crop, then resize
  kImage,  ///< resize, then crop
};

/// Where a crop lies in the stored image (pixels), and whether it is mirrored left to right.
struct Crop {
  double top = 0.0;
  double left = 0.0;
  double height = 0.0;
  double width = 0.0;
  bool flip = false;
  CropEdge edge = CropEdge::kCrop;
};

/// Random resized crop: area a share of the image uniform in (0.08, 1), aspect ratio log-uniform in (3/4, 4/3), place
/// uniform (C. Szegedy et al., "Going deeper with convolutions", 2015, section 6); flipped with probability 1/2. The
/// draws come from `stream` alone, which is keyed by (seed, epoch, sample).
Crop random_resized_crop(const RandomStream& stream, int64_t height, int64_t width);

/// The crop that is the centre `size` x `size` of the image resized to `resized` x `resized`.
Crop center_crop(int64_t height, int64_t width, int64_t resized, int64_t size);

/// Mean and standard deviation of the channels of a pixel scaled to 0 .. 1.
struct ColorStatistics {
  std::array<float, 3> mean{0.485f, 0.456f, 0.406f};
  std::array<float, 3> std{0.229f, 0.224f, 0.225f};
};

enum class Interpolation { kBilinear, kBicubic };

/// Resizes the crop of `image` [height, width, 3] into `pixels` [size, size, 3], each rounded to the nearest byte as
/// Pillow does, and antialiased as Pillow and LibTorch (antialias = true) do it: along each axis an output pixel is the
/// mean of the pixels under a filter around its centre, weighted by the filter's values at their centres. Bilinear: the
/// triangle |x| < 1; bicubic: R. Keys, "Cubic convolution interpolation", IEEE TASSP 29 (1981), with a = -1/2, |x| < 2;
/// both as much wider as the image shrinks.
void resize_crop(std::span<const uint8_t> image, int64_t height, int64_t width, const Crop& crop, int64_t size,
                 std::span<uint8_t> pixels, Interpolation interpolation = Interpolation::kBilinear);

struct MixupOptions {
  double alpha = 0.2;       ///< of the Beta distribution of the share; (0, 2]
  int64_t num_samples = 0;  ///< partners are among the first of the data set
  int64_t num_classes = 1000;
  uint64_t seed = 0;
};

/// What sample `sample` is mixed with in an epoch: share x itself + (1 - share) x partner.
struct Mix {
  int64_t partner = 0;
  double share = 1.0;  ///< drawn from Beta(alpha, alpha)
};

/// A function of (options, epoch, sample) alone, so the same in every layout.
Mix draw_mix(const MixupOptions& options, int64_t epoch, int64_t sample);

/// H. Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018, section 2. Reads two samples for each;
/// targets are probabilities [num_classes], float32.
class MixupDataset : public Dataset {
 public:
  /// Of a data set whose targets are class numbers.
  MixupDataset(std::unique_ptr<Dataset> images, const MixupOptions& options);

  int64_t size() const override { return images_->size(); }
  std::vector<int64_t> input_shape() const override { return images_->input_shape(); }
  std::vector<int64_t> target_shape() const override { return {options_.num_classes}; }
  std::vector<std::string> channel_names() const override { return images_->channel_names(); }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return images_->background_reads(); }

 private:
  std::unique_ptr<Dataset> images_;
  MixupOptions options_;
};

}  // namespace vit_hybrid::data
