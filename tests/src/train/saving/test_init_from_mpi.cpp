// A new training from the weights of a checkpoint, in any layout: what fits, what is resized, what is left or refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "model/vit_parameters.h"
#include "parallel/mesh/device_mesh.h"
#include "src/checkpoint/format.h"
#include "src/train/saving/checkpointer.h"
#include "src/train/saving/init_from.h"
#include "src/train/trainer.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"
#include "tests/support/training_harness.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

train::RunConfig config_of(const model::VitOptions& model, uint64_t seed) {
  train::RunConfig config;
  config.model = model;
  config.seed = seed;
  return config;
}

std::vector<Layout> resharded_layouts(int ranks) {
  switch (ranks) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{1, 2, 1}, {1, 1, 2}};
    case 4:
      return {{1, 2, 2}, {2, 1, 2}};
    default:
      return {{2, 2, 2}};
  }
}

// Bytes that this process has read from files so far, as the kernel counts them.
int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  file >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

// From the first to the last element of each box of a slice.
int64_t spanned_bytes(const tensor::ParameterSpec& spec) {
  int64_t elements = 0;
  for (const auto& box : spec.boxes) {
    int64_t last = 0;
    int64_t stride = 1;
    for (size_t d = spec.global_shape.size(); d-- > 0;) {
      last += (box.size[d] - 1) * stride;
      stride *= spec.global_shape[d];
    }
    elements += last + 1;
  }
  return elements * 4;
}

void flip_bit(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const auto byte = static_cast<char>(file.get() ^ 4);
  file.seekp(offset);
  file.put(byte);
}

// A model with parameters of a seed on the ranks of a layout.
struct Model {
  Model(const comm::MpiGroup& world, const Layout& layout, const model::VitOptions& model, uint64_t seed)
      : options(model),
        mesh(mesh::ParallelDims(layout.dp, layout.tp, layout.pp), world, c10::Device(c10::kCPU)),
        engine(train::engine_options(config_of(model, seed)), mesh) {}

  void save(const comm::MpiGroup& world, const std::string& path, const std::string& class_names = "") {
    train::CheckpointInfo info;
    info.class_names = class_names;
    info.model = train::model_json(options);
    train::save_checkpoint(world, mesh, engine, options, info, path);
  }
  std::vector<std::string> init(const train::CheckpointReader& checkpoint, bool partial,
                                const std::string& class_names = "") {
    return train::init_from(checkpoint, {options, partial, class_names}, engine.parameters().specs(),
                            engine.optimizer(), mesh.model());
  }
  // Whether every parameter of this rank but those named is its slice of the checkpoint's.
  void check_equal(const train::CheckpointReader& checkpoint, const std::vector<std::string>& but) {
    const auto& specs = engine.parameters().specs();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (std::find(but.begin(), but.end(), specs[i].name) != but.end()) continue;
      CAPTURE(specs[i].name);
      const at::Tensor whole = checkpoint.read(train::dataset_path(train::kParametersGroup, specs[i].name));
      CHECK(engine.parameters().parameter(static_cast<int>(i)).value.equal(scatter_local(specs[i], whole)));
    }
  }
  // The value of a parameter that this rank may hold, or an undefined tensor.
  at::Tensor value(const std::string& name) {
    const auto& specs = engine.parameters().specs();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].name == name) return engine.parameters().parameter(static_cast<int>(i)).value.clone();
    }
    return {};
  }

  model::VitOptions options;
  mesh::DeviceMesh mesh;
  train::Engine engine;
};

}  // namespace

