// MetricsLog: lines of JSON and a whole file of it; TensorBoard's event files by their definition; histograms: values
// are put into their buckets by the first bits of their numbers.
#include "src/report/metrics_log.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <unistd.h>
#include <boost/crc.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/folder_lock.h"
#include "src/base/host.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::train {

namespace {

constexpr int64_t kBlock = 1 << 14;            // values that are summed up by themselves, whichever thread has them
constexpr int64_t kCopied = int64_t{1} << 22;  // values of a GPU that are on the host at a time

// Positive limits but the last.
std::vector<double> positive_limits() {
  std::vector<double> limits;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) {
    limits.push_back(limit);
  }
  return limits;
}

// A cell has the numbers from one power of two to the next whose first four bits of the mantissa are equal: the last is
// less than 1.1 times the first, so that one limit at most is among them.
class Cells {
 public:
  Cells() {
    const std::vector<double> limits = positive_limits();
    num_limits_ = std::ssize(limits);
    first_ = cell_of(limits.front());
    int64_t below = 0;
    for (int64_t cell = first_; cell <= cell_of(limits.back()); ++cell) {
      const auto begin = std::bit_cast<double>(cell << kDropped);
      while (limits[static_cast<size_t>(below)] < begin) {
        ++below;
      }
      cells_.push_back({limits[static_cast<size_t>(below)], below});
    }
  }

  // Without branches: signs cannot be foretold, and half of the time would go into that.
  size_t bucket_of(double value) const {
    const double magnitude = std::abs(value);
    const Cell& cell = cells_[static_cast<size_t>(std::clamp<int64_t>(cell_of(magnitude) - first_, 0, last()))];
    const auto is_negative = static_cast<int64_t>(value < 0.0);
    // A limit itself belongs to the values above it.
    const int64_t is_above = int{magnitude > cell.limit} | (int{magnitude == cell.limit} & (is_negative ^ 1));
    const int64_t below = cell.below + is_above;
    return static_cast<size_t>(num_limits_ + 1 + (below ^ -is_negative));  // ~below is -below - 1
  }

 private:
  struct Cell {
    double limit;   // the first that is not below the cell
    int64_t below;  // limits that are
  };

  static constexpr int kDropped = 48;  // bits of a double behind sign, exponent and four bits of the mantissa
  static int64_t cell_of(double magnitude) { return std::bit_cast<int64_t>(magnitude) >> kDropped; }
  int64_t last() const { return std::ssize(cells_) - 1; }

  std::vector<Cell> cells_;
  int64_t first_ = 0;
  int64_t num_limits_ = 0;
};

const Cells& cells() {
  static const Cells made;
  return made;
}

// All of a Histogram but its counts, of one block.
struct Figures {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  double sum_of_squares = 0.0;
  int64_t not_finite = 0;
};

template <class T>
Figures count_block(const T* values, int64_t size, double factor, const Cells& cells, std::vector<int64_t>& counts) {
  Figures figures;
  for (int64_t i = 0; i < size; ++i) {
    const double value = static_cast<double>(values[i]) * factor;
    if (!std::isfinite(value)) {
      ++figures.not_finite;
      continue;
    }
    figures.least = std::min(figures.least, value);
    figures.most = std::max(figures.most, value);
    figures.sum += value;
    figures.sum_of_squares += value * value;
    ++counts[cells.bucket_of(value)];
  }
  return figures;
}

void add(const Figures& figures, Histogram& histogram) {
  histogram.least = std::min(histogram.least, figures.least);
  histogram.most = std::max(histogram.most, figures.most);
  histogram.sum += figures.sum;
  histogram.sum_of_squares += figures.sum_of_squares;
  histogram.not_finite += figures.not_finite;
}

template <class T>
void count_on_host(const T* values, int64_t size, double factor, Histogram& histogram) {
  const int64_t num_blocks = (size + kBlock - 1) / kBlock;
  std::vector<Figures> figures(static_cast<size_t>(num_blocks));
  std::mutex counts_are_added;
  at::parallel_for(0, num_blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> counts(histogram.counts.size());
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      figures[static_cast<size_t>(block)] =
          count_block(values + first, std::min(kBlock, size - first), factor, cells(), counts);
    }
    const std::lock_guard lock(counts_are_added);
    std::transform(counts.begin(), counts.end(), histogram.counts.begin(), histogram.counts.begin(), std::plus<>());
  });
  for (const Figures& of_block : figures) {
    add(of_block, histogram);
  }
}

}  // namespace

const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    const std::vector<double> positive = positive_limits();
    std::vector<double> all;
    std::transform(positive.rbegin(), positive.rend(), std::back_inserter(all), std::negate<>());
    all.push_back(0.0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

size_t bucket_of(double value) {
  return cells().bucket_of(value);
}

int64_t Histogram::size() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void count(const at::Tensor& values, double factor, Histogram& histogram) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const int64_t step = values.is_cpu() ? std::max<int64_t>(values.numel(), 1) : kCopied;
  for (int64_t begin = 0; begin < values.numel(); begin += step) {
    const at::Tensor here = values.narrow(0, begin, std::min(step, values.numel() - begin)).cpu();
    kernels::with_float_type(here.scalar_type(), [&](auto zero) {
      count_on_host(here.const_data_ptr<decltype(zero)>(), here.numel(), factor, histogram);
    });
  }
}

