// Painted images: what they depend on, and that classes can be told apart.
#include <doctest/doctest.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "data/generate/generate_images.h"

using namespace vit_hybrid::data;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes painted(const ImagePainter& painter, int64_t size, int64_t image) {
  Bytes bytes(static_cast<size_t>(size * size * 3));
  painter.paint(image, bytes.data());
  return bytes;
}

// Share of the bytes that differ by more than noise does.
double difference(const Bytes& a, const Bytes& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    count += std::abs(int{a[i]} - int{b[i]}) > 40 ? 1 : 0;
  }
  return static_cast<double>(count) / static_cast<double>(a.size());
}

}  // namespace

TEST_CASE("images: an image is a function of the seed and its number") {
  const ImagePainter painter(32, 10, 7), same(32, 10, 7), other(32, 10, 8);
  CHECK(painted(painter, 32, 12) == painted(same, 32, 12));
  CHECK(painted(painter, 32, 12) != painted(other, 32, 12));
  CHECK(difference(painted(painter, 32, 12), painted(painter, 32, 22)) > 0.2);  // one class, two images
}

TEST_CASE("images: classes are equally frequent and have names of their own") {
  const ImagePainter painter(16, kMaxImageClasses, 0);
  std::vector<int> count(static_cast<size_t>(kMaxImageClasses), 0);
  for (int64_t image = 0; image < 3 * kMaxImageClasses; ++image) {
    ++count[static_cast<size_t>(painter.label(image))];
  }
  CHECK(count == std::vector<int>(static_cast<size_t>(kMaxImageClasses), 3));
  std::set<std::string> names;
  for (int64_t label = 0; label < kMaxImageClasses; ++label) {
    names.insert(ImagePainter::class_name(label));
  }
  CHECK(std::ssize(names) == kMaxImageClasses);
  CHECK(ImagePainter::class_name(0) == "plain disc");
  CHECK(ImagePainter::class_name(kMaxImageClasses - 1) == "circled crescent");
}

TEST_CASE("images: another class makes another picture of the same scene") {
  // Image n has the class n % classes, and the same place, colours and background whatever the number of classes.
  const int64_t size = 64, image = 29;
  std::vector<Bytes> pictures;
  for (int64_t classes = 2; classes <= kMaxImageClasses; ++classes) {
    const ImagePainter painter(size, classes, 3);
    const int64_t label = painter.label(image);
    for (int64_t before = 2; before < classes; ++before) {
      const bool same = ImagePainter(size, before, 3).label(image) == label;
      const double share = difference(pictures[static_cast<size_t>(before - 2)], painted(painter, size, image));
      INFO(classes, " and ", before, " classes");
      CHECK((same ? share == 0.0 : share > 0.01));
    }
    pictures.push_back(painted(painter, size, image));
  }
}
