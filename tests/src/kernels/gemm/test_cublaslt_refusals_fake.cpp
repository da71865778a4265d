// Descriptions of products that are wrong in one thing each: the fake of cuBLASLt refuses what the library would, so
// that a plan with such a fault fails its tests.
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <array>
#include <functional>

#include "tests/src/kernels/gemm/fake_cublaslt.h"

using namespace vit_hybrid::testing;

namespace {

constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr cublasStatus_t kNotSupported = CUBLAS_STATUS_NOT_SUPPORTED;
constexpr size_t kNeeded = 512;

// D [6, 4] = A [6, 8] B [8, 4] + bias, described rightly.
struct Description {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  FakeLayout a{CUDA_R_16F, 6, 8, 6}, b{CUDA_R_16F, 8, 4, 8}, c{CUDA_R_16F, 6, 4, 6}, d{CUDA_R_16F, 6, 4, 6};
  size_t epilogue_bytes = 4, pointer_bytes = 8, alignment_bytes = 4, workspace_preference_bytes = 8;
  uint32_t alignment = 16;             // that is promised
  std::array<size_t, 4> offsets = {};  // of A, B, C and D in elements
  size_t workspace_offset = 0, workspace_bytes = kNeeded;
  bool has_workspace = true, has_bias = true;
};

struct Objects {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::array<cublasLtMatrixLayout_t, 4> layouts = {};

