// ImagePainter: small images of classes that are told apart by shape and texture, each a function of its number.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace vit_hybrid::data
