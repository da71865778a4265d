// ClassPredictions: what a classifier predicts of every sample: probabilities for a file, and pairs of label and class.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::train {

/// What of the probabilities is asked for.
struct PredictionOptions {
  std::string path = {};       ///< .csv or .h5; empty: no file
  int64_t top = 0;             ///< classes a sample, the most probable ones; 0: all
  std::string confusion = {};  ///< .csv or .json; empty: no file
};

/// The predictions of one step on rank 0, samples in their order.
struct PredictedStep {
  int64_t first_sample = 0;
  at::Tensor labels;         ///< int64 [n]
  at::Tensor classes;        ///< int64 [n, k]: the most probable classes, of equal ones the lower first
  at::Tensor probabilities;  ///< double [n, k] of them, or [n, classes] of all classes in their order
};

/// Gathers what the last stages predict, in any layout. The samples of a step are consecutive.
class ClassPredictions {
 public:
  using Take = std::function<void(const PredictedStep&)>;

  /// `top` classes a sample; 0: probabilities of all `num_classes` and the most probable class. `take` is called on
  /// rank 0 of `world` (which outlives this) after each step; what it throws all ranks throw.
  ClassPredictions(int64_t num_classes, int64_t top, const comm::MpiGroup& world, Take take);

  /// A micro-batch's, on the one rank of a replica that counts: logits [n, classes], labels [n]. Probabilities are the
  /// softmax in double.
  void add(std::span<const int64_t> samples, const at::Tensor& logits, const at::Tensor& labels);
  /// After the micro-batches of a step. `host_world`: the ranks of `world`. Collective.
  void end_step(std::span<const int64_t> samples, comm::Communicator& host_world);

 private:
  struct MicroBatch {
    int64_t first_sample;
    at::Tensor rows;  // double [n, columns]: label, classes, probabilities
  };

  int64_t num_listed() const { return top_ > 0 ? top_ : 1; }
  int64_t num_probabilities() const { return top_ > 0 ? top_ : num_classes_; }
  int64_t num_columns() const { return 1 + num_listed() + num_probabilities(); }

  int64_t num_classes_;
  int64_t top_;
  const comm::MpiGroup& world_;
  Take take_;
  std::vector<MicroBatch> rows_;
};

/// A file of predictions, for one rank. There as a whole after finish(), or not at all.
class PredictionFile {
 public:
  virtual ~PredictionFile() = default;
  /// Steps in their order. Error(kIo).
  virtual void write(const PredictedStep& step) = 0;
  /// Error(kIo), Error(kCannotCreate).
  virtual void finish() = 0;
};

/// By the ending of the name:
///   .csv  a line a sample: sample, class, then the probability of each class in a column of its name, or with `top`
///         the probability of the class, and class_2, probability_2, ...; fields are quoted as in RFC 4180 where they
///         must be
///   .h5   `class` int64 [n], `probabilities` float32 [n, classes] in the order of the classes; with `top`: `classes`
///         int64 [n, top] and `probabilities` float32 [n, top], the most probable first. The attribute `classes` of the
///         file names them.
/// Of samples 0 .. `num_samples` - 1. Error(kCannotCreate); Error(kUsage) for another ending. `self`: this rank alone,
/// outlives the file.
std::unique_ptr<PredictionFile> make_prediction_file(const PredictionOptions& options, std::vector<std::string> classes,
                                                     int64_t num_samples, const comm::MpiGroup& self);

/// How often samples of a class (row) were taken for a class (column); only pairs that occur are kept.
class ConfusionMatrix {
 public:
  /// `classes`: their names.
  explicit ConfusionMatrix(std::vector<std::string> classes) : classes_(std::move(classes)) {}

  void add(const PredictedStep& step);
  int64_t at(int64_t label, int64_t predicted) const;
  /// For people: the matrix of at most 20 classes, else the pairs that are confused most often.
  std::vector<std::string> lines() const;
  /// .csv: a first row of names, and a row a class, its name first. .json: {"classes": [name], "matrix": [[count]]}, a
  /// row a class. Error(kCannotCreate), Error(kIo).
  void write(const std::string& path) const;

 private:
  std::vector<std::string> table() const;
  std::vector<std::string> most_confused() const;

  std::vector<std::string> classes_;
  std::map<std::pair<int64_t, int64_t>, int64_t> counts_;
};

/// `count` names: those of a text with commas between them, and numbers for those that it does not have.
std::vector<std::string> class_names(const std::string& names, int64_t count);

/// A field of a CSV file, in quotes where it has commas, quotes, line breaks or blanks at its ends (RFC 4180).
std::string csv_field(const std::string& text);

}  // namespace vit_hybrid::train
