// Predictions: the most probable classes of rows, their way to rank 0, files, and the matrix of what is confused.
#include "src/train/predictions.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string_view>
#include <system_error>

#include "data/hdf5/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/report/scores.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kMostInTable = 20;
constexpr size_t kMostPairs = 10;
constexpr size_t kMostOfName = 16;
constexpr int64_t kFileBytes = 16 * 1024;  // of an HDF5 file beside its values

// The `count` most probable of n classes, of equal ones the lower first; what is no number comes last.
std::vector<int64_t> most_probable(const double* probabilities, int64_t n, int64_t count) {
  const auto rank_of = [&](int64_t i) {
    return std::isnan(probabilities[i]) ? -std::numeric_limits<double>::infinity() : probabilities[i];
  };
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int64_t a, int64_t b) { return rank_of(a) != rank_of(b) ? rank_of(a) > rank_of(b) : a < b; });
  order.resize(static_cast<size_t>(count));
  return order;
}

std::string name_of(const std::vector<std::string>& classes, int64_t number) {
  return number >= 0 && number < std::ssize(classes) ? classes[static_cast<size_t>(number)] : str(number);
}

// In as few digits as give back a float: that is what the model computes in.
std::string probability_text(double value) {
  return digits(static_cast<float>(value));
}

// A name as it is shown in a column.
std::string cut(const std::string& name) {
  const std::string text = shown(name, std::string::npos);
  if (text.size() <= kMostOfName) {
    return text;
  }
  size_t end = kMostOfName - 2;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;  // in the middle of a character
  }
  return text.substr(0, end) + "..";
}

// Names may be of bytes that are no UTF-8.
std::string json_text(const std::vector<std::string>& names) {
  return Json(names).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// --- files -----------------------------------------------------------------------------------------------------------

class CsvPredictions final : public PredictionFile {
 public:
  CsvPredictions(const PredictionOptions& options, std::vector<std::string> classes)
      : top_(options.top), classes_(std::move(classes)), file_(options.path) {
    std::string head = "sample,class";
    if (top_ == 0) {
      for (const std::string& name : classes_) {
        head += "," + csv_field(name);
      }
    }
    for (int64_t i = 1; i <= top_; ++i) {
      head += i == 1 ? ",probability" : str(",class_", i, ",probability_", i);
    }
    file_.write(head + "\n");
  }

  void write(const PredictedStep& step) override {
    for (int64_t i = 0; i < step.labels.size(0); ++i) {
      file_.write(line(step.first_sample + i, step.classes.const_data_ptr<int64_t>() + i * step.classes.size(1),
                       step.probabilities.const_data_ptr<double>() + i * step.probabilities.size(1)));
    }
  }

  void finish() override { file_.finish(); }

 private:
  std::string line(int64_t sample, const int64_t* classes, const double* probabilities) const {
    std::string out = str(sample);
    if (top_ == 0) {
      out += "," + csv_field(name_of(classes_, classes[0]));
      for (int64_t c = 0; c < std::ssize(classes_); ++c) {
        out += "," + probability_text(probabilities[c]);
      }
    }
    for (int64_t i = 0; i < top_; ++i) {
      out += "," + csv_field(name_of(classes_, classes[i])) + "," + probability_text(probabilities[i]);
    }
    return out + "\n";
  }

  int64_t top_;
  std::vector<std::string> classes_;
  WholeFile file_;
};

// Says it as of a CSV file, of which HDF5 would tell what it was about to write where.
void require_room(const std::string& path, int64_t bytes) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder.empty() ? "." : folder, error);
  if (!error && space.available < static_cast<std::uintmax_t>(bytes)) {
    throw Error(ErrorClass::kIo,
                str("writing '", path, "' failed: No space left on device: it takes ", bytes_text(bytes), ", and ",
                    bytes_text(static_cast<int64_t>(space.available)), " are left"));
  }
}

class Hdf5Predictions final : public PredictionFile {
 public:
  Hdf5Predictions(const PredictionOptions& options, const std::vector<std::string>& classes, int64_t num_samples,
                  const comm::MpiGroup& self)
      : classes_name_(options.top > 0 ? "classes" : "class"),
        file_(self, options.path, datasets(options, std::ssize(classes), num_samples),
              {{"classes", join(classes, ",")}}) {}

