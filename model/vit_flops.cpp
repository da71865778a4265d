// The arithmetic of a ViT in floating-point operations per sample; a multiply-add counts as two.
#include <numeric>

#include "model/vit_options.h"

namespace vit_hybrid::model {

namespace {

double product(std::initializer_list<int64_t> factors) {
  double result = 1.0;
  for (const int64_t factor : factors) {
    result *= static_cast<double>(factor);
  }
  return result;
}

double embedding_cost(const VitOptions& options) {
  const int64_t patches = options.grid_height() * options.grid_width();
  return product({2, patches, options.in_channels, options.patch_size, options.patch_size, options.embed_dim});
}

// qkv and projection, the two products of attention, fc1 and fc2.
double block_cost(const VitOptions& options) {
  const int64_t tokens = options.num_tokens();
  const int64_t dim = options.embed_dim;
  return product({8, tokens, dim, dim}) + product({4, tokens, tokens, dim}) +
         product({4, tokens, dim, options.mlp_hidden});
}

double head_cost(const VitOptions& options) {
  if (options.task == Task::kClassify) {
    return product({2, options.embed_dim, options.num_classes});
  }
  return product(
      {2, options.num_tokens(), options.embed_dim, options.out_channels, options.patch_size, options.patch_size});
}

}  // namespace

std::vector<double> unit_costs(const VitOptions& options) {
  std::vector<double> costs(static_cast<size_t>(options.num_units()), block_cost(options));
  costs.front() = embedding_cost(options);
  costs.back() = head_cost(options);
  return costs;
}

double train_flops_per_sample(const VitOptions& options) {
  const auto costs = unit_costs(options);
  // The gradient of the image is not computed: the embedding's backward has one product, not two.
  return 3.0 * std::accumulate(costs.begin() + 1, costs.end(), 0.0) + 2.0 * costs.front();
}

}  // namespace vit_hybrid::model
