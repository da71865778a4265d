// The kernels of attention of few tokens on the host, in grid and block form, against softmax and its gradient in
// double.
#include <cmath>
#include <vector>

#include "src/kernels/attention/short_attention_cuda.h"
#include "tests/support/emulator/kernel_test.h"

using namespace vit_hybrid;
using namespace vit_hybrid::kernels;
using namespace vit_hybrid::testing;

namespace {

struct Shape {
  int samples, tokens, heads, head_dim;

  int64_t rows() const { return static_cast<int64_t>(samples) * tokens; }
  int64_t width() const { return static_cast<int64_t>(heads) * head_dim; }
  // Of one head: element i of part `part` of `parts` in row `row`.
  size_t at(int64_t row, int64_t head, int64_t i, int64_t part = 0, int64_t parts = 1) const {
    return static_cast<size_t>(((row * parts + part) * heads + head) * head_dim + i);
  }
};

// One token; less than a tile, a whole one and more; several steps of 64 keys, and of 32 queries, with a rest.
std::vector<Shape> all_shapes() {
  if (kByThreads) return {{1, 17, 2, 64}};
  return {{2, 1, 1, 64}, {1, 15, 2, 64}, {1, 16, 1, 80}, {2, 33, 2, 80}, {1, 87, 1, 64}};
}

struct Results {
  std::vector<double> out, logsumexp, dqkv;
};

Results reference(const std::vector<double>& qkv, const std::vector<double>& dout, const Shape& shape, double scale) {
  Results results{std::vector<double>(dout.size()),
                  std::vector<double>(static_cast<size_t>(shape.rows() * shape.heads)),
                  std::vector<double>(qkv.size())};
  const auto product = [&](const auto& left, const auto& right) {
    double sum = 0.0;
    for (int i = 0; i < shape.head_dim; ++i)
      sum += left(i) * right(i);
    return sum;
  };
  for (int sample = 0; sample < shape.samples; ++sample) {
    for (int head = 0; head < shape.heads; ++head) {
      const auto place = [&](int part, int token, int i) {
        return shape.at(int64_t{sample} * shape.tokens + token, head, i, part, 3);
      };
      const auto row_of = [&](int part, int token) { return [=, &qkv](int i) { return qkv[place(part, token, i)]; }; };
      for (int query = 0; query < shape.tokens; ++query) {
        const int64_t row = int64_t{sample} * shape.tokens + query;
        const auto gradient = [&](int i) { return dout[shape.at(row, head, i)]; };
        std::vector<double> exponentials;
        double sum = 0.0;
        for (int key = 0; key < shape.tokens; ++key) {
          exponentials.push_back(std::exp(scale * product(row_of(0, query), row_of(1, key))));
          sum += exponentials.back();
        }
        results.logsumexp[static_cast<size_t>((int64_t{sample} * shape.heads + head) * shape.tokens + query)] =
            std::log2(sum);
        const auto out = [&](int i) -> double& { return results.out[shape.at(row, head, i)]; };
        for (int key = 0; key < shape.tokens; ++key) {
          for (int i = 0; i < shape.head_dim; ++i)
            out(i) += exponentials[static_cast<size_t>(key)] / sum * qkv[place(2, key, i)];
        }
        const double of_query = product(gradient, out);
        for (int key = 0; key < shape.tokens; ++key) {
          const double probability = exponentials[static_cast<size_t>(key)] / sum;
          const double dscore = scale * probability * (product(gradient, row_of(2, key)) - of_query);
          for (int i = 0; i < shape.head_dim; ++i) {
            results.dqkv[place(0, query, i)] += dscore * qkv[place(1, key, i)];
            results.dqkv[place(1, key, i)] += dscore * qkv[place(0, query, i)];
            results.dqkv[place(2, key, i)] += probability * gradient(i);
          }
        }
      }
    }
  }
  return results;
}

template <class T>
void check_shape(const Shape& shape) {
  CAPTURE(shape.tokens);
  CAPTURE(shape.head_dim);
  const int64_t elements = shape.rows() * shape.width();
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  const ShortAttentionShape sizes{shape.samples, shape.tokens, shape.heads, shape.head_dim, scale};
  const GuardedArray<T> qkv(3 * elements), dout(elements), out(elements), dqkv(3 * elements);
  const GuardedArray<float> logsumexp(shape.rows() * shape.heads);
  // Scores that are far apart: sums are measured anew on the way, and some probabilities vanish.
  fill(qkv, 1, 3.0);
  fill(dout, 2);
  const auto run = [&] {
    launch_short_attention(ShortAttentionForward<T>{qkv.data(), out.data(), logsumexp.data(), sizes}, nullptr);
    launch_short_attention(
        ShortAttentionBackward<T>{qkv.data(), out.data(), dout.data(), logsumexp.data(), dqkv.data(), sizes}, nullptr);
  };
  in_all_orders(run, [&](const auto& add) {
    add(out);
    add(logsumexp);
    add(dqkv);
  });
  const Results wanted = reference(in_double(qkv), in_double(dout), shape, scale);
  // Probabilities and the gradients of scores are rounded before they are added up, and so is the sum.
  CHECK(relative_error(out, wanted.out) <= 2.0 * kRounding<T>);
  CHECK(relative_error(dqkv, wanted.dqkv) <= 4.0 * kRounding<T>);
  CHECK(relative_error(logsumexp, wanted.logsumexp) <= 1e-5);
}

}  // namespace

TEST_CASE("emulated: attention of few tokens, forward and backward") {
  for (const Shape& shape : all_shapes()) {
    check_shape<c10::BFloat16>(shape);
    if (!kByThreads) check_shape<c10::Half>(shape);
  }
}
