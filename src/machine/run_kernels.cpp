// The kernels' stored choices: adopted, kept in a file with every check, or measured again.
#include "src/machine/run_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/reading/posix_file.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/base/version.h"
#include "src/config/run_config.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/product_kernel.h"
#include "src/machine/processor.h"
#include "src/machine/tune_host_kernel.h"
#include "src/machine/tune_kernels.h"

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

namespace {

// In the place of a kernel's bytes, which nobody can read.
constexpr const char* kBytesOfLibrary = "cuBLASLt";

ProductTypes product_types(const RunConfig& config) {
  const zero::PrecisionPolicy policy = precision_policy(config);
  return {policy.compute, policy.gradient, kernel_options(config).fp32};
}

bool is_hexadecimal(const std::string& kernel) {
  return !kernel.empty() && kernel.find_first_not_of("0123456789abcdef") == std::string::npos;
}

SavedKernels use_of_saved(const RunConfig& config) {
  return config.retune ? SavedKernels::kMeasureAgain : SavedKernels::kUse;
}

// Settings that change what the libraries do on a processor.
std::string library_settings() {
  std::string out;
  for (const char* const name :
       {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_CBWR"}) {
    if (const char* const value = std::getenv(name)) {
      out += str(", ", name, "=", value);
    }
  }
  return out;
}

// A library's version out of its banner; the whole of one that looks otherwise.
std::string version_between(const std::string& banner, const std::string& before, const std::string& after) {
  const size_t found = banner.find(before);
  const size_t begin = found == std::string::npos ? found : found + before.size();
  const size_t end = banner.find(after, begin);
  return end == std::string::npos ? banner : banner.substr(begin, end - begin);
}

std::string libtorch_version() {
  const auto versions = library_versions();
  return std::find_if(versions.begin(), versions.end(), [](const auto& library) { return library.first == "LibTorch"; })
      ->second;
}

std::string in_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return text;
}

// What the choice of the host's kernel holds for, in one line.
std::string host_machine_text() {
  const Processor& processor = this_processor();
  return in_one_line(str(processor.name, " (family ", processor.family, ", model ", processor.model, ", vectors of ",
                         vector_bytes(processor), " bytes), ranks with --threads ", at::get_num_threads(),
                         ", LibTorch ", libtorch_version(), ", oneDNN ",
                         version_between(at::get_mkldnn_version(), "DNN v", " "), ", MKL ",
                         version_between(at::get_mkl_version(), "Version ", " for "), library_settings()));
}

// What a choice holds for that other runs take over: also the settings that checkpoints do not ask for.
std::string host_machine_key() {
  return in_one_line(join(std::vector<std::string>{host_machine_text(), join(kernel_settings(environ))}, "; "));
}

}  // namespace

kernels::DeviceKernelOptions kernel_options(const RunConfig& config) {
  const bool is_tf32 = config.precision.kind == Precision::kTf32;
  return {is_tf32 ? kernels::Fp32Products::kTf32 : kernels::Fp32Products::kExact,
          config.deterministic ? kernels::SumOrder::kFixed : kernels::SumOrder::kAny};
}

Tf32Override tf32_override(Precision precision, const char* value) {
  const std::string text = value == nullptr ? "" : value;
  const bool is_tf32 = precision == Precision::kTf32;
  if (text.empty() || (text == "0") != is_tf32) {
    return {};
  }
  if (is_tf32) {
    return {
        std::nullopt,
        "--precision tf32 without TF32: NVIDIA_TF32_OVERRIDE is 0, by which NVIDIA's libraries never take it; unset "
        "it, or give --precision fp32"};
  }
  return {Error(ErrorClass::kUsage,
                str("--precision ", precision_name(precision), " is to have no TF32, but NVIDIA_TF32_OVERRIDE is '",
                    text, "', and NVIDIA's libraries obey that instead of this program"),
                "unset NVIDIA_TF32_OVERRIDE or set it to 0, or give --precision tf32"),
          {}};
}

