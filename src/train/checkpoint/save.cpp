// Saving: checksums first, for they stand in the file's head, then every rank's pieces.
#include "src/train/checkpoint/save.h"

#include <utility>
#include <vector>

#include "data/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "src/base/memory_tracker.h"
#include "src/train/checkpoint/checkpoint_description.h"
#include "src/train/checkpoint/engine_state.h"

namespace vit_hybrid::train {

namespace {

std::vector<data::Hdf5DatasetSpec> datasets_of(const model::VitOptions& model, at::ScalarType master,
                                               const Checksums& checksums) {
  std::vector<data::Hdf5DatasetSpec> specs;
  for (const char* group : kStateGroups) {
    for (GlobalTensor& tensor : global_tensors(model)) {
      std::string path = dataset_path(group, tensor.name);
      const std::string checksum = checksums.at(path).text();
      specs.push_back({std::move(path), std::move(tensor.shape), master, {{kChecksumAttribute, checksum}}});
    }
  }
  return specs;
}

}  // namespace

int64_t checkpoint_bytes(const model::VitOptions& model, at::ScalarType master) {
  const auto item = static_cast<int64_t>(c10::elementSize(master));
  return static_cast<int64_t>(kStateGroups.size()) * item * model::num_parameters(model);
}

std::unique_ptr<data::Hdf5Writer> create_checkpoint(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                                                    const model::VitOptions& model, const CheckpointInfo& info,
                                                    const std::string& path) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const Checksums checksums = state_checksums(engine, model, mesh);
  return std::make_unique<data::Hdf5Writer>(
      world, path, datasets_of(model, engine.parameters().values().scalar_type(), checksums), info_attributes(info));
}

void visit_host_pieces(Engine& engine, const mesh::DeviceMesh& mesh, const std::function<void(HostPiece)>& visit) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  for (const StatePiece& piece : written_pieces(engine, mesh)) {
    const auto& spec = engine.parameters().specs()[static_cast<size_t>(piece.parameter)];
    for (size_t i = 0; i < kStateGroups.size(); ++i) {
      visit({dataset_path(kStateGroups[i], spec.name), piece.box.global_offset, piece.values[i].cpu().contiguous()});
    }
  }
}

void save_checkpoint(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                     const model::VitOptions& model, const CheckpointInfo& info, const std::string& path) {
  const auto file = create_checkpoint(world, mesh, engine, model, info, path);
  comm::agreed(world, [&] {
    visit_host_pieces(engine, mesh,
                      [&](const HostPiece& piece) { file->write(piece.dataset, piece.start, piece.values); });
  });
  file->finish();
}

}  // namespace vit_hybrid::train
