// The walk over the runs of a box.
#include "data/reading/box_runs.h"

#include <numeric>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

int64_t element(const BoxPlace& place, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    offset = offset * place.shape[d] + place.start[d] + index[d];
  }
  return offset;
}

// To the next index of the dims before `num_outer` (the later ones stay 0); false after the last.
bool advance(std::vector<int64_t>& index, std::span<const int64_t> box, size_t num_outer) {
  for (size_t d = num_outer; d-- > 0;) {
    if (++index[d] < box[d]) {
      return true;
    }
    index[d] = 0;
  }
  return false;
}

}  // namespace

std::optional<int64_t> bytes_of_shape(std::span<const int64_t> shape, int64_t item) {
  int64_t bytes = item;
  bool is_empty = false;
  for (const int64_t extent : shape) {
    is_empty = is_empty || extent == 0;
    if (extent < 0 || (extent > 0 && __builtin_mul_overflow(bytes, extent, &bytes))) {
      return std::nullopt;
    }
  }
  return is_empty ? 0 : bytes;
}

int64_t num_elements(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

void for_each_run(std::span<const int64_t> box, const BoxPlace& a, const BoxPlace& b,
                  const std::function<void(int64_t, int64_t, int64_t)>& run) {
  const size_t rank = box.size();
  VH_ASSERT(a.shape.size() == rank && a.start.size() == rank && b.shape.size() == rank && b.start.size() == rank,
            str("a box of ", rank, " dims"));
  if (num_elements(box) == 0) {
    return;
  }
  // A dim that both arrays have whole joins the rows before it into one run.
  size_t num_outer = rank;
  int64_t length = 1;
  while (num_outer > 0) {
    const size_t d = --num_outer;
    length *= box[d];
    if (box[d] != a.shape[d] || box[d] != b.shape[d]) {
      break;
    }
  }
  std::vector<int64_t> index(rank, 0);
  do {
    run(element(a, index), element(b, index), length);
  } while (advance(index, box, num_outer));
}

}  // namespace vit_hybrid::data
