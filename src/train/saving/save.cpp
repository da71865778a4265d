// Saving: a file without values, every rank's boxes, and at the end the checksums, which are counted on the way.
#include "src/train/saving/save.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "parallel/comm/agreement.h"
#include "src/base/memory_tracker.h"
#include "src/base/progress.h"
#include "src/checkpoint/checkpoint_description.h"

namespace vit_hybrid::train {

namespace {

// A box is counted and written in parts that stay in a processor's cache from the one to the other.
constexpr int64_t kPartElements = 1 << 17;

Checksums checksums_of(Engine& engine, const model::VitOptions& model) {
  Checksums checksums;
  for (const std::string& group : state_groups(engine)) {
    for (const GlobalTensor& tensor : global_tensors(model)) {
      checksums[dataset_path(group, tensor.name)] = {};
    }
  }
  return checksums;
}

std::vector<data::Hdf5DatasetSpec> datasets_of(Engine& engine, const model::VitOptions& model) {
  const at::ScalarType master = engine.optimizer().master_type();
  const std::string not_yet = TensorChecksum().text();
  std::vector<data::Hdf5DatasetSpec> specs;
  for (const std::string& group : state_groups(engine)) {
    for (GlobalTensor& tensor : global_tensors(model)) {
      specs.push_back(
          {dataset_path(group, tensor.name), std::move(tensor.shape), master, {{kChecksumAttribute, not_yet}}});
    }
  }
  return specs;
}

}  // namespace

int64_t checkpoint_bytes(Engine& engine, const model::VitOptions& model) {
  const auto item = static_cast<int64_t>(at::elementSize(engine.optimizer().master_type()));
  return static_cast<int64_t>(state_groups(engine).size()) * item * model::num_parameters(model);
}

std::vector<StateBox> written_boxes(Engine& engine, const mesh::DeviceMesh& mesh) {
  const auto groups = state_groups(engine);
  std::vector<StateBox> boxes;
  for (const StatePiece& piece : written_pieces(engine, mesh)) {
    const auto& spec = engine.parameters().specs()[static_cast<size_t>(piece.parameter)];
    for (size_t i = 0; i < groups.size(); ++i) {
      boxes.push_back(
          {dataset_path(groups[i], spec.name), spec.global_shape, piece.box.global_offset, piece.values[i]});
    }
  }
  return boxes;
}

CheckpointWriter::CheckpointWriter(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                                   const model::VitOptions& model, const CheckpointInfo& info, const std::string& path)
    : mesh_(mesh),
      checksums_(checksums_of(engine, model)),
      file_(world, path, datasets_of(engine, model), info_attributes(info), data::IoMode::kDirect,
            data::Hdf5Seal::kMetadata) {}

void CheckpointWriter::write(const StateBox& box) {
  const int64_t rows = box.values.dim() == 0 ? 1 : box.values.size(0);
  const int64_t rows_of_part = std::max<int64_t>(kPartElements * rows / std::max<int64_t>(box.values.numel(), 1), 1);
  TensorChecksum checksum;
  for (int64_t row = 0; row < rows; row += rows_of_part) {
    at::Tensor part = box.values;
    std::vector<int64_t> start = box.start;
    if (part.dim() > 0) {
      part = part.narrow(0, row, std::min(rows_of_part, rows - row));
      start[0] += row;
    }
    checksum.add(box.shape, start, part);
    file_.write(box.dataset, start, part);
  }
  const std::lock_guard lock(mutex_);
  checksums_.at(box.dataset).add(checksum.value());
}

void CheckpointWriter::finish() {
  add_up(checksums_, mesh_.host_world());
  std::vector<data::Hdf5Text> texts;
  for (const auto& [dataset, checksum] : checksums_) {
    texts.push_back({dataset, kChecksumAttribute, checksum.text()});
  }
  file_.finish(texts);
}

void save_checkpoint(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                     const model::VitOptions& model, const CheckpointInfo& info, const std::string& path) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const Progress progress("writing " + path);
  CheckpointWriter file(world, mesh, engine, model, info, path);
  comm::agreed(world, [&] {
    std::vector<StateBox> boxes = written_boxes(engine, mesh);
    at::parallel_for(0, static_cast<int64_t>(boxes.size()), 1, [&](int64_t begin, int64_t end) {
      const MemoryTracker::Attachment attachment;
      const MemoryScope scope_of_thread(MemoryClass::kWorkspaces);
      for (int64_t i = begin; i < end; ++i) {
        StateBox box = std::move(boxes[static_cast<size_t>(i)]);
        box.values = box.values.cpu().contiguous();
        file.write(box);
      }
    });
  });
  file.finish();
}

}  // namespace vit_hybrid::train
