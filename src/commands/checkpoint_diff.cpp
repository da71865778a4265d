// The command `checkpoint diff`: in what two checkpoints differ.
#include <algorithm>
#include <cmath>
#include <concepts>

#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/checkpoint/model_json.h"
#include "src/checkpoint/reading_order.h"
#include "src/checkpoint/tensor_summary.h"
#include "src/commands/checkpoint_tool.h"

namespace vit_hybrid::commands {

namespace {

using train::CheckpointInfo;
using train::CheckpointReader;
using train::CheckpointTensor;
using train::ModelDifference;
using train::TensorDifference;

struct DiffOptions {
  bool all = false;
};

constexpr FileCount kFiles{2, 2, "A B"};
constexpr int kDiffer = 1;  // exit code, as diff's
constexpr size_t kMostText = 4096;

options::OptionTable table_of(DiffOptions& chosen) {
  options::OptionTable table;
  table.begin_group("Diff");
  table.add({.name = "all",
             .value = options::flag(chosen.all),
             .help = "List every tensor that differs, not only the first."});
  return table;
}

// Compares one thing that the files say of themselves; a long text only as a whole.
class InfoComparison {
 public:
  template <class Value>
  void compare(const std::string& name, const Value& a, const Value& b) {
    if (!is_same(a, b)) {
      text_ += str("  ", name, ": ", shown(a), " against ", shown(b), "\n");
    }
  }
  // Of lists the first place in which they differ.
  void compare_lists(const std::string& name, const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) {
      compare(name, length_text(a), length_text(b));
    } else if (a != b) {
      const auto [of_a, of_b] = std::mismatch(a.begin(), a.end(), b.begin());
      compare(str(name, "[", of_a - a.begin(), "]"), *of_a, *of_b);
    }
  }
  void compare_whole(const std::string& name, const std::string& a, const std::string& b) {
    if (a != b) {
      text_ += str("  ", name, ": another\n");
    }
  }
  std::string take() { return std::exchange(text_, {}); }

 private:
  // What is no number is no other than itself here.
  template <class Value>
  static bool is_same(const Value& a, const Value& b) {
    if constexpr (std::floating_point<Value>) {
      return a == b || (std::isnan(a) && std::isnan(b));
    } else {
      return a == b;
    }
  }
  static std::string length_text(const std::vector<double>& list) {
    return list.empty() ? "" : str(list.size(), " numbers");
  }
  template <class Value>
  static std::string shown(const Value& value) {
    const std::string text = str(value);
    return text.empty() ? "none" : vit_hybrid::shown(text, kMostText);
  }

  std::string text_;
};

// What decides how a resumed run goes on.
std::string state_differences(const CheckpointInfo& a, const CheckpointInfo& b) {
  InfoComparison comparison;
  for (const ModelDifference& difference : train::model_differences(a.model, b.model)) {
    if (!train::is_training_only(difference.option)) {
      comparison.compare(str("--", difference.option), difference.first, difference.second);
    }
  }
  comparison.compare("optimizer", a.optimizer, b.optimizer);
  comparison.compare("step", a.step, b.step);
  comparison.compare("optimizer_steps", a.optimizer_steps, b.optimizer_steps);
  comparison.compare("loss_scale", a.loss_scale, b.loss_scale);
  comparison.compare("good_steps", a.good_steps, b.good_steps);
  comparison.compare("skipped_steps", a.skipped_steps, b.skipped_steps);
  comparison.compare("epoch", a.epoch + 1, b.epoch + 1);
  comparison.compare("samples_of_epoch", a.samples_of_epoch, b.samples_of_epoch);
  comparison.compare("seed", a.seed, b.seed);
  comparison.compare("num_samples", a.num_samples, b.num_samples);
  comparison.compare("channels", a.channels, b.channels);
  if (std::min(a.format, b.format) >= train::kTrainingDataFormat) {  // else one of them does not know
    comparison.compare("class_names", a.class_names, b.class_names);
    comparison.compare_lists("means", a.means, b.means);
    comparison.compare_lists("stds", a.stds, b.stds);
    comparison.compare_lists("latitudes", a.grid.latitudes, b.grid.latitudes);
    comparison.compare_lists("longitudes", a.grid.longitudes, b.grid.longitudes);
  }
  return comparison.take();
}

// Options of the model that only training looks at: the same tensors compute the same whatever they are.
std::string training_differences(const CheckpointInfo& a, const CheckpointInfo& b) {
  InfoComparison comparison;
  for (const ModelDifference& difference : train::model_differences(a.model, b.model)) {
    if (train::is_training_only(difference.option)) {
      comparison.compare(str("--", difference.option), difference.first, difference.second);
    }
  }
  return comparison.take();
}

// What says where the file comes from.
std::string origin_differences(const CheckpointInfo& a, const CheckpointInfo& b) {
  InfoComparison comparison;
  comparison.compare("format", a.format, b.format);
  comparison.compare("version", a.version, b.version);
  comparison.compare("git_commit", a.git_commit, b.git_commit);
  comparison.compare("libraries", a.libraries, b.libraries);
  comparison.compare("layout", a.layout, b.layout);
  comparison.compare("metric", a.metric, b.metric);
  comparison.compare("metric_value", a.metric_value, b.metric_value);
  comparison.compare_whole("config", a.config, b.config);
  comparison.compare_whole("kernels", a.kernels, b.kernels);
  return comparison.take();
}

std::string index_text(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = index % shape[d];
    index /= shape[d];
  }
  return str("[", join(at), "]");
}

