// Generation of labelled image data sets: parts of each file painted and written by each rank.
#include "data/generate/generate_images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "data/generate/image_painter.h"
#include "data/generate/output_folder.h"
#include "data/hdf5/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/operation.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr int64_t kImageBlockBytes = int64_t{4} << 20;  // of the images between two writes

int64_t image_bytes(const GenerateImagesOptions& options) {
  return options.size * options.size * 3;
}

PlannedOutput planned_output(const GenerateImagesOptions& options) {
  PlannedOutput output;
  output.folder = options.out;
  output.files.push_back("train.h5");
  if (options.valid_images > 0) output.files.push_back("valid.h5");
  const int64_t label_bytes = sizeof(int64_t);
  output.bytes = (options.train_images + options.valid_images) * (image_bytes(options) + label_bytes);
  output.existing = options.overwrite ? ExistingFiles::kReplace : ExistingFiles::kRefuse;
  return output;
}

std::vector<Hdf5DatasetSpec> datasets(const GenerateImagesOptions& options, int64_t num_images) {
  std::vector<std::string> classes;
  for (int64_t label = 0; label < options.classes; ++label) {
    classes.push_back(ImagePainter::class_name(label));
  }
  return {{"images", {num_images, options.size, options.size, 3}, at::kByte, {}},
          {"labels", {num_images}, at::kLong, {{"classes", join(classes, ",")}}}};
}

/// Paints the images of `numbers`; they become rows `first_row` and following of the file.
void write_block(const GenerateImagesOptions& options, Range numbers, int64_t first_row, Hdf5Writer& file) {
  const ImagePainter painter(options.size, options.classes, options.seed);
  const at::Tensor images = at::empty({numbers.size(), options.size, options.size, 3}, at::kByte);
  const at::Tensor labels = at::empty({numbers.size()}, at::kLong);
  for (int64_t i = 0; i < numbers.size(); ++i) {
    comm::note_work();
    painter.paint(numbers.begin + i, images.mutable_data_ptr<uint8_t>() + i * image_bytes(options));
    labels.mutable_data_ptr<int64_t>()[i] = painter.label(numbers.begin + i);
  }
  file.write("images", std::array<int64_t, 4>{first_row, 0, 0, 0}, images);
  file.write("labels", std::array<int64_t, 1>{first_row}, labels);
}

/// Writes a file of the images of `numbers`. Collective over `group`.
void write_file(const GenerateImagesOptions& options, const comm::MpiGroup& group, const char* name, Range numbers) {
  Hdf5Writer file(group, str(options.out, "/", name), datasets(options, numbers.size()));
  const Partition rows(numbers.size(), group.size());
  const Range mine = rows.part(group.rank());
  const int64_t block = std::max<int64_t>(kImageBlockBytes / image_bytes(options), 1);
  Progress progress(str("painting ", options.out, "/", name), rows.largest());
  for (int64_t done = 0; done < rows.largest(); done += block) {
    comm::agreed(group, [&] {
      const Range part{std::min(mine.begin + done, mine.end), std::min(mine.begin + done + block, mine.end)};
      if (!part.empty()) write_block(options, {numbers.begin + part.begin, numbers.begin + part.end}, part.begin, file);
    });
    progress.add(block);
  }
  file.finish();
}

}  // namespace

void check_options(const GenerateImagesOptions& options) {
  OptionProblems problems;
  problems.check<int64_t>("train_images", options.train_images, 1, 100000000);
  problems.check<int64_t>("valid_images", options.valid_images, 0, 100000000);
  problems.check<int64_t>("size", options.size, 8, 1024);
  problems.check<int64_t>("classes", options.classes, 2, kMaxImageClasses);
  problems.throw_if_any();
}

void generate_images(const GenerateImagesOptions& options, const comm::MpiGroup& group,
                     const GenerationProgress& progress) {
  comm::agreed(group, [&] { check_options(options); });
  comm::agreed_on_rank_0(group, [&] { prepare_output(planned_output(options)); });
  if (progress && group.rank() == 0) {
    progress(str("painting ", options.train_images, " training and ", options.valid_images, " validation images of ",
                 options.size, " x ", options.size, " in ", options.classes, " classes into ", options.out));
  }
  write_file(options, group, "train.h5", {0, options.train_images});
  if (options.valid_images > 0) {
    write_file(options, group, "valid.h5", {options.train_images, options.train_images + options.valid_images});
  }
}

}  // namespace vit_hybrid::data
