// Records, and the few fields of the messages in them, written as Protocol Buffers are encoded.
#include "src/report/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/crc.hpp>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

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

}  // namespace vit_hybrid::train
