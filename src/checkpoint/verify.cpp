// Verification of checkpoints, sums of their tensors, and lines about them.
#include "src/checkpoint/verify.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/config/config_text.h"

namespace vit_hybrid::train {

namespace {

// Calls `use(pointer, count)` with the tensor's own type.
template <class Use>
void with_values(const at::Tensor& values, const Use& use) {
  VH_ASSERT(values.is_cpu() && values.is_contiguous(), "a contiguous host tensor");
  if (values.scalar_type() == at::kFloat) {
    use(values.const_data_ptr<float>(), values.numel());
    return;
  }
  VH_ASSERT(values.scalar_type() == at::kDouble, str("values of type ", c10::toString(values.scalar_type())));
  use(values.const_data_ptr<double>(), values.numel());
}

template <class T>
TensorSummary summary_of(const T* values, int64_t count) {
  TensorSummary summary;
  summary.count = count;
  summary.least = std::numeric_limits<double>::infinity();
  summary.most = -summary.least;
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) {
      ++summary.num_not_finite;
      continue;
    }
    sum += value;
    summary.least = std::min(summary.least, value);
    summary.most = std::max(summary.most, value);
  }
  const int64_t num_finite = count - summary.num_not_finite;
  if (num_finite == 0) {
    summary.least = summary.most = 0.0;
    return summary;
  }
  summary.mean = sum / static_cast<double>(num_finite);
  double squares = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double distance = std::isfinite(values[i]) ? values[i] - summary.mean : 0.0;
    squares += distance * distance;
  }
  summary.deviation = std::sqrt(squares / static_cast<double>(num_finite));
  return summary;
}

void note(int64_t index, double a, double b, TensorDifference& difference) {
  if (difference.num_different++ == 0) {
    difference.first_index = index;
    difference.first_a = a;
    difference.first_b = b;
  }
  const bool finite = std::isfinite(a) && std::isfinite(b);
  const double absolute = finite ? std::abs(a - b) : std::numeric_limits<double>::infinity();
  const double larger = std::max(std::abs(a), std::abs(b));
  const double relative = !finite ? absolute : larger > 0.0 ? absolute / larger : 0.0;
  difference.largest_absolute = std::max(difference.largest_absolute, absolute);
  difference.largest_relative = std::max(difference.largest_relative, relative);
}

// Empty where there was none.
std::string loss_scale_text(const CheckpointInfo& info, const std::string& precision, const std::string& option) {
  const bool is_dynamic = option.empty() || option == "dynamic";
  if (precision == "fp16" && !is_dynamic) {
    return "fixed " + option;
  }
  return info.loss_scale > 0.0 ? str(info.loss_scale, " for ", info.good_steps, " steps") : "";
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
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

// Parameters first, and numbers in names by their value.
bool reads_before(const CheckpointTensor& first, const CheckpointTensor& second) {
  if (is_parameter(first) != is_parameter(second)) {
    return is_parameter(first);
  }
  const std::string& a = first.path;
  const std::string& b = second.path;
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

}  // namespace

std::string place_of(const CheckpointReader& checkpoint, const CheckpointTensor& tensor) {
  return str(checkpoint.path(), ": dataset '", tensor.path, "'");
}

std::string checksum_text(const at::Tensor& values) {
  TensorChecksum checksum;
  checksum.add(values.sizes(), std::vector<int64_t>(values.sizes().size(), 0), values);
  return checksum.text();
}

at::Tensor read_verified(const CheckpointReader& checkpoint, const CheckpointTensor& tensor) {
  const at::Tensor values = checkpoint.read(tensor.path);
  if (const std::string checksum = checksum_text(values); checksum != tensor.checksum) {
    throw Error(ErrorClass::kBadData,
                str(place_of(checkpoint, tensor), " has the checksum ", checksum, ", it was ", tensor.checksum,
                    " when it was written"),
                "the file is damaged: use another checkpoint, or a copy of this one");
  }
  return values;
}

void verify_checkpoint(const CheckpointReader& checkpoint) {
  Progress progress("reading " + checkpoint.path(), std::ssize(checkpoint.tensors()));
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    read_verified(checkpoint, tensor);
    progress.add();
  }
}

TensorSummary summarize(const at::Tensor& values) {
  TensorSummary summary;
  with_values(values, [&](const auto* data, int64_t count) { summary = summary_of(data, count); });
  return summary;
}

TensorDifference difference_of(const at::Tensor& a, const at::Tensor& b) {
  VH_ASSERT(a.sizes() == b.sizes(), "tensors of one shape");
  TensorDifference difference;
  difference.count = a.numel();
  with_values(a, [&](const auto* of_a, int64_t count) {
    with_values(b, [&](const auto* of_b, int64_t) {
      for (int64_t i = 0; i < count; ++i) {
        const double value_a = of_a[i];
        const double value_b = of_b[i];
        if (std::bit_cast<uint64_t>(value_a) != std::bit_cast<uint64_t>(value_b)) {
          note(i, value_a, value_b, difference);
        }
      }
    });
  });
  return difference;
}

std::vector<std::string> precision_lines(const CheckpointInfo& info) {
  const auto options = stored_options(info.config);
  const auto text_of = [&](const char* key) {
    const auto found = options.find(key);
    return found != options.end() ? found->second : std::string();
  };
  std::vector<std::string> lines;
  const std::string precision = text_of("precision");
  if (!precision.empty()) {
    lines.push_back("precision   " + precision);
  }
  const std::string scale = loss_scale_text(info, precision, text_of("loss_scale"));
  if (!scale.empty() || info.skipped_steps > 0) {
    lines.push_back(str("loss scale  ", scale.empty() ? "none" : scale, ", ", info.skipped_steps, " steps skipped"));
  }
  return lines;
}

std::vector<CheckpointTensor> in_reading_order(std::vector<CheckpointTensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), reads_before);
  return tensors;
}

bool is_parameter(const CheckpointTensor& tensor) {
  return tensor.path.starts_with(dataset_path(kParametersGroup, ""));
}

}  // namespace vit_hybrid::train
