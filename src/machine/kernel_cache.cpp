// The file: its name, its reading with every check, and its writing under a temporary name.
#include "src/machine/kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/reading/posix_file.h"
#include "src/base/error.h"
#include "src/base/host_name.h"
#include "src/base/log.h"
#include "src/base/random.h"
#include "src/base/regular_file.h"
#include "src/base/text.h"
#include "src/kernels/gemm/host_kernel_choice.h"

namespace vit_hybrid::train {

namespace {

using kernels::KernelChoice;
using kernels::KernelTable;

constexpr int64_t kMostBytes = int64_t{1} << 16;

KernelChoice parse_choice(const std::string& text, const std::string& machine) {
  const KernelTable table = KernelTable::parse(text);
  if (table.machine() != machine) {
    throw Error(ErrorClass::kBadData, "it is not of this machine");
  }
  const KernelChoice* const choice = table.find(kernels::kHostProblem);
  const auto kernel = choice == nullptr ? std::nullopt : kernels::kernel_named(choice->kernel);
  if (kernel != kernels::ProductKernel::kBlocked && kernel != kernels::ProductKernel::kLibrary) {
    throw Error(ErrorClass::kBadData, "it names no kernel that is known");
  }
  return *choice;
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view b) { return text.starts_with(b); });
}

}  // namespace

std::string kernel_cache_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string cache = variable("XDG_CACHE_HOME");
  if (cache.starts_with('/')) {
    return cache + "/vit_hybrid";
  }
  const std::string home = variable("HOME");
  return home.starts_with('/') ? home + "/.cache/vit_hybrid" : "";
}

std::vector<std::string> kernel_settings(const char* const* environment) {
  std::vector<std::string> settings;
  for (; *environment != nullptr; ++environment) {
    const std::string_view setting = *environment;
    const std::string_view name = setting.substr(0, setting.find('='));
    const bool changes = begins_with_any(name, {"DNNL_", "ONEDNN_", "MKL_", "OMP_", "GOMP_", "KMP_"}) &&
                         name.find("NUM_THREADS") == std::string_view::npos &&
                         name.find("VERBOSE") == std::string_view::npos &&
                         name.find("DISPLAY") == std::string_view::npos;
    if (changes) {
      settings.emplace_back(setting);
    }
  }
  std::sort(settings.begin(), settings.end());
  return settings;
}

std::string machines_text(const std::vector<std::string>& machine_of_ranks) {
  return join(std::set<std::string>(machine_of_ranks.begin(), machine_of_ranks.end()), " beside ");
}

KernelCache::KernelCache(std::string folder, std::string machine)
    : machine_(std::move(machine)), folder_(std::move(folder)) {
  std::array<char, 17> key{};
  std::snprintf(key.data(), key.size(), "%016llx", static_cast<unsigned long long>(name_key(machine_.c_str())));
  path_ = str(folder_, "/fp32_products-", key.data(), ".txt");
}

std::optional<KernelChoice> KernelCache::read() {
  try {
    if (folder_.empty()) return std::nullopt;  // keep() says it
    return parse_choice(read_regular_file(path_, kMostBytes, Links::kRefuse), machine_);
  } catch (const Error& error) {
    if (error.error_class() == ErrorClass::kMissingInput) return std::nullopt;
    is_damaged_ = true;
    log_warning(str("the kernel choice kept in ", path_, " is not used: ", error.message()));
    return std::nullopt;
  }
}

KernelChoice KernelCache::keep(const KernelChoice& choice, SavedKernels use) {
  KernelTable table(machine_);
  table.choose(kernels::kHostProblem, choice);
  const std::string temporary = str(path_, ".", host_name(), "-", ::getpid(), ".part");
  try {
    if (folder_.empty()) {
      throw Error(ErrorClass::kCannotCreate, "neither XDG_CACHE_HOME nor HOME names a folder");
    }
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) {
      throw Error(ErrorClass::kCannotCreate, str("cannot make ", folder_, ": ", error.message()));
    }
    const std::string text = table.text();
    data::PosixFile(temporary, data::PosixFile::Access::kCreate)
        .write(0, text.data(), static_cast<int64_t>(text.size()));
    // A link is refused where there is a file: of starts that measure at the same time all take the first one's choice.
    const bool yields = use == SavedKernels::kUse && !is_damaged_;
    const bool is_first = yields && ::link(temporary.c_str(), path_.c_str()) == 0;
    const bool was_there = yields && !is_first && errno == EEXIST;
    if (const auto other = was_there ? read() : std::nullopt) {
      ::unlink(temporary.c_str());
      return *other;
    }
    if (is_first) {
      ::unlink(temporary.c_str());
    } else {
      data::rename_file(temporary, path_);
    }
  } catch (const Error& error) {
    ::unlink(temporary.c_str());
    if (!is_damaged_) {  // one line is enough
      log_warning(str("the kernel choice is not kept for later runs: ", error.message()));
    }
  }
  return choice;
}

}  // namespace vit_hybrid::train
