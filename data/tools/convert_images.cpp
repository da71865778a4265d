// Listing, shuffling, decoding and writing of an image folder.
#include "data/tools/convert_images.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "data/hdf5/hdf5_writer.h"
#include "data/loading/sampler.h"
#include "data/reading/posix_file.h"
#include "data/tools/image_folder.h"
#include "data/tools/tool_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 64;                 // images between two writes
constexpr size_t kMostAttributeBytes = 60000;  // HDF5's limit is 64 KiB for all attributes of an object

std::vector<uint8_t> read_bytes(const std::string& path) {
  const PosixFile file(path, PosixFile::Access::kRead);
  if (file.size() > kMostImageBytes) {
    throw Error(ErrorClass::kBadData, str(path, " has ", file.size(), " bytes; allowed are ", kMostImageBytes),
                "make it smaller, remove it, or leave such files out with --skip-bad");
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(file.size()));
  file.read(0, bytes.data(), static_cast<int64_t>(bytes.size()));
  return bytes;
}

// Before anything is decoded, and before a folder is made that a refusal would leave.
void prepare_output(const ConvertOptions& options, const std::vector<LabelledFile>& files) {
  std::error_code ignored;
  if (fs::exists(options.out, ignored)) {
    for (const LabelledFile& file : files) {
      refuse_input(options.out, "--out", file.path);
    }
  }
  const fs::path folder = fs::path(options.out).parent_path();
  check_room(folder.string(), std::ssize(files) * options.size * options.size * 3);
  if (!folder.empty()) {
    make_output_folder(folder.string());
  }
}

// The list of rank 0 on all ranks.
ImageFolder list_for_all(const comm::MpiGroup& group, const std::string& folder) {
  ImageFolder list;
  comm::agreed_on_rank_0(group, [&] { list = list_image_folder(folder); });
  std::vector<std::string> paths;
  std::vector<int64_t> counts(list.classes.size(), 0);
  for (const LabelledFile& file : list.files) {
    paths.push_back(file.path);
    ++counts[static_cast<size_t>(file.label)];
  }
  list.classes = broadcast_lines(group, list.classes);
  paths = broadcast_lines(group, paths);
  counts.resize(list.classes.size());
  group.broadcast(counts.data(), static_cast<int64_t>(counts.size() * sizeof(int64_t)), 0);
  list.num_ignored = group.sum(list.num_ignored);
  list.num_stray = group.sum(list.num_stray);
  list.files.clear();
  for (size_t label = 0, i = 0; label < counts.size(); ++label) {
    for (int64_t k = 0; k < counts[label]; ++k) {
      list.files.push_back({std::move(paths[i++]), static_cast<int64_t>(label)});
    }
  }
  return list;
}

std::vector<LabelledFile> shuffled(const std::vector<LabelledFile>& files, uint64_t seed) {
  SamplerOptions order;
  order.num_samples = static_cast<int64_t>(files.size());
  order.global_batch_size = order.num_samples;
  order.seed = seed;
  std::vector<LabelledFile> result;
  const EpochPlan plan(order, 0);
  for (const int64_t i : plan.batch(0)) {
    result.push_back(files[static_cast<size_t>(i)]);
  }
  return result;
}

std::vector<Hdf5DatasetSpec> datasets_of(const ConvertOptions& options, int64_t num_images, const std::string& names) {
  const bool fits = names.size() <= kMostAttributeBytes;
  std::vector<Hdf5DatasetSpec> specs{
      {"images", {num_images, options.size, options.size, 3}, at::kByte, {}},
      {"labels", {num_images}, at::kLong, fits ? Hdf5Attributes{{"classes", names}} : Hdf5Attributes{}}};
  if (!fits) {
    specs.push_back(
        {"class_names", {static_cast<int64_t>(names.size())}, at::kByte, {{"separator", std::string(",")}}});
  }
  return specs;
}

// One attempt at a file of all of `files`, which is finished only if every one of them could be decoded.
class Conversion {
 public:
  Conversion(const comm::MpiGroup& group, const ConvertOptions& options, const std::vector<LabelledFile>& files,
             const std::string& class_names)
      : group_(group),
        options_(options),
        files_(files),
        rows_(std::ssize(files), group.size()),
        file_(group, options.out, datasets_of(options, rows_.count(), class_names)),
        bad_(at::zeros({rows_.count()}, at::kInt)) {
    comm::agreed_on_rank_0(group_, [&] {
      if (class_names.size() > kMostAttributeBytes) {
        const at::Tensor bytes = at::empty({std::ssize(class_names)}, at::kByte);
        std::memcpy(bytes.mutable_data_ptr(), class_names.data(), class_names.size());
        file_.write("class_names", std::array<int64_t, 1>{0}, bytes);
      }
    });
  }

  void run() {
    const Range mine = rows_.part(group_.rank());
    Progress progress("converting images into " + options_.out, rows_.largest());
    for (int64_t done = 0; done < rows_.largest(); done += kBlock) {
      comm::agreed(group_, [&] {
        const int64_t begin = std::min(mine.begin + done, mine.end);
        write_block({begin, std::min(begin + kBlock, mine.end)});
      });
      progress.add(kBlock);
    }
    const auto communicator = comm::make_communicator("data", group_.duplicate(), at::kCPU);
    communicator->all_reduce(bad_, comm::ReduceOp::kSum).wait();
    num_bad_ = bad_.sum().item<int64_t>();
    if (num_bad_ == 0) {
      file_.finish();
    }
  }

