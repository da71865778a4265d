// Names with numbers in them, compared as people do.
#include "src/checkpoint/reading_order.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

namespace vit_hybrid::train {

namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool names_parameter(const std::string& path) {
  return path.starts_with(dataset_path(kParametersGroup, ""));
}

// The number that begins at `at`, without leading zeros, and moves behind it.
std::string_view number_at(const std::string& text, size_t& at) {
  while (at < text.size() && text[at] == '0') {
    ++at;
  }
  const size_t begin = at;
  while (at < text.size() && is_digit(text[at])) {
    ++at;
  }
  return std::string_view(text).substr(begin, at - begin);
}

}  // namespace

bool reads_before(const std::string& a, const std::string& b) {
  if (names_parameter(a) != names_parameter(b)) {
    return names_parameter(a);
  }
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = number_at(a, i);
      const std::string_view y = number_at(b, j);
      if (x != y) {
        return x.size() != y.size() ? x.size() < y.size() : x < y;
      }
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

std::vector<CheckpointTensor> in_reading_order(std::vector<CheckpointTensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const CheckpointTensor& a, const CheckpointTensor& b) { return reads_before(a.path, b.path); });
  return tensors;
}

bool is_parameter(const CheckpointTensor& tensor) {
  return names_parameter(tensor.path);
}

}  // namespace vit_hybrid::train