TEST_CASE("init-from: a head of other classes is refused, or stays fresh; the same classes take it over") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const Layout layout{1, world.size(), 1};
  const ScratchFolder folder(world);
  const auto options = small_classifier(model::Pooling::kToken);
  const std::string names = "a,b,c,d,e,f,g";
  Model(world, layout, options, 1).save(world, folder.file("c.h5"), names);
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  Model same(world, layout, options, 2);
  CHECK(same.init(checkpoint, false, names).empty());
  same.check_equal(checkpoint, {});
  Model unnamed(world, layout, options, 2);
  CHECK(unnamed.init(checkpoint, false).empty());
  unnamed.check_equal(checkpoint, {});
  Model other(world, layout, options, 2);
  const Error refused = agreed_error(world, [&] { other.init(checkpoint, false, "b,a,c,d,e,f,g"); });
  CHECK((refused.error_class() == ErrorClass::kUsage));
  CHECK(refused.message().find("class 0 is 'b' in the data and 'a' in the checkpoint") != std::string::npos);
  CHECK(refused.hint().find("--init-from-partial") != std::string::npos);
  const at::Tensor before = other.value("head.weight");
  const auto remarks = other.init(checkpoint, true, "b,a,c,d,e,f,g");
  CHECK(std::find(remarks.begin(), remarks.end(), "head.weight keeps its initial values") != remarks.end());
  other.check_equal(checkpoint, {"head.weight", "head.bias"});
  if (before.defined()) {
    CHECK(other.value("head.weight").equal(before));
  }
  world.barrier();
}

TEST_CASE("init-from: the same model takes all weights over, and the optimizer stays fresh") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const Layout& layout : resharded_layouts(world.size())) {
    CAPTURE(layout.text());
    const ScratchFolder folder(world);
    Model(world, {world.size(), 1, 1}, small_forecaster(), 1).save(world, folder.file("c.h5"));
    const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
    Model fresh(world, layout, small_forecaster(), 2);
    const int64_t version = fresh.engine.parameters().version();
    CHECK(fresh.init(checkpoint, false).empty());
    fresh.check_equal(checkpoint, {});
    CHECK(fresh.engine.parameters().version() > version);
    CHECK(fresh.engine.optimizer().num_steps() == 0);
  }
}

TEST_CASE("init-from: positions are resized to another grid, the class token's is kept") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const Layout& layout : resharded_layouts(world.size())) {
    CAPTURE(layout.text());
    const ScratchFolder folder(world);
    const model::VitOptions old = small_classifier(model::Pooling::kToken);  // 3 x 4 patches
    Model(world, {world.size(), 1, 1}, old, 1).save(world, folder.file("c.h5"));
    const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
    model::VitOptions larger = old;
    larger.image_height = 20;
    larger.image_width = 24;
    Model fresh(world, layout, larger, 2);
    CHECK(fresh.init(checkpoint, false) == std::vector<std::string>{"positions resized from 3 x 4 to 5 x 6 patches"});
    fresh.check_equal(checkpoint, {"pos_embed"});
    if (const at::Tensor positions = fresh.value("pos_embed"); positions.defined()) {
      const at::Tensor stored = checkpoint.read("parameters/pos_embed");
      CHECK(positions.narrow(1, 0, 1).equal(stored.narrow(1, 0, 1)));
      CHECK(relative_error(positions.narrow(1, 1, 30),
                           train::resize_positions(stored.narrow(1, 1, 12), {3, 4}, {5, 6})) <= 1e-7);
    }
    // As many patches, but not where they were.
    model::VitOptions turned = old;
    std::swap(turned.image_height, turned.image_width);
    Model other(world, layout, turned, 2);
    CHECK(other.init(checkpoint, false) == std::vector<std::string>{"positions resized from 3 x 4 to 4 x 3 patches"});
  }
}

