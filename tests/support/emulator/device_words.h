// The words of CUDA C++ that this project's kernels use, for the emulator: included before all else in a .cu file that
// launches_to_calls.py has made C++ of.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/support/emulator/emulator.h"

// NOLINTBEGIN(bugprone-reserved-identifier, cert-dcl*, cppcoreguidelines-macro-usage)
#define VH_EMULATES_KERNELS
#define __global__
#define __device__
#define __host__
#define __shared__ static  // a block runs after the other
#define __launch_bounds__(...)

#define threadIdx (::vit_hybrid::testing::emulated_thread().thread)
#define blockIdx (::vit_hybrid::testing::emulated_thread().block)
#define blockDim (::vit_hybrid::testing::emulated_thread().block_size)
#define gridDim (::vit_hybrid::testing::emulated_thread().grid_size)

#define __syncthreads() ::vit_hybrid::testing::wait_for_block()
#define __shfl_xor_sync(mask, value, distance) ::vit_hybrid::testing::value_of_lane(mask, value, distance)
#define __any_sync(mask, value) ::vit_hybrid::testing::is_any_of_warp(mask, value)
#define __syncwarp() static_cast<void>(::vit_hybrid::testing::value_of_lane(0xFFFFFFFFU, 0, 0))

using ::vit_hybrid::testing::dim3;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

#define cudaFuncAttributeMaxDynamicSharedMemorySize 8
#define cudaFuncSetAttribute(kernel, attribute, value) static_cast<void>(kernel)
// NOLINTEND(bugprone-reserved-identifier, cert-dcl*, cppcoreguidelines-macro-usage)

#include "tests/support/emulator/instruction_words.h"