  int64_t num_bad() const { return num_bad_; }
  bool is_bad(int64_t row) const { return bad_.const_data_ptr<int>()[row] != 0; }
  /// What is wrong with the files of all ranks, in their order.
  std::vector<std::string> messages() const {
    std::vector<std::string> all;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const auto of_rank = broadcast_lines(group_, messages_, rank);
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    return all;
  }

 private:
  void write_block(Range rows) {
    if (rows.empty()) {
      return;
    }
    const int64_t bytes = options_.size * options_.size * 3;
    const at::Tensor images = at::zeros({rows.size(), options_.size, options_.size, 3}, at::kByte);
    const at::Tensor labels = at::empty({rows.size()}, at::kLong);
    std::vector<std::optional<Error>> errors(static_cast<size_t>(rows.size()));
    at::parallel_for(0, rows.size(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        comm::note_work();
        uint8_t* to = images.mutable_data_ptr<uint8_t>() + i * bytes;
        errors[static_cast<size_t>(i)] = convert(file_of(rows.begin + i).path, {to, static_cast<size_t>(bytes)});
      }
    });
    for (int64_t i = 0; i < rows.size(); ++i) {
      labels.mutable_data_ptr<int64_t>()[i] = file_of(rows.begin + i).label;
      if (const auto& error = errors[static_cast<size_t>(i)]) {
        note_bad(rows.begin + i, *error);
      }
    }
    file_.write("images", std::array<int64_t, 4>{rows.begin, 0, 0, 0}, images);
    file_.write("labels", std::array<int64_t, 1>{rows.begin}, labels);
  }

  // Any thread.
  std::optional<Error> convert(const std::string& path, std::span<uint8_t> to) const {
    try {
      store_image(decode_image(read_bytes(path), path), options_, to);
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }

  void note_bad(int64_t row, const Error& error) {
    if (!options_.skip_bad || error.error_class() != ErrorClass::kBadData) {
      throw Error(error);
    }
    bad_.mutable_data_ptr<int>()[row] = 1;
    messages_.push_back(error.message());
  }

  const LabelledFile& file_of(int64_t row) const { return files_[static_cast<size_t>(row)]; }

  const comm::MpiGroup& group_;
  const ConvertOptions& options_;
  const std::vector<LabelledFile>& files_;
  const Partition rows_;
  Hdf5Writer file_;
  at::Tensor bad_;  // 1 for each row without an image
  int64_t num_bad_ = 0;
  std::vector<std::string> messages_;
};

std::vector<LabelledFile> without_bad(const std::vector<LabelledFile>& files, const Conversion& conversion) {
  std::vector<LabelledFile> good;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!conversion.is_bad(static_cast<int64_t>(i))) {
      good.push_back(files[i]);
    }
  }
  return good;
}

}  // namespace

Crop stored_crop(int64_t height, int64_t width, int64_t size, ConvertResize resize) {
  if (resize == ConvertResize::kBoth) {
    return center_crop(height, width, size, size);
  }
  const int64_t shorter = std::min(height, width);
  const auto resized = [&](int64_t side) { return side * size / shorter; };
  const auto along = [&](int64_t side, double& start, double& extent) {
    const double scale = static_cast<double>(side) / static_cast<double>(resized(side));
    const int64_t margin = (resized(side) - size) / 2;
    start = static_cast<double>(margin) * scale;
    extent = static_cast<double>(size) * scale;
  };
  Crop crop;
  crop.edge = CropEdge::kImage;
  along(height, crop.top, crop.height);
  along(width, crop.left, crop.width);
  return crop;
}

void store_image(const DecodedImage& image, const ConvertOptions& options, std::span<uint8_t> to) {
  const DecodedImage turned = options.orientation == Orientation::kApply ? upright(image) : image;
  const Crop crop = stored_crop(turned.height, turned.width, options.size, options.resize);
  resize_crop(turned.pixels, turned.height, turned.width, crop, options.size, to, options.interpolation);
}

ConvertedImages convert_images(const comm::MpiGroup& group, const ConvertOptions& options) {
  comm::agreed_on_rank_0(group, [&] { refuse_existing(options.out, options.overwrite); });
  const ImageFolder list = list_for_all(group, options.inputs.front());
  std::vector<LabelledFile> files = shuffled(list.files, options.seed);
  comm::agreed_on_rank_0(group, [&] { prepare_output(options, files); });
  ConvertedImages result;
  result.num_classes = std::ssize(list.classes);
  result.num_ignored = list.num_ignored;
  result.num_stray = list.num_stray;
  // The number of rows is known only when all files were decoded: with bad ones among them it is done again without.
  for (bool is_done = false; !is_done;) {
    Conversion conversion(group, options, files, join(list.classes, ","));
    conversion.run();
    is_done = conversion.num_bad() == 0;
    if (!is_done) {
      const auto messages = conversion.messages();
      result.bad.insert(result.bad.end(), messages.begin(), messages.end());
      files = without_bad(files, conversion);
      comm::agreed(group, [&] {
        if (files.empty()) {
          throw Error(ErrorClass::kBadData, str("none of the images of ", options.inputs.front(), " can be decoded"),
                      result.bad.front());
        }
      });
    }
  }
  result.num_images = std::ssize(files);
  return result;
}

}  // namespace vit_hybrid::data
