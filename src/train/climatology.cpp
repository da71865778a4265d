// The climatology: where its file is, and its normalisation.
#include "src/train/climatology.h"

#include <ATen/ops/empty_like.h>
#include <unistd.h>

#include <string>

#include "data/datasets/npy.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

at::Tensor read_climatology(const DataConfig& config, const comm::MpiGroup& group, const std::vector<int64_t>& shape,
                            const data::Normalization& normalization) {
  const std::string& path = config.time_means;
  const std::string found = !path.empty()          ? path
                            : config.stats.empty() ? std::string()
                                                   : config.stats + "/time_means.npy";
  const bool must_exist = !path.empty();
  const int64_t exists = group.min(!found.empty() && access(found.c_str(), R_OK) == 0 ? 1 : 0);
  if (found.empty() || (exists == 0 && !must_exist)) {
    return {};
  }
  return comm::agreed(group, [&] {
    at::Tensor means = data::read_npy(found);
    if (means.numel() != shape[0] * shape[1] * shape[2]) {
      throw Error(ErrorClass::kBadData,
                  str(found, ": shape (", join(means.sizes()), "), expected (1, ", join(shape), ")"));
    }
    means = means.reshape(shape).to(at::kFloat);
    const at::Tensor normalised = at::empty_like(means);
    data::normalize_field(means.contiguous(), normalization, normalised);
    return normalised;
  });
}

}  // namespace vit_hybrid::train
