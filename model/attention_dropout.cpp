// Draws the masks of attention dropout.
#include "model/attention_dropout.h"

namespace vit_hybrid::model {

AttentionDropout::AttentionDropout(const DropKey& key, const tensor::StepContext& context, int64_t first_head,
                                   int64_t num_tokens)
    : stream_(key.stream(Purpose::kAttentionDropout, context)),
      threshold_(context.training() ? drop_threshold(key.rate) : 0),
      kept_scale_(1.0 / (1.0 - key.rate)),
      first_head_(first_head),
      num_tokens_(num_tokens),
      samples_(context.samples) {}

void AttentionDropout::fill_row(int64_t row, int64_t head, int64_t query, Range keys, uint8_t* keep) const {
  const int64_t first = ((first_head_ + head) * num_tokens_ + query) * num_tokens_ + keys.begin;
  const auto sample = static_cast<uint64_t>(samples_.at(static_cast<size_t>(row)));
  fill_keep_row(stream_, threshold_, sample, static_cast<uint64_t>(first), keys.size(), keep);
}

}  // namespace vit_hybrid::model
