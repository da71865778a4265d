// CheckpointReader: HDF5 describes the file once, pread moves the bytes.
#include "src/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/hdf5/hdf5_tree.h"
#include "data/reading/box_runs.h"
#include "data/reading/file_seal.h"
#include "parallel/comm/agreement.h"
#include "src/base/memory_tracker.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint_folder.h"

namespace vit_hybrid::train {

namespace {

namespace fs = std::filesystem;
using SortedJson = nlohmann::json;

using Description = CheckpointDescription;

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorClass::kBadData, what, hint);
}

// --- the file's attributes

template <class Value>
void read_attribute(const data::Hdf5AttributeMap& attributes, const char* name, const std::string& path, Value& value) {
  const auto found = attributes.find(name);
  if (found == attributes.end()) {
    refuse(str(path, " has no attribute '", name, "'"), "it is damaged: use an older checkpoint");
  }
  if (!std::holds_alternative<Value>(found->second)) {
    refuse(str("the attribute '", name, "' of ", path, " is of another type than in a checkpoint"),
           "it is damaged: use an older checkpoint");
  }
  value = std::get<Value>(found->second);
}

// Calls `field(name, member)` for all of a CheckpointInfo that a file of its format has, but the format.
template <class Info, class Field>
void for_each_field(Info& info, const Field& field) {
  field("version", info.version);
  field("git_commit", info.git_commit);
  field("libraries", info.libraries);
  field("config", info.config);
  field("model", info.model);
  field("optimizer", info.optimizer);
  field("step", info.step);
  field("optimizer_steps", info.optimizer_steps);
  field("loss_scale", info.loss_scale);
  field("good_steps", info.good_steps);
  field("skipped_steps", info.skipped_steps);
  field("epoch", info.epoch);
  field("samples_of_epoch", info.samples_of_epoch);
  field("seed", info.seed);
  field("num_samples", info.num_samples);
  field("channels", info.channels);
  field("kernels", info.kernels);
  field("layout", info.layout);
  field("metric", info.metric);
  field("metric_value", info.metric_value);
  if (info.format >= kTrainingDataFormat) {
    field("class_names", info.class_names);
    field("means", info.means);
    field("stds", info.stds);
    field("latitudes", info.grid.latitudes);
    field("longitudes", info.grid.longitudes);
  }
  if (info.format >= kSumBlocksFormat) {
    field("sum_blocks", info.sum_blocks);
  }
  if (info.format >= kLeadFormat) {
    field("lead_rows", info.lead.rows);
    field("lead_hours", info.lead.hours);
  }
  if (info.format >= kRolesFormat) {
    field("roles", info.roles);
    field("increment_means", info.increment_means);
    field("increment_stds", info.increment_stds);
  }
  if (info.format >= kUnitsFormat) {
    field("units", info.units);
  }
}

std::vector<std::string> info_names() {
  std::vector<std::string> names = {"format", kChecksumAttribute};
  CheckpointInfo info;
  for_each_field(info, [&](const char* name, const auto&) { names.emplace_back(name); });
  return names;
}

const std::string& text_of(const std::string& value) {
  return value;
}
std::string text_of(const std::vector<double>& value) {
  return join(value);
}
std::string text_of(auto value) {
  return str(value);
}

// Of everything that the file says of itself: a changed digit of the step would go unseen otherwise.
std::string info_checksum(const CheckpointInfo& info) {
  std::string text = str("format ", info.format);
  for_each_field(info, [&](const char* name, const auto& value) { text += str("\n", name, " ", text_of(value)); });
  TensorChecksum checksum;
  checksum.add(name_key(text.c_str()));
  return checksum.text();
}

int64_t format_of(const data::Hdf5AttributeMap& attributes, const std::string& path) {
  const auto found = attributes.find("format");
  if (found == attributes.end() || !std::holds_alternative<int64_t>(found->second)) {
    refuse(str(path, " is an HDF5 file, but no checkpoint: it has no attribute 'format'"),
           "checkpoints are written by vit_hybrid train and vit_hybrid checkpoint import");
  }
  const int64_t format = std::get<int64_t>(found->second);
  if (format < kOldestFormat || format > kCheckpointFormat) {
    const char* const hint = format > kCheckpointFormat ? "a newer vit_hybrid wrote it: use that one"
                                                        : "an older vit_hybrid wrote it: use that one";
    throw OtherFormatError(ErrorClass::kBadData,
                           str(path, " is a checkpoint of format ", format, "; this program reads the formats ",
                               kOldestFormat, " to ", kCheckpointFormat),
                           hint);
  }
  return format;
}