// Empty if the tensors are the same.
std::string tensor_difference(const CheckpointReader& a, const CheckpointReader& b, const CheckpointTensor& of_a) {
  const CheckpointTensor* const of_b = b.find(of_a.path);
  const std::string name = shown(of_a.path);
  if (of_b == nullptr) {
    return str("  ", name, ": only in the first\n");
  }
  if (of_a.shape != of_b->shape || of_a.type != of_b->type) {
    return str("  ", name, ": ", c10::toString(of_a.type), " [", join(of_a.shape), "] against ",
               c10::toString(of_b->type), " [", join(of_b->shape), "]\n");
  }
  const TensorDifference difference = train::difference_of(a.read(of_a.path), b.read(of_a.path));
  if (difference.num_different == 0) {
    return "";
  }
  return str("  ", name, ": ", difference.num_different, " of ", difference.count, " values, the first at ",
             index_text(difference.first_index, of_a.shape), ": ", difference.first_a, " against ", difference.first_b,
             "; largest difference ", difference.largest_absolute, ", relative ", difference.largest_relative, "\n");
}

// One line a tensor that differs, or the first.
std::string tensor_differences(const CheckpointReader& a, const CheckpointReader& b, bool all) {
  std::string out;
  for (const CheckpointTensor& tensor : train::in_reading_order(a.tensors())) {
    out += tensor_difference(a, b, tensor);
    if (!all && !out.empty()) {
      return out;
    }
  }
  for (const CheckpointTensor& tensor : train::in_reading_order(b.tensors())) {
    if (a.find(tensor.path) == nullptr) {
      out += str("  ", shown(tensor.path), ": only in the second\n");
      if (!all) {
        return out;
      }
    }
  }
  return out;
}

void print_section(const char* title, const std::string& lines) {
  if (!lines.empty()) {
    print_once(title + lines);
  }
}

}  // namespace

std::string checkpoint_diff_help() {
  DiffOptions chosen;
  return "usage: vit_hybrid checkpoint diff A B [options]\n\n"
         "Prints in what two checkpoints differ: first what they say of themselves, then the first tensor of\n"
         "another value, with its global index. Values are compared bit by bit. The exit code is 0 if tensors,\n"
         "model, position and the data of the training (channels, classes, statistics, grid) are the same, whatever\n"
         "wrote them, in whatever layout, and with whatever dropout and label smoothing, else 1.\n" +
         options::help_text(table_of(chosen));
}

std::string checkpoint_diff_markdown() {
  DiffOptions chosen;
  return kToolOptions + options::markdown_text(table_of(chosen));
}

int run_checkpoint_diff(const Invocation& invocation) {
  DiffOptions chosen;
  const options::OptionTable table = table_of(chosen);
  const auto files = parse_checkpoint_tool(invocation, table, kFiles);
  if (!is_first_process()) {
    return 0;
  }
  const CheckpointReader a(files[0]);
  const CheckpointReader b(files[1]);
  print_section("origin:\n", origin_differences(a.info(), b.info()));
  print_section("options of the training:\n", training_differences(a.info(), b.info()));
  const std::string state = state_differences(a.info(), b.info());
  print_section("state:\n", state);
  const std::string tensors = tensor_differences(a, b, chosen.all);
  print_section(chosen.all ? "tensors:\n" : "first tensor:\n", tensors);
  const bool same = state.empty() && tensors.empty();
  print_once(same ? "the same tensors, model, position and data\n" : "they differ\n");
  return same ? 0 : kDiffer;
}

}  // namespace vit_hybrid::commands
