// CheckpointReader: HDF5 describes the file once, pread moves the bytes.
#include "src/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>

#include "data/loading/tensor_pool.h"
#include "data/reading/box_runs.h"
#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_description.h"

namespace vit_hybrid::train {

namespace {

using Description = CheckpointDescription;

// A box whose runs lie within so many bytes is read by one call, with what lies between the runs.
constexpr int64_t kOneRead = 16 << 20;

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorClass::kBadData, what, hint);
}

data::PosixFile open(const Description& description) {
  data::PosixFile file(description.path, data::PosixFile::Access::kRead);
  if (file.size() != description.file_bytes) {
    refuse(str(description.path, " has ", file.size(), " bytes here, but ", description.file_bytes, " on rank 0"),
           "all nodes must see the same file");
  }
  return file;
}

// --- boxes of datasets

// Bytes that lie together in the file and in the box.
struct Run {
  int64_t from;
  int64_t to;
  int64_t count;
};

void check_box(const CheckpointTensor& tensor, std::span<const int64_t> start, std::span<const int64_t> size,
               const std::string& path) {
  const std::vector<int64_t>& shape = tensor.shape;
  bool fits = start.size() == shape.size() && size.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = start[d] >= 0 && size[d] >= 0 && size[d] <= shape[d] && start[d] <= shape[d] - size[d];
  }
  if (!fits) {
    refuse(str(path, ": dataset '", tensor.path, "' is ", join(shape, " x "), ", which does not hold the box at ",
               join(start), " of ", join(size, " x ")),
           "the checkpoint is of another model");
  }
}

std::vector<Run> runs_of_box(const CheckpointTensor& tensor, std::span<const int64_t> start,
                             std::span<const int64_t> size) {
  const auto item = static_cast<int64_t>(c10::elementSize(tensor.type));
  std::vector<Run> runs;
  data::for_each_run(size, {tensor.shape, {start.begin(), start.end()}},
                     {{size.begin(), size.end()}, std::vector<int64_t>(size.size(), 0)},
                     [&](int64_t in_file, int64_t in_box, int64_t count) {
                       runs.push_back({tensor.offset + in_file * item, in_box * item, count * item});
                     });
  return runs;
}

void read_runs(const data::PosixFile& file, const std::vector<Run>& runs, char* to) {
  if (runs.empty()) {
    return;
  }
  const int64_t begin = runs.front().from;
  const int64_t span = runs.back().from + runs.back().count - begin;
  if (runs.size() == 1 || span > kOneRead) {
    for (const Run& run : runs) {
      file.read(run.from, to + run.to, run.count);
    }
    return;
  }
  std::vector<char> bytes(static_cast<size_t>(span));
  file.read(begin, bytes.data(), span);
  for (const Run& run : runs) {
    std::memcpy(to + run.to, bytes.data() + (run.from - begin), static_cast<size_t>(run.count));
  }
}

}  // namespace

struct CheckpointReader::State {
  State(Description of_file, data::PosixFile open_file) : description(std::move(of_file)), file(std::move(open_file)) {}

  Description description;
  data::PosixFile file;
  data::TensorPool pool;  // fresh memory for every box would cost more than reading it
};

CheckpointReader::CheckpointReader(const std::string& path) {
  Description description = describe_checkpoint(path);
  data::PosixFile file = open(description);
  state_ = std::make_unique<State>(std::move(description), std::move(file));
}

CheckpointReader::CheckpointReader(const comm::MpiGroup& group, const std::string& path) {
  std::string bytes;
  comm::agreed_on_rank_0(group, [&] { bytes = pack_checkpoint(describe_checkpoint(path)); });
  Description description = unpack_checkpoint(group.broadcast(std::move(bytes), 0));
  data::PosixFile file = comm::agreed(group, [&] { return open(description); });
  state_ = std::make_unique<State>(std::move(description), std::move(file));
}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

const std::string& CheckpointReader::path() const {
  return state_->description.path;
}

const CheckpointInfo& CheckpointReader::info() const {
  return state_->description.info;
}

const std::vector<CheckpointTensor>& CheckpointReader::tensors() const {
  return state_->description.tensors;
}

const CheckpointTensor* CheckpointReader::find(const std::string& dataset) const {
  const auto& tensors = state_->description.tensors;
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), dataset,
                                      [](const CheckpointTensor& a, const std::string& b) { return a.path < b; });
  return found != tensors.end() && found->path == dataset ? &*found : nullptr;
}

std::vector<std::string> CheckpointReader::parameter_names() const {
  const std::string prefix = dataset_path(kParametersGroup, "");
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : tensors()) {
    if (tensor.path.starts_with(prefix)) {
      names.push_back(tensor.path.substr(prefix.size()));
    }
  }
  return names;
}

bool CheckpointReader::has_optimizer() const {
  return !info().optimizer.empty();
}

std::vector<std::string> CheckpointReader::optimizer_states() const {
  const std::string prefix = dataset_path(kOptimizerGroup, "");
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : tensors()) {
    if (tensor.path.starts_with(prefix)) {
      std::string name = tensor.path.substr(prefix.size(), tensor.path.find('/', prefix.size()) - prefix.size());
      if (names.empty() || names.back() != name) {
        names.push_back(std::move(name));
      }
    }
  }
  return names;
}

at::Tensor CheckpointReader::read(const std::string& dataset, std::span<const int64_t> start,
                                  std::span<const int64_t> size) const {
  const CheckpointTensor* const tensor = find(dataset);
  if (tensor == nullptr) {
    refuse(str(path(), " has no dataset '", dataset, "'"), "the checkpoint is of another model");
  }
  check_box(*tensor, start, size, path());
  const MemoryScope scope(MemoryClass::kData);
  const at::Tensor values = state_->pool.take(at::IntArrayRef(size.data(), size.size()), tensor->type);
  read_runs(state_->file, runs_of_box(*tensor, start, size), static_cast<char*>(values.mutable_data_ptr()));
  return values;
}

at::Tensor CheckpointReader::read(const std::string& dataset) const {
  const CheckpointTensor* const tensor = find(dataset);
  const std::vector<int64_t> shape = tensor == nullptr ? std::vector<int64_t>() : tensor->shape;
  return read(dataset, std::vector<int64_t>(shape.size(), 0), shape);
}

void require_trained_data(const CheckpointReader& checkpoint, const TrainingData& given) {
  const CheckpointInfo& info = checkpoint.info();
  if (const std::string difference = channels_difference(info, given.channels); !difference.empty()) {
    refuse(str(difference, " (", checkpoint.path(), ")"), "give data with the same channels in the same order");
  }
  if (const std::string difference = grid_difference(info, given.grid); !difference.empty()) {
    refuse(str(difference, " (", checkpoint.path(), ")"),
           "give data on the grid of the training, with rows and columns in the same order");
  }
}

std::optional<std::string> earlier_format_line(const CheckpointReader& checkpoint) {
  if (checkpoint.info().format >= kTrainingDataFormat) {
    return std::nullopt;
  }
  return str(checkpoint.path(), " is of format ", checkpoint.info().format,
             ", without statistics, class names and coordinates: statistics are those of the files that its training "
             "named or the options name, latitudes those of the data, and classes go by their numbers");
}

}  // namespace vit_hybrid::train