// A file may be sealed by others than this program: what it says of its position is used in sums, products and loops.
void check_positions(const CheckpointInfo& info, const std::string& path) {
  const auto require = [&](const char* name, int64_t value, int64_t most) {
    if (value < 0 || value > most) {
      refuse(str("the attribute '", name, "' of ", path, " is ", value, "; allowed: 0 to ", most),
             "no training came there: use another checkpoint");
    }
  };
  constexpr int64_t kMost = int64_t{1} << 48;  // of samples and iterations, as for the options
  require("step", info.step, kMost);
  require("optimizer_steps", info.optimizer_steps, info.step);
  require("good_steps", info.good_steps, info.step);
  require("skipped_steps", info.skipped_steps, info.step);
  require("epoch", info.epoch, kMost);
  require("num_samples", info.num_samples, kMost);
  require("samples_of_epoch", info.samples_of_epoch, info.num_samples);
  if (!(info.loss_scale >= 0.0 && std::isfinite(info.loss_scale))) {
    refuse(str("the attribute 'loss_scale' of ", path, " is ", info.loss_scale, "; allowed: a finite number from 0 on"),
           "no training came there: use another checkpoint");
  }
}

CheckpointInfo read_info(const data::Hdf5AttributeMap& attributes, const std::string& path) {
  CheckpointInfo info;
  info.format = format_of(attributes, path);
  for_each_field(info, [&](const char* name, auto& value) { read_attribute(attributes, name, path, value); });
  std::string stored;
  read_attribute(attributes, kChecksumAttribute, path, stored);
  if (stored != info_checksum(info)) {
    refuse(str("the attributes of ", path, " have the checksum ", info_checksum(info), ", it was ", stored,
               " when they were written"),
           "the file is damaged: use another checkpoint, or a copy of this one");
  }
  check_training_data(info, path);
  check_positions(info, path);
  return info;
}

// --- the datasets

CheckpointTensor read_entry(const data::Hdf5TreeDataset& dataset, const std::string& path) {
  const std::string where = str(path, ": dataset '", dataset.name, "'");
  if (dataset.offset < 0) {
    refuse(str(where, " has ", dataset.why_not, "; a checkpoint's datasets are contiguous and native"),
           "another program has rewritten the file: use the original");
  }
  if (dataset.type != at::kFloat && dataset.type != at::kDouble) {
    refuse(str(where, " holds ", c10::toString(dataset.type), "; allowed are float32 and float64"),
           "another program has rewritten the file: use the original");
  }
  const auto checksum = dataset.attributes.find(kChecksumAttribute);
  if (checksum == dataset.attributes.end() || !std::holds_alternative<std::string>(checksum->second)) {
    refuse(str(where, " has no text attribute '", kChecksumAttribute, "'"), "it is damaged: use an older checkpoint");
  }
  return {dataset.name, dataset.shape, dataset.type, std::get<std::string>(checksum->second), dataset.offset};
}

// With HDF5 (main thread), on this rank alone.
Description describe_checkpoint(const std::string& path) {
  Description description;
  description.path = resolve_checkpoint(path);
  if (!data::check_seal(description.path)) {
    refuse(str(description.path, " is no checkpoint of the formats ", kOldestFormat, " to ", kCheckpointFormat,
               ": it does not begin with a checkpoint's seal"),
           "checkpoints are written by vit_hybrid train and vit_hybrid checkpoint import; those of format 1, which had "
           "no seal, by an older vit_hybrid: use that one");
  }
  const data::Hdf5Tree tree = data::read_hdf5_tree(description.path, info_names(), {kChecksumAttribute});
  description.file_bytes = tree.file_bytes;
  description.info = read_info(tree.attributes, description.path);
  for (const auto& dataset : tree.datasets) {
    const std::string& name = dataset.name;
    if (name.starts_with(dataset_path(kParametersGroup, "")) || name.starts_with(dataset_path(kOptimizerGroup, ""))) {
      description.tensors.push_back(read_entry(dataset, description.path));
    }
  }
  if (description.tensors.empty()) {
    refuse(str(description.path, " has no datasets under /", kParametersGroup),
           "it is damaged: use an older checkpoint");
  }
  return description;
}

