// Event files against the format's definition, byte by byte, and the tags of records.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/report/metrics_log.h"
#include "tests/support/scratch_folder.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using namespace vit_hybrid::testing;

namespace {

// Bit by bit, as RFC 3720, section 12.1 has it.
uint32_t crc32c(const std::string& data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : data) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~crc;
}

uint32_t masked(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The data of the records of a file, whose lengths and checksums must be right.
std::vector<std::string> records_of(const std::string& bytes) {
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    CHECK(number_at<uint32_t>(bytes, at + 8) == masked(crc32c(bytes.substr(at, 8))));
    records.push_back(bytes.substr(at + 12, length));
    CHECK(number_at<uint32_t>(bytes, at + 12 + length) == masked(crc32c(records.back())));
    at += 16 + length;
  }
  return records;
}

std::string only_file_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().string());
  }
  REQUIRE(names.size() == 1);
  CHECK(names[0].find("/events.out.tfevents.") != std::string::npos);
  std::ostringstream content;
  content << std::ifstream(names[0], std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace

TEST_CASE("event file: checksums are RFC 3720's") {
  CHECK(crc32c("123456789") == 0xE3069283U);
  const std::string record = event_record("123456789");
  REQUIRE(record.size() == 12 + 9 + 4);
  CHECK(number_at<uint32_t>(record, 21) == masked(0xE3069283U));
}

TEST_CASE("event file: version, a new beginning, and points, each a record") {
  const ScratchFolder folder;
  const std::string path = folder.file("tensorboard");
  {
    EventFile events(path);
    CHECK_FALSE(std::filesystem::exists(path));
    events.begin_again_at(300, 2.5);
    events.write(300, 3.0, {{"Loss/train", 0.5}, {"x", -1.0}});
  }
  const auto records = records_of(only_file_of(path));
  REQUIRE(records.size() == 3);
  CHECK(
      records[0].ends_with("\x1A\x0D"
                           "brain.Event:2"));
  // wall_time 2.5, step 300 (two bytes), session_log {status: START}
  CHECK(records[1].substr(0, 1) == "\x09");
  CHECK(number_at<double>(records[1], 1) == 2.5);
  CHECK(records[1].substr(9) == std::string("\x10\xAC\x02\x3A\x02\x08\x01"));
  const std::string& points = records[2];
  CHECK(number_at<double>(points, 1) == 3.0);
  // summary of 17 + 2 and 8 + 2 bytes
  CHECK(points.substr(9, 5) == std::string("\x10\xAC\x02\x2A\x1D"));
  CHECK(points.substr(14, 14) == "\x0A\x11\x0A\x0ALoss/train");
  CHECK(points.substr(28, 1) == "\x15");
  CHECK(number_at<float>(points, 29) == 0.5F);
  CHECK(points.substr(33, 5) == "\x0A\x08\x0A\x01x");
  CHECK(number_at<float>(points, 39) == -1.0F);
}

TEST_CASE("event file: histograms, with empty buckets joined to one") {
  const ScratchFolder folder;
  const std::string path = folder.file("tensorboard");
  Histogram weights;
  weights.least = -2.5;
  weights.most = 0.5;
  weights.sum = -2.0;
  weights.sum_of_squares = 6.5;
  weights.counts[bucket_of(-2.5)] = 1;
  weights.counts[bucket_of(0.5)] = 2;
  Histogram gradient;  // of which nothing is finite
  gradient.not_finite = 3;
  EventFile(path).write_histograms(7, 3.0, {{"norm.bias", weights, gradient}});
  const auto records = records_of(only_file_of(path));
  REQUIRE(records.size() == 2);
  const std::string& event = records[1];
  CHECK(number_at<double>(event, 1) == 3.0);
  // step 7; summary and its one value, 140 and 137 bytes, each told in two
  CHECK(event.substr(9, 8) == std::string("\x10\x07\x2A\x8C\x01\x0A\x89\x01"));
  CHECK(event.substr(17, 22) == "\x0A\x14Parameters/norm.bias");
  CHECK(event.substr(39, 2) == "\x2A\x71");  // histo of 113 bytes: 5 x 9 of figures, 2 x (2 + 4 x 8) of buckets
  const std::string histogram = event.substr(41);
  REQUIRE(histogram.size() == 113);
  for (const auto& [at, value] :
       std::vector<std::pair<size_t, double>>{{0, -2.5}, {1, 0.5}, {2, 3.0}, {3, -2.0}, {4, 6.5}}) {
    CHECK(histogram[9 * at] == static_cast<char>((at + 1) << 3 | 1));
    CHECK(number_at<double>(histogram, 9 * at + 1) == value);
  }
  const auto& limits = bucket_limits();
  const std::vector<double> wanted = {limits[bucket_of(-2.5) - 1],
                                      limits[bucket_of(-2.5)],
                                      limits[bucket_of(0.5) - 1],
                                      limits[bucket_of(0.5)],
                                      0,
                                      1,
                                      0,
                                      2};
  for (size_t i = 0; i < wanted.size(); ++i) {
    CHECK(number_at<double>(histogram, 47 + 8 * i + (i < 4 ? 0 : 2)) == wanted[i]);
  }
}

TEST_CASE("event file: records of a run under the workload's tags") {
  const auto tags = [](const Json& record) {
    std::string out;
    for (const auto& [tag, value] : scalars_of(record, 4)) {
      out += tag + "=" + std::to_string(value).substr(0, 4) + " ";
    }
    return out;
  };
  CHECK(tags({{"kind", "step"}, {"lr", 0.25}, {"loss", 1.5}, {"grad_norm", 2.0}, {"samples_per_s", 8.0}}) ==
        "Loss/step=1.50 Learning Rate=0.25 Gradient norm=2.00 Samples per sec=8.00 ");
  CHECK(tags({{"kind", "epoch"}, {"loss", 1.5}, {"samples_per_s", 8.0}, {"duration", 2.0}}) ==
        "Loss/train=1.50 Avg samples per sec=8.00 Avg iters per sec=2.00 ");
  CHECK(tags({{"kind", "valid"}, {"loss", 1.5}, {"rmse", {{"u10m", 0.5}}}, {"acc", {{"u10m", 0.75}}}}) ==
        "Loss/valid=1.50 RMSE(u10m)/valid=0.50 ACC(u10m)/valid=0.75 ");
  CHECK(tags({{"kind", "valid"}, {"loss", 1.5}, {"top1", 0.5}, {"top5", 0.75}}) ==
        "Loss/valid=1.50 Top-1/valid=0.50 Top-5/valid=0.75 ");
  CHECK(tags({{"kind", "checkpoint"}, {"step", 3}}).empty());
}
