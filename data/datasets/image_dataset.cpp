// Opening, checking and reading of labelled images.
#include "data/datasets/image_dataset.h"

#include <algorithm>

#include "data/datasets/class_names.h"
#include "data/datasets/coordinates.h"
#include "data/hdf5/hdf5_layout.h"
#include "data/hdf5/hdf5_rows.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
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

// Whether there are labels to be read.
bool find_labels(const comm::MpiGroup& group, const ImageOptions& options) {
  bool is_there = true;
  comm::agreed_on_rank_0(group,
                         [&] { is_there = options.labels_needed || has_hdf5_object(options.path, options.labels); });
  return group.min(is_there ? 1 : 0) == 1;
}

std::string read_class_names(const comm::MpiGroup& group, const ImageOptions& options) {
  std::string names;
  comm::agreed_on_rank_0(group, [&] { names = inspect_dataset(options.path, options.labels, "classes").attribute; });
  return group.broadcast(names, 0);
}

void check_resized(const ImageOptions& options) {
  if (options.resized != 0 && options.resized < options.image_size) {
    throw Error(ErrorClass::kUsage,
                str("images resized to ", options.resized, " have no centre of ", options.image_size, " pixels"),
                str("allowed: --valid-resize auto, or at least ", options.image_size));
  }
}

}  // namespace

int64_t usual_resized(int64_t image_size) {
  return (8 * image_size + 3) / 7;  // never half way between two: 7 is odd
}

ImageDataset::ImageDataset(const comm::MpiGroup& group, const ImageOptions& options)
    : options_(options),
      scaling_{{options.statistics.mean.begin(), options.statistics.mean.end()},
               {options.statistics.std.begin(), options.statistics.std.end()}},
      normalizer_(scaling_, at::kCPU),
      source_(group, {options.path}, options.images, "", options.io, options.mpiio_hints) {
  const MemoryScope scope(MemoryClass::kData);
  check_resized(options_);
  comm::agreed(group, [&] {
    require_images(source_.files().front().layout, str(options_.path, ": dataset '", options_.images, "'"));
  });
  has_labels_ = find_labels(group, options_);
  if (has_labels_) {
    labels_ = read_labels(group, options_);
    class_names_ = read_class_names(group, options_);
  } else {
    labels_.assign(static_cast<size_t>(source_.files().front().layout.num_rows()), 0);
  }
  comm::agreed(group, [&] {
    match_classes();
    check_labels();
  });
  if (!options.stage_folder.empty()) {
    source_.stage(options.stage_folder, {options.stage_samples > 0 ? options.stage_samples : size()});
  }
}

void require_images(const ArrayLayout& layout, const std::string& where) {
  require_colours_last(layout.shape, where);
  const bool is_image = layout.shape.size() == 4 && layout.shape.back() == 3 && layout.num_rows() > 0 &&
                        layout.row_bytes() > 0 && layout.type == at::kByte;
  if (!is_image) {
    throw Error(ErrorClass::kBadData, str(where, " is ", c10::toString(layout.type), " (", join(layout.shape), ")"),
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
        options_.num_classes > 0 ? str("the model's classes are 0 .. ", options_.num_classes - 1,
                                       ": give data of these, or a model with more")
                                 : "classes are 0, 1, ...");
  }
}

// Labels become the numbers that the classes of these names have in the options.
void ImageDataset::match_classes() {
  if (options_.class_names.empty() || class_names_.empty() || class_names_ == options_.class_names) {
    return;
  }
  const std::vector<int64_t> numbers = class_numbers(class_names_, options_.class_names, options_.path);
  for (int64_t& label : labels_) {
    if (label < 0 || label >= std::ssize(numbers)) {
      throw Error(ErrorClass::kBadData,
                  str(options_.path, ": dataset '", options_.labels, "' holds the class ", label, ", but names ",
                      numbers.size(), " classes"),
                  str("classes are 0 .. ", std::ssize(numbers) - 1, ", or its attribute 'classes' lacks names"));
    }
    label = numbers[static_cast<size_t>(label)];
  }
  class_names_ = options_.class_names;
}

Crop ImageDataset::crop(int64_t sample, int64_t epoch) const {
  const std::vector<int64_t>& shape = source_.files().front().layout.shape;
  if (options_.use == ImageUse::kEvaluation) {
    const int64_t resized = options_.resized > 0 ? options_.resized : usual_resized(options_.image_size);
    return center_crop(shape[1], shape[2], resized, options_.image_size);
  }
  const RandomStream stream(options_.seed, Purpose::kAugmentation, static_cast<uint64_t>(epoch),
                            static_cast<uint64_t>(sample));
  return random_resized_crop(stream, shape[1], shape[2]);
}

at::Tensor ImageDataset::read_images(std::span<const int64_t> samples, int64_t epoch, const Parts& parts) const {
  const ArrayLayout& layout = source_.files().front().layout;
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
  const bool as_stored = parts.form == ValueForm::kStored;
  const at::Tensor pixels =
      pool_.take({num_samples, out, out, 3}, at::kByte, as_stored ? parts.memory : HostMemory::kPageable);
  const auto size = static_cast<size_t>(3 * out * out);
  for (size_t i = 0; i < samples.size(); ++i) {
    resize_crop({static_cast<const uint8_t*>(rows[i].to), row_bytes}, layout.shape[1], layout.shape[2],
                crop(samples[i], epoch), out, {pixels.data_ptr<uint8_t>() + i * size, size}, options_.interpolation);
  }
  if (as_stored) {
    return pixels;
  }
  const at::Tensor images = pool_.take({num_samples, 3, out, out}, at::kFloat, parts.memory);
  normalizer_.normalize_into(pixels, images);
  return images;
}

Batch ImageDataset::read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const {
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  if (parts.input) {
    batch.inputs = read_images(samples, epoch, parts);
    batch.scaling = parts.form == ValueForm::kStored ? &scaling_ : nullptr;
  } else {
    source_.read({});  // the others' reading may be collective
  }
  if (parts.target) {
    batch.targets = host_tensor({static_cast<int64_t>(samples.size())}, at::kLong, parts.memory);
    std::transform(samples.begin(), samples.end(), batch.targets.data_ptr<int64_t>(),
                   [&](int64_t sample) { return labels_[static_cast<size_t>(sample)]; });
  }
  return batch;
}

void check_same_classes(const ImageDataset& a, const ImageDataset& b) {
  const std::string difference = class_difference(a.class_names(), a.path(), b.class_names(), b.path());
  if (!difference.empty()) {
    throw Error(ErrorClass::kBadData, difference,
                str("their ", split_names(a.class_names()).size(), " and ", split_names(b.class_names()).size(),
                    " classes must be the same, in the same order"));
  }
}

}  // namespace vit_hybrid::data
