// ImageDataset: labelled images from one HDF5 file a split.
#pragma once

#include <string>
#include <vector>

#include "data/datasets/augmentation.h"
#include "data/datasets/dataset.h"
#include "data/loading/normalize.h"
#include "data/loading/tensor_pool.h"
#include "data/reading/posix_file.h"
#include "data/reading/row_source.h"

namespace vit_hybrid::data {

enum class ImageUse {
  kTraining,    ///< random resized crop and flip, keyed by (seed, epoch, sample)
  kEvaluation,  ///< centre crop of the image resized to ImageOptions::resized
};

/// Side that an image is resized to before its centre of `image_size` is taken, where nothing else is asked for: 256 at
/// 224, and in the same ratio (8 : 7, rounded) at any other size.
int64_t usual_resized(int64_t image_size);

struct ImageOptions {
  std::string path;
  std::string images = "images";  ///< (n, height, width, 3) uint8
  std::string labels = "labels";  ///< (n) integer
  bool labels_needed = true;      ///< false: a file may lack them, see has_labels()
  ImageUse use = ImageUse::kTraining;
  int64_t image_size = 224;  ///< height and width of what is read
  int64_t resized = 0;       ///< both sides, for kEvaluation; at least image_size; 0: usual_resized()
  int64_t num_classes = 0;   ///< labels must be below; 0: not checked
  /// Names of the classes, with commas between them, as a model numbers them: labels of a file that names its classes
  /// are matched by name. Empty: they are as the file has them.
  std::string class_names = {};
  uint64_t seed = 0;
  ColorStatistics statistics = {};
  Interpolation interpolation = Interpolation::kBilinear;
  IoMode io = IoMode::kAuto;
  MpiIoHints mpiio_hints = {};    ///< for collective reading
  std::string stage_folder = {};  ///< of each node, where what is read is copied first; empty: nothing is copied
  int64_t stage_samples = 0;      ///< only what the first ones need is copied; 0: all
};

/// Inputs [3, image_size, image_size], normalized; targets are class numbers.
class ImageDataset : public Dataset {
 public:
  /// Collective over `group` (which outlives the data set), with the same options on all ranks; errors are agreed:
  /// Error(kMissingInput), Error(kBadData), Error(kUsage).
  ImageDataset(const comm::MpiGroup& group, const ImageOptions& options);
  // Batches point to its scaling.
  ImageDataset(const ImageDataset&) = delete;
  ImageDataset& operator=(const ImageDataset&) = delete;

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  std::vector<int64_t> input_shape() const override { return {3, options_.image_size, options_.image_size}; }
  std::vector<int64_t> target_shape() const override { return {}; }
  std::vector<std::string> channel_names() const override { return {}; }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return source_.background_reads(); }
  const StoredScaling* stored_scaling() const override { return &scaling_; }

  /// Without labels the targets are class 0 and say nothing.
  bool has_labels() const { return has_labels_; }
  /// Names of the classes with commas between them, in the order of the labels' numbers: those of the options where the
  /// file has any, else those of its labels' attribute `classes`; empty without one.
  const std::string& class_names() const { return class_names_; }
  const std::string& path() const { return options_.path; }
  const ColorStatistics& statistics() const { return options_.statistics; }
  /// How the bytes are read, for the log.
  const std::string& io_text() const { return source_.mode_text(); }

 private:
  void match_classes();
  void check_labels() const;
  Crop crop(int64_t sample, int64_t epoch) const;
  at::Tensor read_images(std::span<const int64_t> samples, int64_t epoch, const Parts& parts) const;

  ImageOptions options_;
  StoredScaling scaling_;
  BatchNormalizer normalizer_;
  RowSource source_;
  bool has_labels_ = true;
  std::vector<int64_t> labels_;
  std::string class_names_;
  mutable TensorPool pool_;
};

/// Error(kBadData) unless the layout is that of images (n, height, width, 3), bytes and not empty; `where` names file
/// and dataset.
void require_images(const ArrayLayout& layout, const std::string& where);

/// Throws Error(kBadData) where both name their classes and the numbers mean different ones, which happens where a
/// class folder is missing in one of two that were converted.
void check_same_classes(const ImageDataset& a, const ImageDataset& b);

}  // namespace vit_hybrid::data
