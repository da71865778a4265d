// What cuBLASLt refuses whatever the algorithm, as cublasLt.h and its manual say, for the fake of it.
#pragma once

#include "tests/src/kernels/gemm/fake_cublaslt.h"

namespace vit_hybrid::testing {

/// Bytes of an attribute's value; 0 for one that the fake does not know.
size_t size_of(cublasLtMatmulDescAttributes_t attribute);
size_t size_of(cublasLtMatmulPreferenceAttributes_t attribute);
size_t size_of(cublasLtMatmulAlgoConfigAttributes_t attribute);

struct FakeLayouts {
  FakeLayout a, b, c, d;
};

/// Types that the library has not together, and shapes that are no product.
cublasStatus_t check_product(const FakeDescription& description, const FakeLayouts& layouts);

/// The alignments of A, B, C and D that are preferred, in an algorithm's 8 bytes.
uint64_t preferred_alignments(const std::map<int, uint64_t>& preferences);

struct FakeAddresses {
  const void *a, *b, *c, *d, *workspace;
  size_t workspace_bytes;
};

/// What an algorithm that needs so much cannot work with: addresses that are less aligned than its alignments, too
/// little to work in, and no vector for an epilogue with one.
cublasStatus_t check_addresses(const FakeDescription& description, const FakeAddresses& addresses, uint64_t alignments,
                               size_t workspace_needed);

}  // namespace vit_hybrid::testing