  void write(const PredictedStep& step) override {
    const bool is_one = step.classes.size(1) == 1 && std::string_view(classes_name_) == "class";
    const int64_t first = step.first_sample;
    file_.write(classes_name_, is_one ? std::vector<int64_t>{first} : std::vector<int64_t>{first, 0},
                is_one ? step.classes.reshape({-1}) : step.classes);
    file_.write("probabilities", std::vector<int64_t>{first, 0}, step.probabilities.to(at::kFloat));
  }

  void finish() override { file_.finish(); }

 private:
  static std::vector<data::Hdf5DatasetSpec> datasets(const PredictionOptions& options, int64_t num_classes,
                                                     int64_t num_samples) {
    const int64_t top = options.top;
    return {{top > 0 ? "classes" : "class",
             top > 0 ? std::vector<int64_t>{num_samples, top} : std::vector<int64_t>{num_samples},
             at::kLong,
             {}},
            {"probabilities", {num_samples, top > 0 ? top : num_classes}, at::kFloat, {}}};
  }

  const char* classes_name_;
  data::Hdf5Writer file_;
};

}  // namespace

// --- gathering -------------------------------------------------------------------------------------------------------

ClassPredictions::ClassPredictions(int64_t num_classes, int64_t top, const comm::MpiGroup& world, Take take)
    : num_classes_(num_classes), top_(std::min(top, num_classes)), world_(world), take_(std::move(take)) {}

void ClassPredictions::add(std::span<const int64_t> samples, const at::Tensor& logits, const at::Tensor& labels) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor probabilities = at::softmax(logits.to(at::kCPU, at::kDouble), 1).contiguous();
  const at::Tensor of_samples = labels.to(at::kCPU, at::kLong).contiguous();
  MicroBatch batch{samples.front(), at::empty({std::ssize(samples), num_columns()}, at::kDouble)};
  for (int64_t i = 0; i < std::ssize(samples); ++i) {
    VH_ASSERT(samples[static_cast<size_t>(i)] == batch.first_sample + i, "samples are not consecutive");
    const double* all = probabilities.const_data_ptr<double>() + i * num_classes_;
    double* row = batch.rows.mutable_data_ptr<double>() + i * num_columns();
    *row++ = static_cast<double>(of_samples.const_data_ptr<int64_t>()[i]);
    const auto classes = most_probable(all, num_classes_, num_listed());
    row = std::copy(classes.begin(), classes.end(), row);
    if (top_ == 0) {
      std::copy(all, all + num_classes_, row);
    } else {
      std::transform(classes.begin(), classes.end(), row, [&](int64_t c) { return all[c]; });
    }
  }
  rows_.push_back(std::move(batch));
}

void ClassPredictions::end_step(std::span<const int64_t> samples, comm::Communicator& host_world) {
  at::Tensor rows;
  {
    // Each row is of one rank: adding zeros of the others keeps its bits.
    const MemoryScope scope(MemoryClass::kCommunication);
    rows = at::zeros({std::ssize(samples), num_columns()}, at::kDouble);
    for (const MicroBatch& batch : rows_) {
      rows.narrow(0, batch.first_sample - samples.front(), batch.rows.size(0)).copy_(batch.rows);
    }
    rows_.clear();
    host_world.all_reduce(rows, comm::ReduceOp::kSum).wait();
  }
  comm::agreed_on_rank_0(world_, [&] {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    take_({samples.front(), rows.select(1, 0).to(at::kLong).contiguous(),
           rows.narrow(1, 1, num_listed()).to(at::kLong).contiguous(),
           rows.narrow(1, 1 + num_listed(), num_probabilities()).contiguous()});
  });
}

std::unique_ptr<PredictionFile> make_prediction_file(const PredictionOptions& options, std::vector<std::string> classes,
                                                     int64_t num_samples, const comm::MpiGroup& self) {
  if (options.path.ends_with(".csv")) {
    return std::make_unique<CsvPredictions>(options, std::move(classes));
  }
  VH_ASSERT(options.path.ends_with(".h5"), "the ending was not checked");
  const int64_t classes_bytes = (options.top > 0 ? options.top : 1) * int64_t{sizeof(int64_t)};
  const int64_t values_bytes = (options.top > 0 ? options.top : std::ssize(classes)) * int64_t{sizeof(float)};
  require_room(options.path, kFileBytes + num_samples * (classes_bytes + values_bytes));
  return std::make_unique<Hdf5Predictions>(options, classes, num_samples, self);
}