void set_kernel_options(const RunConfig& config, c10::Device device, const comm::MpiGroup& world) {
  if (device.is_cuda()) {
    const Tf32Override forced = tf32_override(config.precision.kind, std::getenv("NVIDIA_TF32_OVERRIDE"));
    comm::agree(world, forced.problem);
    if (!forced.warning.empty()) {
      log_warning(forced.warning);
    }
  }
  kernels::set_device_kernel_options(kernel_options(config));
}

std::vector<int64_t> micro_batch_sizes(const data::EpochPlan& plan, int64_t num_replicas, int64_t micro_batch_size) {
  std::set<int64_t> sizes;
  // All steps but the last have the whole batch.
  for (const int64_t step : {int64_t{0}, plan.num_steps() - 1}) {
    for (int64_t replica = 0; replica < num_replicas && plan.num_steps() > 0; ++replica) {
      const auto samples = plan.replica_batch(step, replica, num_replicas);
      for (const auto& micro_batch : data::micro_batches(samples, micro_batch_size)) {
        sizes.insert(static_cast<int64_t>(micro_batch.size()));
      }
    }
  }
  return {sizes.begin(), sizes.end()};
}

void choose_kernels(const RunConfig& config, const std::vector<int64_t>& sizes, const std::string& saved,
                    c10::Device device, const comm::MpiGroup& world) {
  if (device.is_cpu()) {
    return;
  }
  const auto types = product_types(config);
  const auto problems = device_problems_of_mesh(config.model, config.parallel.tp, sizes, types);
  log_line(tune_kernels(problems, saved, use_of_saved(config), device, world).text);
  const int64_t largest = sizes.empty() ? 0 : sizes.back();
  const auto of_micro_batch =
      device_problems(config.model, {0, config.model.num_units()}, 0, config.parallel.tp, largest, types);
  const std::string cost = fixed_order_cost_text(of_micro_batch);
  if (!cost.empty()) {
    log_line(cost);
  }
}

HostLayer largest_layer(const RunConfig& config, HostLayer::Passes passes) {
  const int64_t replica = config.replica_batch_size();
  const int64_t samples = std::min<int64_t>(config.parallel.micro_batch_size, replica);
  DeviceProblems problems;  // of a block: there are many of those, and one of each other layer
  for (int rank = 0; rank < config.parallel.tp; ++rank) {
    problems.add(device_problems(config.model, {1, 2}, rank, config.parallel.tp, samples, product_types(config)));
  }
  const auto is_smaller = [](const auto& a, const auto& b) { return a.flops() < b.flops(); };
  const auto largest = std::max_element(problems.products.begin(), problems.products.end(), is_smaller);
  const bool is_trained = passes == HostLayer::Passes::kForwardAndBackward;
  return {largest->rows, largest->outputs, largest->inputs, is_trained ? largest->rows / samples * replica : 0, passes};
}

void choose_host_kernel(const RunConfig& config, HostLayer::Passes passes, const std::string& saved,
                        const comm::MpiGroup& world) {
  // A rank may stand on another processor than the others.
  if (world.max(kernels::multiplies_in_fp32(precision_policy(config).compute) ? 1 : 0) == 0) {
    return;
  }
  const HostProblem problem{largest_layer(config, passes), host_machine_text(), kernel_options(config).order};
  KernelCache cache(kernel_cache_folder(), machines_text(world.all_gather(host_machine_key())));
  const std::string text = tune_host_kernel(problem, saved, use_of_saved(config), world, &cache).text;
  if (!text.empty()) {
    log_line(text);
  }
}

std::string saved_kernels() {
  const kernels::KernelTable& table = kernels::kernel_table();
  return table.choices().empty() ? std::string() : table.text();
}

Json kernel_choices_json() {
  const kernels::KernelTable& table = kernels::kernel_table();
  if (table.choices().empty()) {
    return nullptr;
  }
  Json choices;
  for (const auto& [problem, choice] : table.choices()) {
    const std::string kernel = is_hexadecimal(choice.kernel) ? kBytesOfLibrary : choice.kernel;
    choices[problem] = {
        {"kernel", kernel}, {"text", choice.text}, {"us", choice.microseconds}, {"fastest_us", choice.fastest}};
  }
  return {{"measured_on", table.machine()}, {"choices", std::move(choices)}};
}

}  // namespace vit_hybrid::train