// As bytes for other ranks of the same program, and back.
std::string packed(const Description& description) {
  SortedJson out = {
      {"path", description.path}, {"file_bytes", description.file_bytes}, {"format", description.info.format}};
  for_each_field(description.info, [&](const char* name, const auto& value) { out["info"][name] = value; });
  out["tensors"] = SortedJson::array();
  for (const CheckpointTensor& tensor : description.tensors) {
    out["tensors"].push_back(
        {tensor.path, tensor.shape, static_cast<int64_t>(tensor.type), tensor.checksum, tensor.offset});
  }
  const auto bytes = SortedJson::to_cbor(out);  // unlike JSON's text it holds every text and number
  return {bytes.begin(), bytes.end()};
}

Description unpacked(const std::string& bytes) {
  const SortedJson in = SortedJson::from_cbor(bytes);
  Description description;
  in.at("path").get_to(description.path);
  in.at("file_bytes").get_to(description.file_bytes);
  in.at("format").get_to(description.info.format);
  for_each_field(description.info, [&](const char* name, auto& value) { in.at("info").at(name).get_to(value); });
  for (const SortedJson& tensor : in.at("tensors")) {
    description.tensors.push_back({tensor.at(0), tensor.at(1).get<std::vector<int64_t>>(),
                                   static_cast<at::ScalarType>(tensor.at(2).get<int64_t>()), tensor.at(3),
                                   tensor.at(4)});
  }
  return description;
}

Description described_by_rank_0(const comm::MpiGroup& group, const std::string& path) {
  std::string bytes;
  comm::agreed_on_rank_0(group, [&] { bytes = packed(describe_checkpoint(path)); });
  return unpacked(group.broadcast(std::move(bytes), 0));
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

// A box whose runs lie within so many bytes is read by one call, with what lies between the runs.
constexpr int64_t kOneRead = 16 << 20;

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

std::string resolve_checkpoint(const std::string& path) {
  std::error_code ignored;
  const std::string file = fs::path(path).filename().string();
  if ((file == kLatest || file == kBest) && fs::exists(path, ignored)) {
    return named_by(path);
  }
  if (!fs::is_directory(path, ignored)) {
    return path;
  }
  for (const fs::path& latest : {fs::path(path) / kLatest, fs::path(path) / "checkpoints" / kLatest}) {
    if (fs::exists(latest, ignored)) {
      return named_by(latest.string());
    }
  }
  throw Error(ErrorClass::kMissingInput,
              str("there is no checkpoint in the folder ", path, ": it has no file 'latest'"),
              "give the checkpoint's file itself, or a run's folder");
}

data::Hdf5Attributes info_attributes(const CheckpointInfo& info) {
  data::Hdf5Attributes attributes = {{"format", info.format}};
  for_each_field(info, [&](const char* name, const auto& value) { attributes.emplace_back(name, value); });
  attributes.emplace_back(kChecksumAttribute, info_checksum(info));
  return attributes;
}

CheckpointReader::CheckpointReader(const std::string& path)
    : description_(describe_checkpoint(path)), file_(open(description_)), pool_(std::make_unique<data::TensorPool>()) {}

CheckpointReader::CheckpointReader(const comm::MpiGroup& group, const std::string& path)
    : description_(described_by_rank_0(group, path)),
      file_(comm::agreed(group, [&] { return open(description_); })),
      pool_(std::make_unique<data::TensorPool>()) {}

const CheckpointTensor* CheckpointReader::find(const std::string& dataset) const {
  const auto found = std::lower_bound(tensors().begin(), tensors().end(), dataset,
                                      [](const CheckpointTensor& a, const std::string& b) { return a.path < b; });
  return found != tensors().end() && found->path == dataset ? &*found : nullptr;
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
  const at::Tensor values = pool_->take(at::IntArrayRef(size.data(), size.size()), tensor->type);
  read_runs(file_, runs_of_box(*tensor, start, size), static_cast<char*>(values.mutable_data_ptr()));
  return values;
}

at::Tensor CheckpointReader::read(const std::string& dataset) const {
  const CheckpointTensor* const tensor = find(dataset);
  const std::vector<int64_t> shape = tensor == nullptr ? std::vector<int64_t>() : tensor->shape;
  return read(dataset, std::vector<int64_t>(shape.size(), 0), shape);
}

void require_trained_data(const TrainingData& trained, const std::string& checkpoint, const TrainingData& given,
                          const std::string& data) {
  const auto require = [&](const std::string& difference, const char* hint) {
    if (!difference.empty()) {
      refuse(str(difference, " (data ", data, ", checkpoint ", checkpoint, ")"), hint);
    }
  };
  require(channels_difference(trained, given.channels), "give data with the same channels in the same order");
  require(units_difference(trained, given.units), "convert the values of the data");
  require(grid_difference(trained, given.grid),
          "give data on the grid of the training, with rows and columns in the same order");
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
