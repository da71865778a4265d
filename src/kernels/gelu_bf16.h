// GELU of bf16 rows by the instructions of AVX512-BF16: only where has_avx512_bf16(). epilogue.h has the contracts.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "src/kernels/gelu_kind.h"

namespace vit_hybrid::kernels::bf16_unit {

void gelu_row(const c10::BFloat16* z, c10::BFloat16* y, int64_t count, GeluKind kind);
void gelu_backward_rows(const c10::BFloat16* dy, const c10::BFloat16* z, c10::BFloat16* dz, int64_t num_rows,
                        float* sums, int64_t count, GeluKind kind);
void store_gelu_row(const float* sums, const float* bias, c10::BFloat16* y, int64_t count, GeluKind kind);

}  // namespace vit_hybrid::kernels::bf16_unit