  explicit Objects(const Description& d) {
    cublasLtMatmulDescCreate(&description, d.compute, d.scale);
    cublasLtMatmulPreferenceCreate(&preference);
    size_t i = 0;
    for (const FakeLayout& layout : {d.a, d.b, d.c, d.d})
      cublasLtMatrixLayoutCreate(&layouts[i++], layout.type, layout.rows, layout.columns, layout.leading);
  }
  ~Objects() {
    cublasLtMatmulDescDestroy(description);
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : layouts)
      cublasLtMatrixLayoutDestroy(layout);
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
};

cublasStatus_t describe(const Objects& objects, const Description& d, const void* bias) {
  const std::array<uint32_t, 2> epilogue = {CUBLASLT_EPILOGUE_BIAS, 0};
  const std::array<const void*, 2> pointer = {bias, nullptr};
  const std::array<uint32_t, 2> alignment = {d.alignment, 0};
  const std::array<uint64_t, 2> workspace = {kNeeded, 0};
  const auto set = [&](auto attribute, const void* value, size_t bytes) {
    return cublasLtMatmulDescSetAttribute(objects.description, attribute, value, bytes);
  };
  const auto prefer = [&](auto attribute, const void* value, size_t bytes) {
    return cublasLtMatmulPreferenceSetAttribute(objects.preference, attribute, value, bytes);
  };
  for (const cublasStatus_t status :
       {set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue.data(), d.epilogue_bytes),
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer.data(), d.pointer_bytes),
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace.data(), d.workspace_preference_bytes),
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.data(), d.alignment_bytes),
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.data(), d.alignment_bytes),
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.data(), d.alignment_bytes),
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.data(), d.alignment_bytes)}) {
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// The first status that is no success, of calls as ProductPlan's; `with_check`: cublasLtMatmulAlgoCheck() among them.
cublasStatus_t run(const Description& d, bool with_check) {
  static std::array<std::array<c10::Half, 128>, 4> matrices __attribute__((aligned(256)));
  alignas(256) static std::array<char, 2 * kNeeded> workspace;
  alignas(16) static std::array<c10::Half, 6> bias;
  fake_cublaslt() = {};
  fake_cublaslt().computes = true;
  fake_cublaslt().algorithms.resize(1);
  fake_cublaslt().algorithms[0].workspace = kNeeded;
  const Objects objects(d);
  if (const auto status = describe(objects, d, d.has_bias ? bias.data() : nullptr); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const auto [a, b, c, to] = objects.layouts;
  cublasLtMatmulHeuristicResult_t result{}, checked{};
  int found = 0;
  auto status =
      cublasLtMatmulAlgoGetHeuristic(nullptr, objects.description, a, b, c, to, objects.preference, 1, &result, &found);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (with_check) {
    status = cublasLtMatmulAlgoCheck(nullptr, objects.description, a, b, c, to, &result.algo, &checked);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const float alpha = 1.0F, beta = 0.0F;
  const auto address = [&](size_t i) { return matrices[i].data() + d.offsets[i]; };
  return cublasLtMatmul(nullptr, objects.description, &alpha, address(0), a, address(1), b, &beta, address(2), c,
                        address(3), to, &result.algo, d.has_workspace ? workspace.data() + d.workspace_offset : nullptr,
                        d.workspace_bytes, nullptr);
}

// What comes of the description with a fault; the product itself finds what the check of an algorithm does.
cublasStatus_t status_with(const std::function<void(Description&)>& plant) {
  Description description;
  plant(description);
  const cublasStatus_t status = run(description, true);
  CHECK(run(description, false) == status);
  CHECK(fake_cublaslt().num_objects == 0);
  return status;
}

}  // namespace

TEST_CASE("fake of cuBLASLt: a right description is computed, also in other types") {
  CHECK(status_with([](Description&) {}) == CUBLAS_STATUS_SUCCESS);
  CHECK(status_with([](Description& d) { d.alignment = 2, d.offsets = {1, 1, 1, 1}; }) == CUBLAS_STATUS_SUCCESS);
  CHECK(status_with([](Description& d) { d.a.leading = 7, d.c.leading = d.d.leading = 8; }) == CUBLAS_STATUS_SUCCESS);
  CHECK(status_with([](Description& d) { d.c.type = d.d.type = CUDA_R_32F; }) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("fake of cuBLASLt: attributes of another size are refused") {
  for (const size_t bytes : {0, 1, 2, 8, 16})
    CHECK(status_with([&](Description& d) { d.epilogue_bytes = bytes; }) == kInvalid);
  for (const size_t bytes : {4, 16})
    CHECK(status_with([&](Description& d) { d.pointer_bytes = bytes; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.alignment_bytes = 8; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.workspace_preference_bytes = 4; }) == kInvalid);
}

TEST_CASE("fake of cuBLASLt: types that the library does not have together are refused") {
  CHECK(status_with([](Description& d) { d.compute = CUBLAS_COMPUTE_64F; }) == kNotSupported);
  CHECK(status_with([](Description& d) { d.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }) == kNotSupported);
  CHECK(status_with([](Description& d) { d.scale = CUDA_R_64F; }) == kNotSupported);
  CHECK(status_with([](Description& d) { d.b.type = CUDA_R_16BF; }) == kNotSupported);
  CHECK(status_with([](Description& d) { d.c.type = CUDA_R_32F; }) == kNotSupported);
  CHECK(status_with([](Description& d) { d.c.type = d.d.type = CUDA_R_16BF; }) == kNotSupported);
  CHECK(status_with([](Description& d) { d.a.type = d.b.type = CUDA_R_32F; }) == kNotSupported);
}

TEST_CASE("fake of cuBLASLt: shapes that are no product, and columns that overlap, are refused") {
  CHECK(status_with([](Description& d) { d.b.rows = 7; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.c.columns = d.d.columns = 5; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.c.rows = 5; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.c.leading = 7; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.a.leading = 5; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.b.leading = 7; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.c.leading = d.d.leading = 5; }) == kInvalid);
}

TEST_CASE("fake of cuBLASLt: addresses that are less aligned than promised, and no bias, are refused") {
  for (size_t i = 0; i < 4; ++i)
    CHECK(status_with([&](Description& d) { d.offsets[i] = 4; }) == kInvalid);  // 8 bytes
  CHECK(status_with([](Description& d) { d.has_bias = false; }) == kInvalid);
}

TEST_CASE("fake of cuBLASLt: a workspace that is not there, too small or not aligned is refused") {
  CHECK(status_with([](Description& d) { d.has_workspace = false; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.workspace_bytes = kNeeded - 1; }) == kInvalid);
  CHECK(status_with([](Description& d) { d.workspace_offset = 16; }) == kInvalid);
}
