// BackgroundSave: the copy, the thread, and its end.
#include "src/train/checkpoint/background_save.h"

#include "data/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::train {

BackgroundSave::BackgroundSave(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                               const model::VitOptions& model, const CheckpointInfo& info, const std::string& path)
    : world_(world), file_(create_checkpoint(world, mesh, engine, model, info, path)) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  comm::agreed(world, [&] {
    visit_host_pieces(engine, mesh, [&](HostPiece piece) {
      piece.values = piece.values.clone();  // on the host and contiguous it may be a view of what training changes
      pieces_.push_back(std::move(piece));
    });
  });
  thread_ = std::thread([this] { write(); });
}

BackgroundSave::~BackgroundSave() {
  stops_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

void BackgroundSave::write() {
  try {
    for (const HostPiece& piece : pieces_) {
      if (stops_) {
        break;
      }
      file_->write(piece.dataset, piece.start, piece.values);
    }
    file_->flush();
  } catch (...) {
    error_ = std::current_exception();
  }
  is_done_ = true;
}

void BackgroundSave::finish() {
  comm::agreed(world_, [&] {
    thread_.join();
    if (error_) {
      std::rethrow_exception(error_);
    }
  });
  file_->finish();
}

}  // namespace vit_hybrid::train
