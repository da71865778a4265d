// What of the model the data decide, which data lie the other way round, and which default data have.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/generate/generate_images.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/config/config_text.h"
#include "src/config/model_options.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

namespace {

using vit_hybrid::testing::contains;

using namespace vit_hybrid;
using namespace vit_hybrid::train;

using Words = std::vector<std::string>;
using Kind = data::DimKind;

constexpr DataShape kFields{.channels = 5, .height = 16, .width = 24};

// A configuration that has followed the data.
LoadedConfig followed(Words words, const DataShape& shape, const std::string& file = {}, const Words& variables = {}) {
  words.insert(words.end(), {"--train-data=/d", "--stats=/s"});
  if (!file.empty()) {
    words.push_back("--config=c.yaml");
  }
  LoadedConfig loaded = load_run_config(words, variables, [&](const std::string&) { return file; });
  resolve(loaded.config, 1);
  follow_data(loaded, shape);
  return loaded;
}

std::string problems_of(const LoadedConfig& loaded) {
  return join(all_problems(loaded, 1), "\n");
}

std::string size_of(const RunConfig& config) {
  return str(config.model.image_height, "x", config.model.image_width);
}

TEST_CASE("data shape: fields give what no one gives") {
  const LoadedConfig loaded = followed({}, kFields);
  const RunConfig& config = loaded.config;
  CHECK(problems_of(loaded) == "");
  CHECK(size_of(config) == "16x24");
  CHECK(config.model.in_channels == 5);
  CHECK(config.model.out_channels == 5);
  CHECK(config.origin.at("image-size") == "the data");
  CHECK(join(all_remarks(loaded), "\n") == "from the data in /d: image-size 16x24, in-channels 5, out-channels 5");
  CHECK(contains(config_text(config), "image_size: 16x24                           # the data\n"));
  // A preset gives way.
  const LoadedConfig preset = followed({"--preset=weather-mp"}, kFields);
  CHECK(problems_of(preset) == "");
  CHECK(preset.config.model.embed_dim == 1024);
  CHECK(preset.config.model.in_channels == 5);
  CHECK(size_of(preset.config) == "16x24");
}

TEST_CASE("data shape: what is given and fits stays, in-channels alone too") {
  const LoadedConfig loaded = followed({"--in-channels=5"}, kFields, "image_size: 16x24\n");
  CHECK(problems_of(loaded) == "");
  CHECK(loaded.config.model.out_channels == 5);
  CHECK(loaded.config.origin.at("in-channels") == "command line");
  CHECK(loaded.config.origin.at("image-size") == "c.yaml:1");
}

TEST_CASE("data shape: all that is given and does not fit is one message, which says where and what to change") {
  const LoadedConfig loaded =
      followed({"--in-channels=20"}, kFields, "image_size: 32x64\n", {"VIT_HYBRID_OUT_CHANNELS=7"});
  CHECK(
      problems_of(loaded) ==
      "the model does not fit the data in /d: --image-size 32x64 was given in c.yaml:1, the data have 16x24; "
      "--in-channels 20 was given on the command line, the data have 5; --out-channels 7 was given in the environment "
      "VIT_HYBRID_OUT_CHANNELS, the data have 5: give --image-size 16x24 --in-channels 5 --out-channels 5, or leave "
      "them out, or use other data");
  CHECK(
      contains(problems_of(followed({"--in-channels=20"}, kFields)), "give --in-channels 5, or leave it out, or use"));
  CHECK(problems_of(followed({"--in-channels=many"}, kFields)) ==
        "command line: 'in-channels' is 'many'; allowed: integer, 1 to 16777216");
}

TEST_CASE("data shape: patches need not divide the data's grid, and are not larger") {
  CHECK(problems_of(followed({"--patch-size=7x8"}, {.channels = 5, .height = 721, .width = 1440})) == "");
  CHECK(problems_of(followed({}, {.channels = 5, .height = 721, .width = 1440})) == "");
  CHECK(contains(problems_of(followed({"--patch-size=17"}, kFields)),
                 "patch_height is 17, more than the 16 rows (of the input; the last patches of a side may be cut); "
                 "allowed are 1 to 16"));
}

TEST_CASE("data shape: images give the number of classes, and the size where they are small") {
  const auto images = [](int64_t side, int64_t classes, bool named) {
    return DataShape{.channels = 3, .height = side, .width = side, .num_classes = classes, .has_class_names = named};
  };
  const auto classifier = [&](Words words, const DataShape& shape) {
    words.push_back("--task=classify");
    return followed(words, shape);
  };
  const LoadedConfig large = classifier({}, images(256, 10, true));
  CHECK(problems_of(large) == "");
  CHECK(size_of(large.config) == "224x224");
  CHECK(large.config.model.in_channels == 3);
  CHECK(large.config.model.num_classes == 10);
  CHECK(join(all_remarks(large), "\n") ==
        "--stats has no effect here: it is for HDF5 files of --task forecast\n"
        "from the data in /d: in-channels 3, num-classes 10");
  CHECK(size_of(classifier({"--preset=vit-ti16"}, images(256, 10, true)).config) == "224x224");
  // The largest multiple of the patch.
  CHECK(size_of(classifier({}, images(40, 6, true)).config) == "40x40");
  CHECK(size_of(classifier({"--preset=vit-ti16"}, images(40, 6, true)).config) == "32x32");
  CHECK(size_of(classifier({"--preset=vit-ti16"}, {.channels = 3, .height = 300, .width = 100}).config) == "96x96");
  CHECK(contains(problems_of(classifier({"--patch-size=16"}, images(12, 6, true))),
                 "patch_height is 16, more than the 12 rows"));
  CHECK(size_of(classifier({"--image-size=384"}, images(256, 6, true)).config) == "384x384");
  // Names are all the classes there are; labels without names are some of them.
  CHECK(contains(problems_of(classifier({"--num-classes=7"}, images(32, 6, true))),
                 "--num-classes 7 was given on the command line, the data have 6: give --num-classes 6, or"));
  CHECK(problems_of(classifier({"--num-classes=7"}, images(32, 6, false))) == "");
  CHECK(contains(problems_of(classifier({"--num-classes=5", "--in-channels=1"}, images(32, 6, false))),
                 "--in-channels 1 was given on the command line, the data have 3; --num-classes 5 was given on the "
                 "command line, the data have 6: give --in-channels 3 --num-classes 6 or more, or leave them out"));
  CHECK(classifier({}, images(32, 1, false)).config.model.num_classes == 2);
}

TEST_CASE("data shape: built-in data have a default model under the options that are given") {
  const auto loaded = [](const Words& words) {
    LoadedConfig out = load_run_config(words, {}, read_local_file);
    resolve(out.config, 1);
    CHECK_MESSAGE(problems_of(out) == "", problems_of(out));
    return out.config;
  };
  const RunConfig sized = loaded({"--data=builtin", "--image-size=16x32", "--embed-dim=64"});
  CHECK(sized.model.in_channels == 8);
  CHECK(sized.model.out_channels == 8);
  CHECK(sized.model.depth == 4);
  CHECK(sized.schedule.steps == 200);
  CHECK(loaded({"--data=builtin", "--in-channels=3"}).model.out_channels == 3);
  const RunConfig classifier = loaded({"--task=classify"});
  CHECK((classifier.data.kind == DataKind::kBuiltin));
  CHECK(classifier.is_builtin_default);
  CHECK(classifier.model.in_channels == 3);
  CHECK(size_of(classifier) == "32x32");
  CHECK(classifier.model.num_classes == 6);
  CHECK(loaded({"--data=builtin", "--preset=vit-ti16", "--num-classes=30"}).model.embed_dim == 192);
  // Noise has the shape that the model asks for: of pictures, for a classifier.
  const RunConfig noise = loaded({"--data=synthetic", "--task=classify"});
  CHECK(size_of(noise) == "224x224");
  CHECK(noise.model.in_channels == 3);
  CHECK(loaded({"--data=synthetic"}).model.in_channels == 20);
}

TEST_CASE("painted images: those of data generate, by their numbers") {
  const data::PaintedDataset images({.first = 4, .count = 9, .size = 12, .classes = 6, .seed = 3});
  CHECK(images.size() == 9);
  const data::Batch batch = images.read(std::vector<int64_t>{1, 7}, {.form = data::ValueForm::kStored}, 0);
  std::vector<uint8_t> wanted(12 * 12 * 3);
  const data::ImagePainter painter(12, 6, 3);
  for (const auto& [at, image] : {std::pair(0, 5), {1, 11}}) {
    painter.paint(image, wanted.data());
    const at::Tensor pixels = batch.inputs[at].contiguous();
    CHECK(std::equal(wanted.begin(), wanted.end(), pixels.const_data_ptr<uint8_t>()));
    CHECK(batch.targets[at].item<int64_t>() == image % 6);
  }
  const data::Batch normal = images.read(std::vector<int64_t>{7}, {}, 1);
  CHECK(normal.inputs.sizes() == at::IntArrayRef({1, 3, 12, 12}));
  CHECK(normal.inputs[0][1][2][3].item<double>() ==
        doctest::Approx((wanted[(2 * 12 + 3) * 3 + 1] / 255.0 - 0.456) / 0.224).epsilon(1e-5));
  CHECK(images.class_names() == "plain disc,plain square,plain triangle,plain ring,plain cross,plain crescent");
}

// The error of fields in this order, or nothing.
std::string order_error(const data::FieldOrder& order) {
  const Error error = testing::thrown_error([&] {
    data::require_channels_first(order, "a.h5: dataset 'x'");
    throw Error(ErrorClass::kBadData, "right");
  });
  CHECK((error.error_class() == ErrorClass::kBadData));
  return error.what();
}

TEST_CASE("field order: channels at the end are known by names, numbers and sizes") {
  const std::string error = order_error({.shape = {9, 32, 64, 5}, .num_channel_names = 5});
  CHECK(contains(error,
                 "a.h5: dataset 'x' (9, 32, 64, 5) has its channels last, (time, latitude, longitude, channel): "
                 "5 channels are named; needed is (time, channel, latitude, longitude)"));
  CHECK(contains(error, "h5py.File('NEW.h5', 'w')['x'] = h5py.File('OLD.h5')['x'][:].transpose(0, 3, 1, 2)"));
  CHECK(contains(order_error({.shape = {9, 32, 64, 60}, .num_latitudes = 32, .num_longitudes = 64}),
                 "there are 32 latitudes and 64 longitudes"));
  CHECK(contains(order_error({.shape = {9, 8, 8, 8}, .kinds = {Kind::kUnknown, Kind::kLatitude, Kind::kLongitude}}),
                 "dim 1 is a latitude"));
  CHECK(contains(order_error({.shape = {9, 8, 8, 8}, .kinds = {Kind::kUnknown, Kind::kLongitude, Kind::kLatitude}}),
                 "(time, longitude, latitude, channel): dim 1 is a longitude"));
  CHECK(contains(
      order_error({.shape = {9, 8, 8, 8}, .kinds = {Kind::kUnknown, Kind::kUnknown, Kind::kUnknown, Kind::kChannel}}),
      "dim 3 is that of the channels"));
  CHECK(contains(order_error({.shape = {9, 32, 64, 8}}), "dim 3 is small beside dims 1 and 2"));
}

TEST_CASE("field order: channels in their place stay, however many there are") {
  for (const data::FieldOrder& order :
       {data::FieldOrder{.shape = {9, 5, 32, 64}}, data::FieldOrder{.shape = {9, 73, 721, 1440}},
        data::FieldOrder{.shape = {9, 32, 64, 9}}, data::FieldOrder{.shape = {9, 64, 64, 8}, .num_channel_names = 64},
        data::FieldOrder{.shape = {9, 64, 64, 8}, .num_latitudes = 64, .num_longitudes = 8},
        data::FieldOrder{.shape = {9, 64, 64, 8},
        .kinds = {Kind::kUnknown, Kind::kUnknown, Kind::kLatitude, Kind::kLongitude}},
        data::FieldOrder{.shape = {9, 64, 64, 8}, .kinds = {Kind::kUnknown, Kind::kChannel}},
        data::FieldOrder{.shape = {9, 64, 8}}, data::FieldOrder{.shape = {9, 64, 64, 0}}}) {
    CAPTURE(join(order.shape));
    CHECK(order_error(order) == "right");
  }
}

TEST_CASE("field order: images with their colours first") {
  const auto error_of = [](const std::vector<int64_t>& shape) {
    return std::string(testing::thrown_error([&] { data::require_colours_last(shape, "i.h5: dataset 'p'"); }).what());
  };
  CHECK(contains(error_of({7, 3, 40, 50}), "i.h5: dataset 'p' (7, 3, 40, 50) has its colours first"));
  CHECK(contains(error_of({7, 3, 40, 50}), "['p'][:].transpose(0, 2, 3, 1)"));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{7, 40, 50, 3}, {7, 3, 3, 3}, {7, 3, 5}}) {
    CHECK(contains(error_of(shape), "nothing was thrown"));
  }
}

}  // namespace
