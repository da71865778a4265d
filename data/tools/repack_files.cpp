// Choices and checks before anything is written; then plan, structure, rows and check of each file.
#include "data/tools/repack_files.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "data/hdf5/hdf5_copy.h"
#include "data/hdf5/hdf5_tree.h"
#include "data/reading/box_runs.h"
#include "data/reading/row_source.h"
#include "data/tools/tool_files.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/make_communicator.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace fs = std::filesystem;

namespace {

std::string repacked_path(const RepackOptions& options, const std::string& input) {
  return (fs::path(options.out) / fs::path(input).filename()).string();
}

// Error(kUsage) if a file would be rewritten in place or two would get one name, Error(kCannotCreate) if one is there
// and may not be replaced.
void check_repacked_paths(const RepackOptions& options, const std::vector<std::string>& inputs) {
  std::map<std::string, std::string> from;
  for (const std::string& input : inputs) {
    const std::string output = repacked_path(options, input);
    std::error_code error;
    if (fs::exists(output, error) && fs::equivalent(input, output, error)) {
      throw Error(ErrorClass::kUsage, str("--out ", options.out, " is the folder of ", input, " itself"),
                  "give another folder: a file is not rewritten in place");
    }
    refuse_existing(output, options.overwrite);
    const auto [other, is_new] = from.emplace(output, input);
    if (!is_new) {
      throw Error(ErrorClass::kUsage, str(input, " and ", other->second, " would both become ", output),
                  "repack them into different folders");
    }
  }
}

// The dataset that is asked for, or the one that training reads. Error(kUsage) if the file has none of the usual names.
std::string repacked_dataset(const RepackOptions& options, const std::string& path) {
  if (!options.dataset.empty()) {
    return options.dataset;
  }
  std::vector<std::string> names;
  for (const auto& dataset : read_hdf5_tree(path, {}, {}).datasets) {
    names.push_back(dataset.name);
  }
  for (const char* usual : {"fields", "images"}) {
    if (std::find(names.begin(), names.end(), usual) != names.end()) {
      return usual;
    }
  }
  throw Error(ErrorClass::kUsage,
              str(path, " has neither 'fields' nor 'images' in it; it has ",
                  names.empty() ? "no dataset of its own" : join(names)),
              "say with --dataset NAME which of them to rewrite");
}

at::ScalarType repacked_type(RepackType wanted, at::ScalarType old) {
  switch (wanted) {
    case RepackType::kFloat32:
      return at::kFloat;
    case RepackType::kBFloat16:
      return at::kBFloat16;
    case RepackType::kFloat16:
      return at::kHalf;
    case RepackType::kKeep:
      break;
  }
  return old;
}

constexpr int64_t kRowBlockBytes = int64_t{16} << 20;  // of the rows between two writes

// One file on its way, under its temporary name until finish().
class Repacking {
 public:
  Repacking(const comm::MpiGroup& group, const RepackOptions& options, std::string input)
      : group_(group),
        input_(std::move(input)),
        output_(repacked_path(options, input_)),
        temporary_(temporary_name(output_)),
        source_(group, {input_}, chosen_dataset(options), "", IoMode::kAuto),
        old_(source_.files().front().layout),
        type_(repacked_type(options.type, old_.type)),
        rows_(old_.num_rows(), rows_read_together(old_), group.size()) {
    comm::agreed(group_, [&] { check(options); });
    rewrite_ = {old_.name, type_, {}, options.align};
    if (options.layout == RepackLayout::kSampleChunks) {
      rewrite_.chunk = old_.shape;
      rewrite_.chunk.front() = 1;
    }
    comm::agreed_on_rank_0(group_, [&] { check_room(options.out, old_.num_rows() * row_bytes()); });
  }
  ~Repacking() {
    if (!finished_ && group_.rank() == 0) {
      std::remove(temporary_.c_str());
    }
  }
  Repacking(const Repacking&) = delete;
  Repacking& operator=(const Repacking&) = delete;

  RepackedFile run() {
    comm::agreed_on_rank_0(group_, [&] { copy_hdf5_structure(input_, temporary_, rewrite_); });
    const RowSource target(group_, {temporary_}, old_.name, "", IoMode::kAuto);
    comm::agreed(group_, [&] { check_target(target.files().front().layout); });
    const at::Tensor checksums = at::zeros({rows_.count()}, at::kLong);
    write(target.files().front().layout, checksums);
    const auto communicator = comm::make_communicator("data", group_.duplicate(), at::kCPU);
    communicator->all_reduce(checksums, comm::ReduceOp::kSum).wait();
    verify(checksums);
    finish();
    return {output_, old_.file_bytes, target.files().front().layout.file_bytes, num_elements(old_.shape),
            group_.sum(num_blurred_)};
  }

