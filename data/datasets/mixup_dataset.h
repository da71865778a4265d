// MixupDataset: each training image mixed with another one, and its class with the other's.
#pragma once

#include <memory>

#include "data/datasets/dataset.h"

namespace vit_hybrid::data {

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
  at::ScalarType target_type() const override { return at::kFloat; }
  std::vector<std::string> channel_names() const override { return images_->channel_names(); }
  Batch read(std::span<const int64_t> samples, Parts parts, int64_t epoch) const override;
  bool background_reads() const override { return images_->background_reads(); }

 private:
  std::unique_ptr<Dataset> images_;
  MixupOptions options_;
};

}  // namespace vit_hybrid::data
