// Images painted into batches.
#include "data/generate/painted_dataset.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

StoredScaling usual_scaling() {
  const ColorStatistics usual;
  return {{usual.mean.begin(), usual.mean.end()}, {usual.std.begin(), usual.std.end()}};
}

}  // namespace

PaintedDataset::PaintedDataset(const PaintedImages& images)
    : images_(images),
      painter_(images.size, images.classes, images.seed),
      scaling_(usual_scaling()),
      normalizer_(scaling_, at::kCPU) {
  VH_ASSERT(images.count >= 1 && images.size >= 1 && images.classes >= 1 && images.classes <= kMaxImageClasses,
            str(images.count, " images of ", images.size, " pixels in ", images.classes, " classes"));
}

std::string PaintedDataset::class_names() const {
  std::vector<std::string> names;
  for (int64_t label = 0; label < images_.classes; ++label) {
    names.push_back(ImagePainter::class_name(label));
  }
  return join(names, ",");
}

at::Tensor PaintedDataset::paint(std::span<const int64_t> samples, const Parts& parts) const {
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t side = images_.size;
  const bool as_stored = parts.form == ValueForm::kStored;
  const at::Tensor pixels =
      pool_.take({count, side, side, 3}, at::kByte, as_stored ? parts.memory : HostMemory::kPageable);
  auto* to = pixels.mutable_data_ptr<uint8_t>();
  for (const int64_t sample : samples) {
    VH_ASSERT(sample >= 0 && sample < size(), str("sample ", sample, " of ", size()));
    painter_.paint(images_.first + sample, to);
    to += 3 * side * side;
  }
  if (as_stored) {
    return pixels;
  }
  const at::Tensor images = pool_.take({count, 3, side, side}, at::kFloat, parts.memory);
  normalizer_.normalize_into(pixels, images);
  return images;
}

Batch PaintedDataset::read(std::span<const int64_t> samples, Parts parts, int64_t) const {
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  if (parts.input) {
    batch.inputs = paint(samples, parts);
    batch.scaling = parts.form == ValueForm::kStored ? &scaling_ : nullptr;
  }
  if (parts.target) {
    batch.targets = host_tensor({static_cast<int64_t>(samples.size())}, at::kLong, parts.memory);
    std::transform(samples.begin(), samples.end(), batch.targets.mutable_data_ptr<int64_t>(),
                   [&](int64_t sample) { return painter_.label(images_.first + sample); });
  }
  return batch;
}

}  // namespace vit_hybrid::data
