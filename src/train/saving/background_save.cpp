// BackgroundSave: the copy, the thread, and its end.
#include "src/train/saving/background_save.h"

#include <chrono>

#include "parallel/comm/agreement.h"
#include "parallel/comm/operation.h"
#include "src/base/own_processors.h"

namespace vit_hybrid::train {

namespace {
constexpr std::chrono::milliseconds kBetweenNotes{20};
}  // namespace

BackgroundSave::BackgroundSave(const comm::MpiGroup& world, mesh::DeviceMesh& mesh, Engine& engine,
                               const model::VitOptions& model, const CheckpointInfo& info, const std::string& path,
                               StateSnapshot& snapshot)
    : world_(world), snapshot_(snapshot), file_(world, mesh, engine, model, info, path) {
  comm::agreed(world, [&] { snapshot.take(); });
  thread_ = std::thread([this] { write(); });
}

BackgroundSave::~BackgroundSave() {
  stops_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

void BackgroundSave::write() {
  use_allowed_processors();
  try {
    for (const StateBox& box : snapshot_.boxes()) {
      if (stops_) {
        break;
      }
      file_.write(box);
    }
    file_.flush();
  } catch (...) {
    error_ = std::current_exception();
  }
  is_done_ = true;
}

void BackgroundSave::finish() {
  comm::agreed(world_, [&] {
    for (; !is_done_; std::this_thread::sleep_for(kBetweenNotes))
      comm::note_work_of_helpers();
    thread_.join();
    if (error_) {
      std::rethrow_exception(error_);
    }
  });
  file_.finish();
}

}  // namespace vit_hybrid::train
