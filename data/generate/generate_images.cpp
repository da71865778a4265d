// Pictures painted by keyed draws; parts of each file painted and written by each rank.
#include "data/generate/generate_images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>

#include "data/generate/output_folder.h"
#include "data/hdf5/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/operation.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr double kFullTurn = 2.0 * std::numbers::pi;
using Colour = std::array<double, 3>;

/// Uniform draws of one image, one after the other.
class Draws {
 public:
  Draws(uint64_t seed, int64_t image)
      : stream_(seed, Purpose::kSyntheticData, name_key("images"), static_cast<uint64_t>(image)) {}
  double between(double low, double high) { return low + (high - low) * stream_.uniform(next_++); }
  Colour colour(double low, double high) { return {between(low, high), between(low, high), between(low, high)}; }
  /// Noise of standard deviation 1 for element `i` of the image.
  double noise(int64_t i) const { return stream_.normal(static_cast<uint64_t>(i), 1); }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

/// Distance from the figure's edge at (x, y) in the figure's own coordinates, where its radius is about 1; negative
/// inside.
double shape_distance(int64_t shape, double x, double y) {
  const double r = std::hypot(x, y);
  switch (shape) {
    case 0:  // disc
      return r - 0.9;
    case 1:  // square
      return std::max(std::fabs(x), std::fabs(y)) - 0.8;
    case 2:  // triangle, from its three sides
      return std::max({-y, 0.866 * x + 0.5 * y, -0.866 * x + 0.5 * y}) - 0.5;
    case 3:  // ring
      return std::fabs(r - 0.7) - 0.27;
    case 4:  // cross, of two bars
      return std::min(std::max(std::fabs(x) - 1.0, std::fabs(y) - 0.33),
                      std::max(std::fabs(x) - 0.33, std::fabs(y) - 1.0));
    default:  // crescent: a disc without another one
      return std::max(r - 0.95, 0.75 - std::hypot(x - 0.45, y));
  }
}

/// Share of the first of two colours, 0 to 1, at (x, y) in the figure's coordinates.
double texture_value(int64_t texture, double x, double y) {
  constexpr double kPeriod = 0.4;
  const double a = std::sin(kFullTurn * x / kPeriod), b = std::sin(kFullTurn * y / kPeriod);
  switch (texture) {
    case 0:  // plain
      return 1.0;
    case 1:  // striped
      return 0.5 + 0.5 * a;
    case 2:  // chequered
      return a * b > 0.0 ? 1.0 : 0.0;
    case 3:  // dotted
      return a + b > 0.9 ? 0.0 : 1.0;
    default:  // circled
      return 0.5 + 0.5 * std::sin(kFullTurn * std::hypot(x, y) / kPeriod);
  }
}

/// What one image shows, all lengths in parts of its side.
struct Scene {
  double centre_x, centre_y, radius, cosine, sine;
  Colour light, dark, background[2];
  double wave_x, wave_y, wave_phase;
  double noise;

  explicit Scene(Draws& draws) {
    radius = draws.between(0.22, 0.38);
    centre_x = draws.between(radius, 1.0 - radius);
    centre_y = draws.between(radius, 1.0 - radius);
    const double angle = draws.between(0.0, kFullTurn);
    cosine = std::cos(angle);
    sine = std::sin(angle);
    light = draws.colour(0.55, 1.0);
    dark = draws.colour(0.0, 0.4);
    for (Colour& colour : background) {
      colour = draws.colour(0.2, 0.8);
    }
    wave_x = draws.between(-1.5, 1.5);
    wave_y = draws.between(-1.5, 1.5);
    wave_phase = draws.between(0.0, 1.0);
    noise = draws.between(0.0, 0.06);
  }
};

Colour mixed(const Colour& a, const Colour& b, double share_of_a) {
  Colour result;
  for (size_t c = 0; c < 3; ++c) {
    result[c] = share_of_a * a[c] + (1.0 - share_of_a) * b[c];
  }
  return result;
}

/// Colour at (x, y) in parts of the side; `pixel` is the size of a pixel, over which edges are soft.
Colour scene_colour(const Scene& scene, int64_t label, double x, double y, double pixel) {
  const double wave = std::sin(kFullTurn * (scene.wave_x * x + scene.wave_y * y + scene.wave_phase));
  const Colour behind = mixed(scene.background[0], scene.background[1], 0.5 + 0.5 * wave);
  const double dx = (x - scene.centre_x) / scene.radius, dy = (y - scene.centre_y) / scene.radius;
  const double own_x = scene.cosine * dx + scene.sine * dy, own_y = scene.cosine * dy - scene.sine * dx;
  const double distance = shape_distance(label % kNumImageShapes, own_x, own_y) * scene.radius / pixel;
  const double cover = std::clamp(0.5 - distance, 0.0, 1.0);
  const double texture = texture_value(label / kNumImageShapes, own_x, own_y);
  return mixed(mixed(scene.light, scene.dark, texture), behind, cover);
}

uint8_t to_byte(double value) {
  return static_cast<uint8_t>(std::lround(255.0 * std::clamp(value, 0.0, 1.0)));
}

StoredScaling usual_scaling() {
  const ColorStatistics usual;
  return {{usual.mean.begin(), usual.mean.end()}, {usual.std.begin(), usual.std.end()}};
}

}  // namespace

