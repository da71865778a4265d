// RunFolder: the folder that holds everything one run writes, locked while the run lasts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/folder_lock.h"
#include "src/config/run_config.h"
#include "src/report/metrics_log.h"
#include "src/report/run_record.h"

namespace vit_hybrid::train {

/// Folders that were not there: what is still empty at the end is removed again.
class MadeFolders {
 public:
  MadeFolders() = default;
  ~MadeFolders();
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;

  /// Makes a folder with its parents; false where it was there. Error(kCannotCreate), with the hint.
  bool make(const std::string& path, const std::string& hint);

 private:
  std::vector<std::string> paths_;  // outer ones first
};

/// Where a run writes its records.
struct RunRecords {
  MetricsLog metrics;
  MetricsLog usage;  ///< of UsageSampler; does nothing where no samples are taken
};

/// Paths of a run's files. Rank 0 makes the folder; all ranks know it.
class RunFolder {
 public:
  /// Makes the folder of `config` (run_dir, else runs_root/<name>-<time>) and the checkpoints' folder, and takes their
  /// locks; nothing else is written before open(). Error(kCannotCreate) on all ranks where a folder cannot be made, is
  /// another job's (with --resume auto it waits whether that job is still there), or holds files; but a run that goes
  /// on from a checkpoint of its own folder adds to what is there, and what a start left that never did a step is
  /// removed. At the end of its life it gives the locks back, and removes the folders that it made where nothing was
  /// written into them. Collective over `world`.
  RunFolder(const RunConfig& config, const comm::MpiGroup& world);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string summary_path() const { return path_ + "/summary.json"; }
  /// With more than kMostRankRows ranks.
  std::string ranks_path() const { return path_ + "/" + kRanksFile; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  /// Of the trace of this part of the run: trace.json, trace-2.json and so on beside an earlier part's.
  std::string trace_path() const;
  /// True where the folder held the files of the run's earlier part.
  bool is_continued() const { return is_continued_; }
  /// When all is ready for the first step: writes config.yaml (config-2.yaml and so on beside an earlier part's),
  /// starts out.log, and opens metrics.jsonl and usage.jsonl on rank 0; elsewhere the result is logs that do nothing.
  /// An earlier part's summary.json is removed. Collective over `world`.
  RunRecords open(const RunConfig& config, const comm::MpiGroup& world) const;

 private:
  void make(const RunConfig& config);
  void take_run_folder(const RunConfig& config, const comm::MpiGroup& world);
  void take_checkpoint_folder(const RunConfig& config, const comm::MpiGroup& world);
  void judge_content(const RunConfig& config);

  std::string path_;
  bool is_continued_ = false;
  // Of rank 0; the locks go before the folders:
  MadeFolders made_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<FolderLock> checkpoints_lock_;  // none with --keep-checkpoints none
};

/// Error(kUsage) where `path`, to be written as `option` says, would be a run's own file: one of its records, or
/// anything in its folder of checkpoints. For one rank.
void refuse_run_file(const std::string& path, const std::string& option);

/// The folder of a run that starts now, for run_dir empty: runs_root/<name>-<YYYYMMDD-HHMMSS>.
std::string default_run_dir(const std::string& runs_root, const std::string& name);

}  // namespace vit_hybrid::train
