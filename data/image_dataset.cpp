// Opening, checking and reading of labelled images.
#include "data/image_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "data/hdf5_rows.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi_group.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// Labels are small (8 bytes each), so rank 0 reads all of them for all.
std::vector<int64_t> read_labels(const comm::MpiGroup& group, const ImageOptions& options) {
  std::vector<int64_t> labels;
  comm::agreed_on_rank_0(group, [&] {
    const at::Tensor values = read_whole_dataset(options.path, options.labels);
    if (values.dim() != 1 || !c10::isIntegralType(values.scalar_type(), /*includeBool=*/false)) {
      throw Error(ErrorClass::kBadData,
                  str(options.path, ": dataset '", options.labels, "' is ", c10::toString(values.scalar_type()), " of ",
                      values.dim(), " dims"),
                  "needed are integers, one for each image");
    }
    const at::Tensor wide = values.to(at::kLong);
    labels.assign(wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel());
  });
  auto count = static_cast<int64_t>(labels.size());
  group.broadcast(&count, sizeof(count), 0);
  labels.resize(static_cast<size_t>(count));
  group.broadcast(labels.data(), count * static_cast<int64_t>(sizeof(int64_t)), 0);
  return labels;
}

}  // namespace

ImageDataset::ImageDataset(const comm::MpiGroup& group, const ImageOptions& options)
    : options_(options), source_(group, {options.path}, options.images, "", options.io, options.mpiio_hints) {
  const MemoryScope scope(MemoryClass::kData);
  comm::agreed(group, [&] { check_images(); });
  labels_ = read_labels(group, options_);
  comm::agreed(group, [&] { check_labels(); });
  if (!options.stage_folder.empty()) {
    source_.stage(options.stage_folder, {options.stage_samples > 0 ? options.stage_samples : size()});
  }
}

void ImageDataset::check_images() const {
  const Hdf5Layout& layout = source_.files().front().layout;
  const bool is_image = layout.shape.size() == 4 && layout.shape.back() == 3 && layout.num_rows() > 0 &&
                        layout.row_bytes() > 0 && layout.type == at::kByte;
  if (!is_image) {
    throw Error(ErrorClass::kBadData,
                str(options_.path, ": dataset '", options_.images, "' is ", c10::toString(layout.type), " (",
                    join(layout.shape), ")"),
                "needed is uint8 (number, height, width, 3)");
  }
}

void ImageDataset::check_labels() const {
  const int64_t num_images = source_.files().front().layout.num_rows();
  if (size() != num_images) {
    throw Error(ErrorClass::kBadData, str(options_.path, ": dataset '", options_.labels, "' has ", size(),
                                          " values for ", num_images, " images"));
  }
  const auto bad = std::find_if(labels_.begin(), labels_.end(), [&](int64_t label) {
    return label < 0 || (options_.num_classes > 0 && label >= options_.num_classes);
  });
  if (bad != labels_.end()) {
    throw Error(
        ErrorClass::kBadData,
        str(options_.path, ": dataset '", options_.labels, "' holds the class ", *bad, " at ", bad - labels_.begin()),
        options_.num_classes > 0 ? str("classes are 0 .. ", options_.num_classes - 1) : "classes are 0, 1, ...");
  }
}

Crop ImageDataset::crop(int64_t sample, int64_t epoch) const {
  const std::vector<int64_t>& shape = source_.files().front().layout.shape;
  if (options_.use == ImageUse::kEvaluation) {
    return center_crop(shape[1], shape[2], std::max(options_.resized, options_.image_size), options_.image_size);
  }
  const RandomStream stream(options_.seed, Purpose::kAugmentation, static_cast<uint64_t>(epoch),
                            static_cast<uint64_t>(sample));
  return random_resized_crop(stream, shape[1], shape[2]);
}

at::Tensor ImageDataset::read_images(std::span<const int64_t> samples, int64_t epoch) const {
  const Hdf5Layout& layout = source_.files().front().layout;
  const auto row_bytes = static_cast<size_t>(layout.row_bytes());
  const auto num_samples = static_cast<int64_t>(samples.size());
  const at::Tensor stored = pool_.take({num_samples, layout.row_bytes()}, at::kByte);
  std::vector<RowRead> rows;
  for (const int64_t sample : samples) {
    VH_ASSERT(sample >= 0 && sample < size(), str("sample ", sample, " of ", size()));
    rows.push_back({0, sample, stored.data_ptr<uint8_t>() + rows.size() * row_bytes});
  }
  source_.read(rows);

  const int64_t out = options_.image_size;
  at::Tensor images = pool_.take({num_samples, 3, out, out}, at::kFloat);
  const auto plane = static_cast<size_t>(3 * out * out);
  for (size_t i = 0; i < samples.size(); ++i) {
    resize_crop({static_cast<const uint8_t*>(rows[i].to), row_bytes}, layout.shape[1], layout.shape[2],
                crop(samples[i], epoch), out, options_.statistics, {images.data_ptr<float>() + i * plane, plane},
                options_.interpolation);
  }
  return images;
}

Batch ImageDataset::read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const {
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  if (parts.input) {
    batch.inputs = read_images(samples, epoch);
  } else {
    source_.read({});  // the others' reading may be collective
  }
  if (parts.target) {
    batch.targets = at::empty({static_cast<int64_t>(samples.size())}, at::kLong);
    std::transform(samples.begin(), samples.end(), batch.targets.data_ptr<int64_t>(),
                   [&](int64_t sample) { return labels_[static_cast<size_t>(sample)]; });
  }
  return batch;
}

}  // namespace vit_hybrid::data