ImagePainter::ImagePainter(int64_t size, int64_t num_classes, uint64_t seed)
    : size_(size), num_classes_(num_classes), seed_(seed) {}

void ImagePainter::paint(int64_t image, uint8_t* to) const {
  Draws draws(seed_, image);
  const Scene scene(draws);
  const double pixel = 1.0 / static_cast<double>(size_);
  for (int64_t i = 0; i < size_ * size_; ++i) {
    const int64_t row = i / size_;
    const int64_t column = i % size_;
    const double x = (static_cast<double>(column) + 0.5) * pixel;
    const double y = (static_cast<double>(row) + 0.5) * pixel;
    const Colour colour = scene_colour(scene, label(image), x, y, pixel);
    for (int64_t c = 0; c < 3; ++c) {
      to[3 * i + c] = to_byte(colour[static_cast<size_t>(c)] + scene.noise * draws.noise(3 * i + c));
    }
  }
}

std::string ImagePainter::class_name(int64_t label) {
  constexpr std::array<const char*, kNumImageShapes> kShapes{"disc", "square", "triangle", "ring", "cross", "crescent"};
  constexpr std::array<const char*, kNumImageTextures> kTextures{"plain", "striped", "chequered", "dotted", "circled"};
  return str(kTextures[static_cast<size_t>(label / kNumImageShapes)], " ",
             kShapes[static_cast<size_t>(label % kNumImageShapes)]);
}

PaintedDataset::PaintedDataset(const PaintedImages& images)
    : images_(images),
      painter_(images.size, images.classes, images.seed),
      scaling_(usual_scaling()),
      normalizer_(scaling_, at::kCPU) {
  VH_ASSERT(images.count >= 1 && images.size >= 1 && images.classes >= 1 && images.classes <= kMaxImageClasses,
            str(images.count, " images of ", images.size, " pixels in ", images.classes, " classes"));
}

std::string PaintedDataset::class_names() const {
  std::vector<std::string> names;
  for (int64_t label = 0; label < images_.classes; ++label) {
    names.push_back(ImagePainter::class_name(label));
  }
  return join(names, ",");
}

at::Tensor PaintedDataset::paint(std::span<const int64_t> samples, const Parts& parts) const {
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t side = images_.size;
  const bool as_stored = parts.form == ValueForm::kStored;
  const at::Tensor pixels =
      pool_.take({count, side, side, 3}, at::kByte, as_stored ? parts.memory : HostMemory::kPageable);
  auto* to = pixels.mutable_data_ptr<uint8_t>();
  for (const int64_t sample : samples) {
    VH_ASSERT(sample >= 0 && sample < size(), str("sample ", sample, " of ", size()));
    painter_.paint(images_.first + sample, to);
    to += 3 * side * side;
  }
  if (as_stored) {
    return pixels;
  }
  const at::Tensor images = pool_.take({count, 3, side, side}, at::kFloat, parts.memory);
  normalizer_.normalize_into(pixels, images);
  return images;
}

Batch PaintedDataset::read(std::span<const int64_t> samples, Parts parts, int64_t) const {
  Batch batch;
  batch.samples.assign(samples.begin(), samples.end());
  if (parts.input) {
    batch.inputs = paint(samples, parts);
    batch.scaling = parts.form == ValueForm::kStored ? &scaling_ : nullptr;
  }
  if (parts.target) {
    batch.targets = host_tensor({static_cast<int64_t>(samples.size())}, at::kLong, parts.memory);
    std::transform(samples.begin(), samples.end(), batch.targets.mutable_data_ptr<int64_t>(),
                   [&](int64_t sample) { return painter_.label(images_.first + sample); });
  }
  return batch;
}

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
  std::unique_ptr<FolderLock> lock;
  comm::agreed_on_rank_0(group, [&] { lock = prepare_output(planned_output(options)); });
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