// --- confusion -------------------------------------------------------------------------------------------------------

void ConfusionMatrix::add(const PredictedStep& step) {
  for (int64_t i = 0; i < step.labels.size(0); ++i) {
    const int64_t predicted = step.classes.const_data_ptr<int64_t>()[i * step.classes.size(1)];
    ++counts_[{step.labels.const_data_ptr<int64_t>()[i], predicted}];
  }
}

int64_t ConfusionMatrix::at(int64_t label, int64_t predicted) const {
  const auto found = counts_.find({label, predicted});
  return found == counts_.end() ? 0 : found->second;
}

std::vector<std::string> ConfusionMatrix::table() const {
  size_t width = 0;
  for (const std::string& name : classes_) {
    width = std::max(width, cut(name).size());
  }
  const size_t cell = std::max<size_t>(width, 6) + 2;
  std::vector<std::string> lines = {"samples of a class (row) that were taken for a class (column):"};
  std::string head(width + 2, ' ');
  for (const std::string& name : classes_) {
    head += right_text(cut(name), cell);
  }
  lines.push_back(head);
  for (int64_t label = 0; label < std::ssize(classes_); ++label) {
    const std::string name = cut(classes_[static_cast<size_t>(label)]);
    std::string line = "  " + name + std::string(width - name.size(), ' ');
    for (int64_t predicted = 0; predicted < std::ssize(classes_); ++predicted) {
      line += right_text(str(at(label, predicted)), cell);
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> ConfusionMatrix::most_confused() const {
  using Pair = std::pair<std::pair<int64_t, int64_t>, int64_t>;
  std::map<int64_t, int64_t> of_class;
  std::vector<Pair> pairs;
  for (const auto& [pair, count] : counts_) {
    of_class[pair.first] += count;
    if (pair.first != pair.second) {
      pairs.emplace_back(pair, count);
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.second > b.second; });
  std::vector<std::string> lines = {pairs.empty() ? "no class was taken for another" : "most often confused:"};
  for (size_t i = 0; i < std::min(pairs.size(), kMostPairs); ++i) {
    const auto& [label, predicted] = pairs[i].first;
    lines.push_back(str("  ", shown(name_of(classes_, label)), " taken for ", shown(name_of(classes_, predicted)), ": ",
                        pairs[i].second, " of ", of_class[label]));
  }
  return lines;
}

std::vector<std::string> ConfusionMatrix::lines() const {
  return std::ssize(classes_) <= kMostInTable ? table() : most_confused();
}

void ConfusionMatrix::write(const std::string& path) const {
  const bool is_json = path.ends_with(".json");
  WholeFile file(path);
  std::string head = is_json ? "{\n  \"classes\": " + json_text(classes_) + ",\n  \"matrix\": [\n" : "";
  for (size_t i = 0; !is_json && i < classes_.size(); ++i) {
    head += "," + csv_field(classes_[i]);
  }
  file.write(head + (is_json ? "" : "\n"));
  for (int64_t label = 0; label < std::ssize(classes_); ++label) {
    std::string row = is_json ? "    [" : csv_field(classes_[static_cast<size_t>(label)]) + ",";
    for (int64_t predicted = 0; predicted < std::ssize(classes_); ++predicted) {
      row += str(predicted > 0 ? "," : "", at(label, predicted));
    }
    file.write(row + (is_json ? label + 1 < std::ssize(classes_) ? "],\n" : "]\n  ]\n}\n" : "\n"));
  }
  file.finish();
}

// --- names -----------------------------------------------------------------------------------------------------------

std::vector<std::string> class_names(const std::string& names, int64_t count) {
  std::vector<std::string> result;
  std::istringstream text(names);
  for (std::string name; std::ssize(result) < count && std::getline(text, name, ',');) {
    result.push_back(name);
  }
  while (std::ssize(result) < count) {
    result.push_back(str(std::ssize(result)));
  }
  return result;
}

std::string csv_field(const std::string& text) {
  const bool has_blank_end = !text.empty() && (text.front() == ' ' || text.back() == ' ');
  if (text.find_first_of(",\"\r\n") == std::string::npos && !has_blank_end) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  }
  return quoted + "\"";
}

}  // namespace vit_hybrid::train
