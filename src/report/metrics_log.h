// MetricsLog: metrics.jsonl, one JSON object a line, and the same as curves for TensorBoard (EventFile); summary.json;
// and Histogram: how the values of a tensor are spread, over TensorBoard's buckets, which are the same for every
// tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/base/json.h"
#include "src/base/log.h"

namespace vit_hybrid::train {

/// Upper ends of the buckets, ascending: 1e-12 x 1.1^i below 1e20 with both signs, 0, and the largest double. A bucket
/// has the values from the end of the one before it, which it includes, to its own, which it does not; the first and
/// the last also those beyond. The rule of TensorFlow's tensorflow/core/lib/histogram/histogram.cc.
const std::vector<double>& bucket_limits();

/// The bucket of a value that is no NaN.
size_t bucket_of(double value);

/// What is known of the values that were counted. All but `counts` is of no bucket: of the values themselves.
struct Histogram {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  double sum_of_squares = 0.0;
  int64_t not_finite = 0;  ///< values that are in none of the other figures
  std::vector<int64_t> counts = std::vector<int64_t>(bucket_limits().size());

  /// Values that were finite.
  int64_t size() const;
};

/// Counts the values of a flat tensor of a floating-point type, each multiplied by `factor`. Those of a GPU are copied
/// to the host in pieces. Counts, `least` and `most` do not depend on how values are cut into calls; the sums, in
/// double, depend on it by rounding, and on nothing else.
void count(const at::Tensor& values, double factor, Histogram& histogram);

/// The histograms of one parameter, over the whole tensor.
struct ParameterHistograms {
  std::string name;  ///< as checkpoints have it
  Histogram weights;
  Histogram gradient;
};

/// A point of a curve: its tag and its value.
using Scalar = std::pair<std::string, double>;

/// The bytes of one record: length, data, and the masked CRC-32C of each (TensorFlow's record format,
/// tensorflow/core/lib/io/record_writer.h).
std::string event_record(const std::string& data);

/// A new file events.out.tfevents.* in a folder, of messages tensorflow.Event (tensorflow/core/util/event.proto). It is
/// made, and the folder, when there is something to be written. Functions throw Error(kCannotCreate) and Error(kIo).
class EventFile {
 public:
  explicit EventFile(std::string folder) : folder_(std::move(folder)) {}

  /// What earlier files of the folder have of this step and later ones is shown no longer: it comes again.
  void begin_again_at(int64_t step, double time);
  /// Points at `step`, handed to the operating system; `time` in seconds since 1970-01-01 UTC.
  void write(int64_t step, double time, const std::vector<Scalar>& scalars);
  /// The same of histograms, tagged "Parameters/NAME" and "Gradients/NAME"; those without a finite value are left out.
  void write_histograms(int64_t step, double time, const std::vector<ParameterHistograms>& parameters);

 private:
  void open(double time);
  void append(const std::string& event);

  std::string folder_;
  std::string path_;
  OwnedFile file_;
};

using vit_hybrid::Json;

/// The points that a record of a step, an epoch or a validation is on TensorBoard, under the tags of the reference
/// workload (docs/workload.md, "Recipe") and beside them "Loss/step", "Gradient norm", "Samples per sec",
/// "ACC(channel)/valid", "Top-1/valid" and "Top-5/valid". `steps`: of the epoch. None of other records. Pure.
std::vector<Scalar> scalars_of(const Json& record, int64_t steps);

/// Writes records to a file; without a path (on ranks that do not write) it does nothing.
class MetricsLog {
 public:
  MetricsLog() = default;
  /// Throws Error(kCannotCreate), Error(kBadData) where the path is no regular file, and as require_folders() does.
  explicit MetricsLog(const std::string& path, OldFile old_file = OldFile::kRefuse);
  /// Curves go to `events`, too.
  void show(EventFile events) { events_ = std::move(events); }
  /// Whether records go to a file.
  bool is_open() const { return file_ != nullptr; }

  /// Appends the record, with `time` (seconds since 1970-01-01 UTC) as its last key, as one line and hands it to the
  /// operating system, as long as the folder is this job's (require_folders()). Throws Error(kIo),
  /// Error(kCannotCreate).
  void write(const Json& record);

  /// Appends a record of the kind "histograms", and the histograms to the events. Errors as write()'s.
  void write_histograms(const Json& record, const std::vector<ParameterHistograms>& parameters);

  /// For a run that goes on after `step` (-1: begins anew) in the folder of an earlier part of it: leaves out of the
  /// file the steps, epochs, validations and checkpoints that the part had after that step, which come again, so that
  /// each step is in it once; and what is no record, such as half a line. The file is replaced by a new one as a whole.
  /// Throws Error(kCannotCreate) or Error(kIo).
  void cut_after(int64_t step);

 private:
  std::string path_;
  OwnedFile file_;
  std::optional<EventFile> events_;
  int64_t end_of_last_epoch_ = 0;  // its step
};

/// Writes a text to a file of a folder that is this job's: whoever looks finds the old one or the new one, whole. On
/// the storage when it returns. Throws Error(kCannotCreate) or Error(kIo).
void write_text_file(const std::string& path, const std::string& text);

/// The same with `value`, indented.
void write_json_file(const std::string& path, const Json& value);

}  // namespace vit_hybrid::train