 private:
  std::string chosen_dataset(const RepackOptions& options) const {
    std::string name;
    comm::agreed_on_rank_0(group_, [&] { name = repacked_dataset(options, input_); });
    return group_.broadcast(name, 0);
  }

  int64_t row_bytes() const {
    return old_.row_bytes() / static_cast<int64_t>(c10::elementSize(old_.type)) *
           static_cast<int64_t>(c10::elementSize(type_));
  }

  void check(const RepackOptions& options) const {
    const std::string where = str(input_, ": dataset '", old_.name, "' ");
    if (old_.shape.empty() || old_.num_rows() * old_.row_bytes() == 0) {
      throw Error(ErrorClass::kBadData, str(where, "(", join(old_.shape), ") has no rows"),
                  "needed is a dataset of samples along its first dim");
    }
    if (options.type != RepackType::kKeep && !c10::isFloatingType(old_.type)) {
      throw Error(ErrorClass::kUsage, str(where, "holds integers, which --dtype does not change"), "give --dtype keep");
    }
    constexpr int64_t kLargestChunk = (int64_t{1} << 32) - 1;
    if (options.layout == RepackLayout::kSampleChunks && row_bytes() > kLargestChunk) {
      throw Error(ErrorClass::kUsage, str(where, "has samples of ", row_bytes(), " bytes; chunks are below 4 GiB"),
                  "give --layout contiguous");
    }
  }

  void check_target(const ArrayLayout& layout) const {
    if (layout.storage == ArrayLayout::Storage::kOpaque) {
      throw Error(ErrorClass::kUsage, str(output_, " would have ", layout.opaque_because), "give --layout contiguous");
    }
  }

  static int64_t row_offset(const ArrayLayout& layout, int64_t row) {
    return layout.storage == ArrayLayout::Storage::kChunked ? layout.chunk_offsets[static_cast<size_t>(row)]
                                                            : layout.offset + row * layout.row_bytes();
  }

  // Every rank its rows, in blocks after each of which all know whether one failed.
  void write(const ArrayLayout& layout, const at::Tensor& checksums) {
    std::optional<PosixFile> file;
    comm::agreed(group_, [&] { file.emplace(temporary_, PosixFile::Access::kUpdate); });
    const Range mine = rows_.part(group_.rank());
    const int64_t block = std::max<int64_t>(kRowBlockBytes / old_.row_bytes() / rows_.unit(), 1) * rows_.unit();
    Progress progress("writing " + output_, rows_.largest());
    for (int64_t done = 0; done < rows_.largest(); done += block) {
      comm::agreed(group_, [&] {
        const int64_t begin = std::min(mine.begin + done, mine.end);
        write_rows(*file, layout, {begin, std::min(begin + block, mine.end)}, checksums);
      });
      progress.add(block);
    }
    comm::agreed(group_, [&] {
      file->sync();
      file->close();
    });
  }

  void write_rows(const PosixFile& file, const ArrayLayout& layout, Range rows, const at::Tensor& checksums) {
    if (rows.empty()) {
      return;
    }
    const at::Tensor values = converted(read_rows(rows), rows.begin);
    const auto* from = static_cast<const char*>(values.const_data_ptr());
    auto* to = checksums.mutable_data_ptr<int64_t>();
    for (int64_t row = rows.begin; row < rows.end; ++row, from += row_bytes()) {
      file.write(row_offset(layout, row), from, row_bytes());
      to[row] = static_cast<int64_t>(XXH3_64bits(from, static_cast<size_t>(row_bytes())));
    }
  }

  at::Tensor read_rows(Range rows) const {
    std::vector<int64_t> shape = old_.shape;
    shape.front() = rows.size();
    at::Tensor values = at::empty(shape, old_.type);
    std::vector<RowRead> reads;
    for (int64_t i = 0; i < rows.size(); ++i) {
      reads.push_back({0, rows.begin + i, static_cast<char*>(values.data_ptr()) + i * old_.row_bytes()});
    }
    source_.read(std::move(reads));
    return values;
  }

