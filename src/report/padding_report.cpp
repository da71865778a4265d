// PaddedDim: the dimensions of a ViT's products, rounded up.
#include "src/report/padding_report.h"

#include <algorithm>
#include <numeric>

#include "src/base/quantity_text.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

int64_t rounded_up(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

double product(std::initializer_list<int64_t> factors) {
  return std::accumulate(factors.begin(), factors.end(), 1.0,
                         [](double result, int64_t factor) { return result * static_cast<double>(factor); });
}

std::vector<int64_t> shares_of(int64_t count, int parts, int64_t each) {
  std::vector<int64_t> shares;
  for (int i = 0; i < parts; ++i) {
    shares.push_back(Partition(count, parts).part(i).size() * each);
  }
  return shares;
}

// Forward FLOP of a sample; the backward products have the same dimensions twice.
struct Flops {
  explicit Flops(const model::VitOptions& options)
      : projections(product({8, options.depth, options.num_tokens(), options.embed_dim, options.embed_dim})),
        attention(product({4, options.depth, options.num_tokens(), options.num_tokens(), options.embed_dim})),
        mlp(product({4, options.depth, options.num_tokens(), options.embed_dim, options.mlp_hidden})),
        ends(model::unit_costs(options).front() + model::unit_costs(options).back()) {}
  double all() const { return projections + attention + mlp + ends; }

  double projections, attention, mlp, ends;
};

class PaddedDims {
 public:
  PaddedDims(const model::VitOptions& options, int tensor_size)
      : options_(options), tensor_size_(tensor_size), flops_(options) {}

  void add_features(int64_t multiple) {
    const int64_t pixels = options_.patch_size * options_.patch_size;
    const auto costs = model::unit_costs(options_);
    add("embedding", {options_.embed_dim}, multiple, "linear layers", flops_.projections + flops_.mlp + flops_.ends);
    add("features of the heads", shares_of(options_.num_heads, tensor_size_, options_.head_dim()), multiple,
        "qkv and projection", flops_.projections);
    add("MLP features", shares_of(options_.mlp_hidden, tensor_size_, 1), multiple, "fc1 and fc2", flops_.mlp);
    add("patch values", {options_.in_channels * pixels}, multiple, "the patch embedding", costs.front());
    const bool classifies = options_.task == model::Task::kClassify;
    add(classifies ? "classes" : "predicted patch values",
        {classifies ? options_.num_classes : options_.out_channels * pixels}, multiple, "the head", costs.back());
  }

  void add_attention(const UnitMultiples& multiples) {
    add("head dimension", {options_.head_dim()}, multiples.head_dim, "attention", flops_.attention);
    const int64_t tokens = options_.num_tokens();
    const double queries = static_cast<double>(rounded_up(tokens, multiples.queries)) / static_cast<double>(tokens);
    add("tokens", {tokens}, multiples.tokens, "attention", flops_.attention, queries);
  }

  std::vector<PaddedDim> take() { return std::move(dims_); }

 private:
  // The rank with the largest share decides. `other`: how much the same padding adds in a second dimension.
  void add(std::string name, std::vector<int64_t> shares, int64_t multiple, std::string products, double flops,
           double other = 1.0) {
    const int64_t largest = *std::max_element(shares.begin(), shares.end());
    PaddedDim dim{std::move(name), std::move(shares), multiple, rounded_up(largest, multiple), std::move(products)};
    dim.waste = other * static_cast<double>(dim.padded) / static_cast<double>(largest) - 1.0;
    dim.cost = dim.waste * flops / flops_.all();
    const auto misses = [&](int64_t share) { return share % multiple != 0; };
    if (std::any_of(dim.shares.begin(), dim.shares.end(), misses)) {
      dims_.push_back(std::move(dim));
    }
  }

  const model::VitOptions& options_;
  int tensor_size_;
  Flops flops_;
  std::vector<PaddedDim> dims_;
};

std::string percent(double part) {
  return fixed_text(100.0 * part, 1) + " %";
}

}  // namespace

UnitMultiples unit_multiples(c10::DeviceType device, Precision precision, int vector_bytes) {
  if (device == c10::DeviceType::CPU) {
    // Half types are added up in fp32.
    const int64_t lanes = vector_bytes / (precision == Precision::kFp64 ? 8 : 4);
    return {lanes, lanes, lanes, 1};
  }
  switch (precision) {
    case Precision::kBf16:
    case Precision::kFp16:
      return {8, 32, 64, 64};
    case Precision::kTf32:
      return {4, 4, 4, 1};
    default:
      return {};
  }
}

std::vector<PaddedDim> padded_dims(const model::VitOptions& options, int tensor_size, const UnitMultiples& multiples) {
  PaddedDims dims(options, tensor_size);
  dims.add_features(multiples.features);
  dims.add_attention(multiples);
  return dims.take();
}

std::string text_of(const PaddedDim& dim) {
  return str(dim.name, " ", parts_text(dim.shares), ": no multiple of ", dim.multiple, ", padded to ", dim.padded, "; ",
             percent(dim.waste), " more work in ", dim.products, ", ", percent(dim.cost), " of the model's products");
}

Json to_json(const PaddedDim& dim) {
  return {{"dimension", dim.name},    {"shares", dim.shares}, {"multiple", dim.multiple}, {"padded", dim.padded},
          {"products", dim.products}, {"waste", dim.waste},   {"cost", dim.cost}};
}

}  // namespace vit_hybrid::train
