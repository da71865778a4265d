// Names of the optimizers.
#include "parallel/zero/optimizer_options.h"

#include "src/base/error.h"

namespace vit_hybrid::zero {

std::string optimizer_name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kLamb:
      return "lamb";
    case OptimizerKind::kLars:
      return "lars";
  }
  VH_ASSERT(false, "no such optimizer");
}

}  // namespace vit_hybrid::zero