namespace {

// Castagnoli's polynomial. Masked, because a CRC of data that hold their own CRC says little.
uint32_t masked_crc(const std::string& data) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(data.data(), data.size());
  const uint32_t sum = crc.checksum();
  return ((sum >> 15) | (sum << 17)) + 0xA282EAD8U;
}

// Numbers as they lie in memory: little-endian, as the format has them.
template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  return bytes + static_cast<char>(value);
}

// A field's number and the way it is encoded.
enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
std::string key(uint64_t field, Wire wire) {
  return varint(field << 3 | static_cast<uint64_t>(wire));
}

std::string message(uint64_t field, const std::string& content) {
  return key(field, Wire::kLengthDelimited) + varint(content.size()) + content;
}

// Event.wall_time and Event.step.
std::string event_at(int64_t step, double time) {
  return key(1, Wire::kFixed64) + bytes_of(time) + key(2, Wire::kVarint) + varint(static_cast<uint64_t>(step));
}

// Summary.Value: tag and simple_value.
std::string value_of(const Scalar& scalar) {
  return message(1, scalar.first) + key(2, Wire::kFixed32) + bytes_of(static_cast<float>(scalar.second));
}

std::string number(uint64_t field, double value) {
  return key(field, Wire::kFixed64) + bytes_of(value);
}

// HistogramProto (tensorflow/core/framework/summary.proto). Empty buckets are joined to one, as TensorFlow has them.
std::string histogram_of(const Histogram& histogram) {
  const std::vector<double>& limits = bucket_limits();
  std::string ends;
  std::string counts;
  const auto add = [&](size_t bucket) {
    ends += bytes_of(limits[bucket]);
    counts += bytes_of(static_cast<double>(histogram.counts[bucket]));
  };
  for (size_t bucket = 0; bucket < limits.size(); ++bucket) {
    if (histogram.counts[bucket] == 0) continue;
    if (bucket > 0 && histogram.counts[bucket - 1] == 0) add(bucket - 1);
    add(bucket);
  }
  return number(1, histogram.least) + number(2, histogram.most) + number(3, static_cast<double>(histogram.size())) +
         number(4, histogram.sum) + number(5, histogram.sum_of_squares) + message(6, ends) + message(7, counts);
}

// Summary.Value: tag and histo.
void add_value(const std::string& tag, const Histogram& histogram, std::string& summary) {
  if (histogram.size() > 0) {
    summary += message(1, message(1, tag) + message(5, histogram_of(histogram)));
  }
}

}  // namespace

std::string event_record(const std::string& data) {
  const std::string length = bytes_of(static_cast<uint64_t>(data.size()));
  return length + bytes_of(masked_crc(length)) + data + bytes_of(masked_crc(data));
}

void EventFile::open(double time) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw Error(ErrorClass::kCannotCreate, str("cannot make ", folder_, ": ", error.message()));
  }
  path_ = str(folder_, "/events.out.tfevents.", static_cast<int64_t>(time), ".", host_name(), ".", ::getpid());
  file_.reset(::fdopen(open_regular_file(path_, O_WRONLY | O_CREAT | O_EXCL), "w"));
  append(event_at(0, time) + message(3, "brain.Event:2"));  // file_version
}

void EventFile::begin_again_at(int64_t step, double time) {
  if (!file_) open(time);
  const std::string start = key(1, Wire::kVarint) + varint(1);  // SessionLog.status: START
  append(event_at(step, time) + message(7, start));
}

void EventFile::write(int64_t step, double time, const std::vector<Scalar>& scalars) {
  if (!file_) open(time);
  std::string summary;
  for (const Scalar& scalar : scalars) {
    summary += message(1, value_of(scalar));
  }
  append(event_at(step, time) + message(5, summary));
}

void EventFile::write_histograms(int64_t step, double time, const std::vector<ParameterHistograms>& parameters) {
  if (!file_) open(time);
  std::string summary;
  for (const ParameterHistograms& parameter : parameters) {
    add_value("Parameters/" + parameter.name, parameter.weights, summary);
    add_value("Gradients/" + parameter.name, parameter.gradient, summary);
  }
  append(event_at(step, time) + message(5, summary));
}

void EventFile::append(const std::string& event) {
  write_through(file_.get(), event_record(event), path_);
}

