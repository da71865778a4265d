// LrSchedule: the learning rate of an iteration as a pure function.
#pragma once

#include <cstdint>

namespace vit_hybrid::train {

/// Learning rate by iteration. kCosine: lr0/2 (1 + cos(pi t/T)) (I. Loshchilov, F. Hutter, SGDR, ICLR 2017, eq. 5,
/// one cycle), after a linear warm-up of `warmup` iterations from 0, if any; t counts all iterations, as the reference
/// workload does. kOneCycle: L. N. Smith, N. Topin, "Super-convergence", 2018, in PyTorch's form: cosine from lr0/25 up
/// to lr0 over `warmup` iterations (30 % of the total where it is 0), then cosine down to lr0/25/10^4.
struct LrSchedule {
  enum class Kind { kConstant, kCosine, kOneCycle };
  Kind kind = Kind::kCosine;
  double base = 1e-3;
  int64_t warmup = 0;
  int64_t total = 1;

  /// Learning rate of iteration `t`, t = 0 for the first; beyond `total` it stays at the last value.
  double at(int64_t t) const;
};

}  // namespace vit_hybrid::train
