// EventFile: figures of a run in the format that TensorBoard reads while it is written.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/report/histogram.h"

namespace vit_hybrid::train {

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

}  // namespace vit_hybrid::train
