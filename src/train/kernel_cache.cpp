// The file: its name, its reading with every check, and its writing under a temporary name.
#include "src/train/kernel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
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

#include "parallel/tensor/host_kernel_choice.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using tensor::KernelChoice;
using tensor::KernelTable;

constexpr size_t kMostBytes = size_t{1} << 16;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorClass::kIo, str(what, ": ", std::generic_category().message(errno)));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// The bytes of a small regular file; nothing where there is none of this name.
std::optional<std::string> content_of(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.number() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail("cannot open it");
  }
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorClass::kBadData, "it is no regular file");
  }
  std::string text(kMostBytes + 1, ' ');
  const ssize_t count = ::read(file.number(), text.data(), text.size());
  if (count < 0) fail("cannot read it");
  if (static_cast<size_t>(count) > kMostBytes) {
    throw Error(ErrorClass::kBadData, str("it has more than ", kMostBytes, " bytes"));
  }
  text.resize(static_cast<size_t>(count));
  return text;
}

KernelChoice parse_choice(const std::string& text, const std::string& machine) {
  const KernelTable table = KernelTable::parse(text);
  if (table.machine() != machine) {
    throw Error(ErrorClass::kBadData, "it is not of this machine");
  }
  const KernelChoice* const choice = table.find(tensor::kHostProblem);
  const auto kernel = choice == nullptr ? std::nullopt : tensor::kernel_named(choice->kernel);
  if (kernel != tensor::ProductKernel::kBlocked && kernel != tensor::ProductKernel::kLibrary) {
    throw Error(ErrorClass::kBadData, "it names no kernel that is known");
  }
  return *choice;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

// A new file of this name, never one that a link leads to.
void write_new(const std::string& path, const std::string& text) {
  ::unlink(path.c_str());
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.number() < 0) fail("cannot create " + path);
  errno = ENOSPC;  // of a write that is cut short
  if (::write(file.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail("cannot write " + path);
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
    const auto text = content_of(path_);
    return text ? std::optional(parse_choice(*text, machine_)) : std::nullopt;
  } catch (const Error& error) {
    is_damaged_ = true;
    log_warning(str("the kernel choice kept in ", path_, " is not used: ", error.message()));
    return std::nullopt;
  }
}

KernelChoice KernelCache::keep(const KernelChoice& choice, model::SavedKernels use) {
  KernelTable table(machine_);
  table.choose(tensor::kHostProblem, choice);
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
    write_new(temporary, table.text());
    // A link is refused where there is a file: of starts that measure at the same time all take the first one's choice.
    const bool yields = use == model::SavedKernels::kUse && !is_damaged_;
    const bool is_first = yields && ::link(temporary.c_str(), path_.c_str()) == 0;
    const bool was_there = yields && !is_first && errno == EEXIST;
    if (const auto other = was_there ? read() : std::nullopt) {
      ::unlink(temporary.c_str());
      return *other;
    }
    if (is_first) {
      ::unlink(temporary.c_str());
    } else if (std::rename(temporary.c_str(), path_.c_str()) != 0) {
      fail("cannot rename " + temporary);
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
