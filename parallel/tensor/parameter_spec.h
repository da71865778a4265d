// ParameterSpec: a pure description of the slice of one parameter that a rank holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::tensor {

using Shape = std::vector<int64_t>;

/// Number of elements of a shape.
int64_t num_elements(const Shape& shape);

/// An axis-aligned box of the global tensor and where it lies in the local slice. A qkv slice has three boxes.
struct BoxMapping {
  Shape global_offset;
  Shape local_offset;
  Shape size;
};

/// How a parameter is drawn at the start (docs/workload.md, "Model").
struct Distribution {
  enum class Kind { kConstant, kTruncatedNormal, kUniform };
  Kind kind = Kind::kConstant;
  double value = 0.0;  ///< the constant, the standard deviation, or the half-width b
  double limit = 0.0;  ///< truncation in absolute value (kTruncatedNormal only)
};

/// What weight decay sees: biases, norms and positions may be left out.
enum class DecayGroup { kMatrix, kVector };

/// One parameter slice. The list of specs of a rank is a function of model options, dims and coordinate and exists
/// before any tensor; initialisation, ZeRO, clipping and checkpoints work from it.
struct ParameterSpec {
  std::string name;  ///< canonical (timm's), the same in every slice
  Shape global_shape;
  Shape local_shape;
  std::vector<BoxMapping> boxes;       ///< disjoint; together they cover the local slice
  bool replicated_over_tensor = true;  ///< every tensor rank holds the same values (and computes the same gradient)
  Distribution initial;
  DecayGroup decay = DecayGroup::kMatrix;
  int stage = 0;  ///< global pipeline stage that holds it
};

/// A parameter that every tensor rank holds whole.
ParameterSpec replicated(std::string name, Shape shape, Distribution initial, DecayGroup decay);

/// A parameter cut along `dim`: this rank holds rows [begin, end) of each of `groups` equal thirds (qkv: groups = 3;
/// plain: groups = 1) of that dim.
ParameterSpec sharded(std::string name, Shape shape, int dim, int64_t begin, int64_t end, int groups,
                      Distribution initial, DecayGroup decay);

}  // namespace vit_hybrid::tensor