  at::Tensor converted(const at::Tensor& values, int64_t first_row) {
    if (type_ == values.scalar_type()) {
      return values;
    }
    at::Tensor result = values.to(type_);
    const at::Tensor lost = at::isfinite(values).logical_and_(at::isfinite(result).logical_not_());
    if (lost.any().item<bool>()) {
      refuse_loss(values, lost, first_row);
    }
    if (type_ == at::kHalf) {
      const double least = std::ldexp(1.0, -14);  // of the normal numbers
      num_blurred_ += values.abs().lt(least).logical_and_(values.ne(0.0)).sum().item<int64_t>();
    }
    return result;
  }

  const char* type_name() const { return type_ == at::kHalf ? "fp16" : type_ == at::kBFloat16 ? "bf16" : "fp32"; }

  [[noreturn]] void refuse_loss(const at::Tensor& values, const at::Tensor& lost, int64_t first_row) const {
    const int64_t element = lost.reshape({-1}).to(at::kByte).argmax().item<int64_t>();
    const int64_t row_values = values.numel() / values.size(0);
    const int64_t in_row = element % row_values;
    const int64_t channel_values = old_.shape.size() > 2 ? row_values / old_.shape[1] : row_values;
    throw Error(ErrorClass::kBadData,
                str(input_, ": dataset '", old_.name, "', row ", first_row + element / row_values, ", channel ",
                    in_row / channel_values, ", element ", in_row % channel_values,
                    " of it: ", values.reshape({-1})[element].item<double>(), " is more than ", type_name(), " holds"),
                "give --dtype bf16, which has the range of fp32, or keep");
  }

  // All by HDF5, as other programs will read it. Each rank the rows of the next one, so that what is read does not come
  // from the memory that wrote it where the ranks are on different nodes.
  void verify(const at::Tensor& checksums) const {
    const RowSource target(group_, {temporary_}, old_.name, "", IoMode::kIndependent);
    comm::agreed(group_, [&] { verify_rows(target, checksums); });
    comm::agreed_on_rank_0(group_, [&] { verify_hdf5_copy(input_, temporary_, rewrite_); });
  }

  void verify_rows(const RowSource& target, const at::Tensor& checksums) const {
    const Range rows = rows_.part((group_.rank() + 1) % group_.size());
    const at::Tensor row = at::empty({row_bytes()}, at::kByte);
    Progress progress("reading back " + output_, rows.size());
    for (int64_t i = rows.begin; i < rows.end; ++i, progress.add()) {
      target.read({{0, i, row.data_ptr()}});
      const auto found = static_cast<int64_t>(XXH3_64bits(row.const_data_ptr(), static_cast<size_t>(row_bytes())));
      if (found != checksums.const_data_ptr<int64_t>()[i]) {
        throw Error(ErrorClass::kIo, str("row ", i, " of ", temporary_, " is not read as it was written"),
                    "the storage lost data: nothing was replaced; see its messages and try again");
      }
    }
  }

  void finish() {
    comm::agreed_on_rank_0(group_, [&] {
      rename_file(temporary_, output_);
      sync_folder_of(output_);
    });
    finished_ = true;
  }

  const comm::MpiGroup& group_;
  const std::string input_;
  const std::string output_;
  const std::string temporary_;
  const RowSource source_;
  const ArrayLayout& old_;
  const at::ScalarType type_;
  const RowGroups rows_;
  Hdf5Rewrite rewrite_;
  int64_t num_blurred_ = 0;
  bool finished_ = false;
};

}  // namespace

std::vector<RepackedFile> repack_files(const comm::MpiGroup& group, const RepackOptions& options,
                                       const std::function<void(const std::string&)>& progress) {
  const auto inputs = list_hdf5_inputs(group, options.inputs);
  std::optional<OutputFolder> folder;
  comm::agreed_on_rank_0(group, [&] {
    check_repacked_paths(options, inputs);
    folder.emplace(options.out);
  });
  std::vector<RepackedFile> files;
  for (const std::string& input : inputs) {
    files.push_back(Repacking(group, options, input).run());
    if (progress && group.rank() == 0) {
      progress(str("wrote ", files.back().path, ": ", files.back().bytes_before, " -> ", files.back().bytes_after,
                   " bytes, all of it read back"));
    }
  }
  return files;
}

}  // namespace vit_hybrid::data