TEST_CASE("init-from: another head is refused, or left at its initial values where that is asked for") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const Layout& layout : resharded_layouts(world.size())) {
    CAPTURE(layout.text());
    const ScratchFolder folder(world);
    const model::VitOptions old = small_classifier(model::Pooling::kToken);
    Model(world, {world.size(), 1, 1}, old, 1).save(world, folder.file("c.h5"));
    const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
    model::VitOptions classes = old;
    classes.num_classes = 4;
    Model fresh(world, layout, classes, 2);
    const at::Tensor head = fresh.value("head.weight");
    const Error error = agreed_error(world, [&] { fresh.init(checkpoint, false); });
    CHECK(error.error_class() == ErrorClass::kUsage);
    CHECK(error.message().find("head.weight is 7 x 24, this model's is 4 x 24: --num-classes is 4") !=
          std::string::npos);
    CHECK(error.hint().find("--init-from-partial") != std::string::npos);
    CHECK(fresh.init(checkpoint, true).size() == 2);  // weight and bias
    fresh.check_equal(checkpoint, {"head.weight", "head.bias"});
    if (head.defined()) {
      CHECK(fresh.value("head.weight").equal(head));
    }
    // A deeper model is none that these weights can start.
    model::VitOptions deeper = old;
    deeper.depth = 3;
    Model deep(world, layout, deeper, 2);
    const Error depth = agreed_error(world, [&] { deep.init(checkpoint, true); });
    CHECK(depth.message().find("blocks.2.norm1.weight is missing") != std::string::npos);
    CHECK(depth.message().find("--depth is 3, the checkpoint's is 2") != std::string::npos);
    model::VitOptions shallower = old;
    shallower.depth = 1;
    if (layout.pp <= 3) {
      Model shallow(world, layout, shallower, 2);
      CHECK(agreed_error(world, [&] { shallow.init(checkpoint, true); }).message().find("this model has none") !=
            std::string::npos);
    }
  }
}

TEST_CASE("init-from: a rank reads what it holds, and no more") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const model::VitOptions options = small_forecaster();
  Model(world, {world.size(), 1, 1}, options, 1).save(world, folder.file("c.h5"));
  const train::CheckpointReader checkpoint(world, folder.file("c.h5"));
  const int64_t whole = 4 * model::num_parameters(options);
  for (const Layout& layout : resharded_layouts(world.size())) {
    CAPTURE(layout.text());
    Model fresh(world, layout, options, 2);
    int64_t held = 0;
    for (const tensor::ParameterSpec& spec : fresh.engine.parameters().specs()) {
      held += spanned_bytes(spec);
    }
    world.barrier();
    const int64_t before = bytes_read();
    fresh.init(checkpoint, false);
    const int64_t read = bytes_read() - before;
    constexpr int64_t kByMessages = 4096;  // what is read besides, by the messages between ranks
    CHECK(read >= held);
    CHECK(read <= held + kByMessages);
    const int64_t read_by_all = world.sum(read);
    CHECK((layout.tp * layout.pp == 1 || read_by_all * 5 < 4 * world.size() * whole));
    world.barrier();
  }
}

TEST_CASE("init-from: damage is noticed whoever reads it, and by all") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const ScratchFolder folder(world);
  const std::string path = folder.file("c.h5");
  const model::VitOptions old = small_classifier(model::Pooling::kToken);
  Model(world, {world.size(), 1, 1}, old, 1).save(world, path);
  model::VitOptions larger = old;  // its positions are resized
  larger.image_height = 20;
  larger.image_width = 24;
  for (const Layout& layout : resharded_layouts(world.size())) {
    CAPTURE(layout.text());
    for (const char* name : {"blocks.1.attn.qkv.weight", "blocks.0.mlp.fc2.weight", "norm.weight", "pos_embed"}) {
      CAPTURE(name);
      const std::string dataset = train::dataset_path(train::kParametersGroup, name);
      const int64_t offset = train::CheckpointReader(world, path).find(dataset)->offset + 11;
      const auto flip = [&] {
        world.barrier();
        if (world.rank() == 0) flip_bit(path, offset);
        world.barrier();
      };
      flip();
      const train::CheckpointReader checkpoint(world, path);
      for (const model::VitOptions& options : {old, larger}) {
        Model fresh(world, layout, options, 2);
        const Error error = agreed_error(world, [&] { fresh.init(checkpoint, false); });
        CHECK((error.error_class() == ErrorClass::kBadData));
        CHECK(error.message().find(dataset) != std::string::npos);
      }
      flip();
    }
  }
}
