// KernelCache: the choice of the host's fp32 kernel, kept for a machine in the user's cache folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/machine/tune_host_kernel.h"

namespace vit_hybrid::train {

/// One small file a kind of machine, replaced as a whole: jobs that start together may all write. What cannot be read,
/// trusted or written is told in one warning and otherwise as if it were not there.
class KernelCache final : public HostKernelStore {
 public:
  /// `folder`: kernel_cache_folder(). `machine`: one line, what a choice holds for.
  KernelCache(std::string folder, std::string machine);

  std::optional<kernels::KernelChoice> read() override;
  kernels::KernelChoice keep(const kernels::KernelChoice& choice, SavedKernels use) override;
  const std::string& path() const { return path_; }

 private:
  std::string machine_;
  std::string folder_;
  std::string path_;
  bool is_damaged_ = false;  // read() has refused the file
};

/// $XDG_CACHE_HOME/vit_hybrid where that is an absolute path, else ~/.cache/vit_hybrid; empty without a home.
std::string kernel_cache_folder();

/// The settings of the environment (NAME=VALUE) that change what oneDNN, MKL and OpenMP do with as many threads on the
/// same processor, sorted; not their numbers of threads, which are the run's, nor what they print. Pure.
std::vector<std::string> kernel_settings(const char* const* environment);

/// What a choice holds for that was measured by ranks on these machines, one text a rank in any order: their kinds,
/// each once. A job on nodes of several kinds so has an entry of its own, and changes none of theirs. Pure.
std::string machines_text(const std::vector<std::string>& machine_of_ranks);

}  // namespace vit_hybrid::train