namespace {

// A run that was killed may have left half a line: it is ended, so that ours stays whole.
std::FILE* open_to_append(const std::string& path, OldFile old_file) {
  require_folders();
  const int only_new = old_file == OldFile::kRefuse ? O_EXCL : 0;
  std::FILE* file = ::fdopen(open_regular_file(path, O_RDWR | O_APPEND | O_CREAT | only_new), "a+");
  if (std::fseek(file, -1, SEEK_END) == 0 && std::fgetc(file) != '\n') {
    std::fseek(file, 0, SEEK_END);
    std::fputc('\n', file);
  }
  std::fseek(file, 0, SEEK_END);
  return file;
}

// In milliseconds: all that clocks of several nodes agree on.
double now() {
  using Milliseconds = std::chrono::milliseconds;
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<Milliseconds>(since_epoch).count()) / 1e3;
}

// Whether a record of one part of a run stays when it goes on after `last_step`. `step`: of the last record before that
// had one, for which those without count.
bool stays(const std::string& line, int64_t last_step, int64_t& step) {
  const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto name = record.is_object() ? record.find("kind") : record.end();
  if (name == record.end() || !name->is_string()) {
    return false;
  }
  if (const auto of_record = record.find("step"); of_record != record.end() && of_record->is_number_integer()) {
    step = of_record->get<int64_t>();
  }
  const auto kind = name->get<std::string>();
  const bool comes_again = kind == "step" || kind == "epoch" || kind == "valid" || kind == "checkpoint" ||
                           kind == "histograms" || kind == "straggler" || kind == "network";
  return !comes_again || step <= last_step;
}

// "RMSE(t2m)/valid" for each number of an object by channel.
void add_by_channel(std::vector<Scalar>& scalars, const Json& record, const char* key, const char* name) {
  if (const auto found = record.find(key); found != record.end()) {
    for (const auto& [channel, value] : found->items()) {
      scalars.emplace_back(str(name, "(", channel, ")/valid"), value.get<double>());
    }
  }
}

}  // namespace

std::vector<Scalar> scalars_of(const Json& record, int64_t steps) {
  const auto kind = record.value("kind", std::string());
  std::vector<Scalar> scalars;
  const auto add = [&](const char* tag, const char* key) {
    if (const auto found = record.find(key); found != record.end() && found->is_number()) {
      scalars.emplace_back(tag, found->get<double>());
    }
  };
  if (kind == "step") {
    add("Loss/step", "loss");
    add("Learning Rate", "lr");
    add("Gradient norm", "grad_norm");
    add("Samples per sec", "samples_per_s");
  } else if (kind == "epoch") {
    add("Loss/train", "loss");
    add("Avg samples per sec", "samples_per_s");
    scalars.emplace_back("Avg iters per sec", static_cast<double>(steps) / record["duration"].get<double>());
  } else if (kind == "valid") {
    add("Loss/valid", "loss");
    add_by_channel(scalars, record, "rmse", "RMSE");
    add_by_channel(scalars, record, "acc", "ACC");
    add("Top-1/valid", "top1");
    add("Top-5/valid", "top5");
  }
  return scalars;
}

MetricsLog::MetricsLog(const std::string& path, OldFile old_file)
    : path_(path), file_(open_to_append(path, old_file)) {}

void MetricsLog::write(const Json& record) {
  if (!file_) return;
  require_folders();
  Json timed = record;
  const double time = now();
  timed["time"] = time;
  const std::string line = timed.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  write_through(file_.get(), line, path_);
  if (!events_ || !record.contains("step")) return;
  const auto step = record["step"].get<int64_t>();
  if (const auto scalars = scalars_of(record, step - end_of_last_epoch_); !scalars.empty()) {
    events_->write(step, time, scalars);
  }
  if (record.value("kind", std::string()) == "epoch") {
    end_of_last_epoch_ = step;
  }
}

void MetricsLog::write_histograms(const Json& record, const std::vector<ParameterHistograms>& parameters) {
  write(record);
  if (events_) {
    events_->write_histograms(record["step"].get<int64_t>(), now(), parameters);
  }
}

void MetricsLog::cut_after(int64_t step) {
  if (!file_) return;
  if (events_ && step >= 0) {
    end_of_last_epoch_ = step;
    events_->begin_again_at(step + 1, now());
  }
  const Progress progress("reading " + path_);
  std::ifstream old_file(path_);
  if (!old_file) {  // else the new file would be an empty one
    throw Error(ErrorClass::kIo, str("reading '", path_, "' failed: ", reason(errno)));
  }
  WholeFile new_file(path_);
  int64_t step_of_record = 0;
  for (std::string line; std::getline(old_file, line);) {
    if (stays(line, step, step_of_record)) {
      new_file.write(line + '\n');
    }
  }
  if (old_file.bad()) {
    throw Error(ErrorClass::kIo, str("reading '", path_, "' failed: ", reason(errno)));
  }
  new_file.finish();
  file_.reset(open_to_append(path_, OldFile::kAppend));
}

void write_text_file(const std::string& path, const std::string& text) {
  WholeFile file(path);
  file.write(text);
  file.finish();
}

void write_json_file(const std::string& path, const Json& value) {
  write_text_file(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace vit_hybrid::train
