// RunFolder: the folder that holds everything one run writes.
#pragma once

#include <string>

#include "parallel/comm/mpi_group.h"
#include "src/train/metrics_log.h"
#include "src/train/run_config.h"

namespace vit_hybrid::train {

/// Paths of a run's files. Rank 0 makes the folder; all ranks know it.
class RunFolder {
 public:
  /// Makes the folder of `config` (run_dir, else runs_root/<name>-<time>) with config.yaml and checkpoints/, and starts
  /// out.log. Error(kCannotCreate) on all ranks where it cannot be made or holds files; but a run that goes on from a
  /// checkpoint of its own folder adds to what is there, with config-2.yaml and so on. `resumed` is that checkpoint's
  /// path, or empty. Collective over the world.
  static RunFolder create(const RunConfig& config, const comm::MpiGroup& world, const std::string& resumed = {});

  const std::string& path() const { return path_; }
  std::string summary_path() const { return path_ + "/summary.json"; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  /// True where the folder held the files of the run's earlier part.
  bool is_continued() const { return is_continued_; }
  /// Opens metrics.jsonl on rank 0; elsewhere a log that does nothing. Collective over the world.
  MetricsLog open_metrics(const comm::MpiGroup& world) const;

 private:
  RunFolder(std::string path, bool is_continued) : path_(std::move(path)), is_continued_(is_continued) {}

  std::string path_;
  bool is_continued_;
};

/// The folder of a run that starts now, for run_dir empty: runs_root/<name>-<YYYYMMDD-HHMMSS>.
std::string default_run_dir(const RunConfig& config);

/// Makes `path` with its parents, or accepts an empty folder that is there. Throws Error(kCannotCreate).
void make_empty_folder(const std::string& path);

}  // namespace vit_hybrid::train
