// Autotuning: what is measured for a run on GPUs and on the host, and the stored choices that are adopted instead.
#include "src/machine/autotune.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "data/reading/posix_file.h"
#include "data/tools/tool_files.h"
#include "model/vit_costs.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/operation.h"
#include "parallel/tensor/step_context.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/utf8.h"
#include "src/base/version.h"
#include "src/kernels/gemm/small_product.h"
#include "src/machine/processor.h"

namespace vit_hybrid::train {

using kernels::HostLayer;
using kernels::kernel_table;
using kernels::KernelChoice;
using kernels::KernelTable;
using kernels::kHostProblem;
using kernels::ProductExtra;
using kernels::ProductKernel;
using kernels::ProductKind;

kernels::DeviceKernelOptions kernel_options(const StepConfig& config) {
  const bool is_tf32 = config.precision.kind == Precision::kTf32;
  return {is_tf32 ? kernels::Fp32Products::kTf32 : kernels::Fp32Products::kExact,
          config.deterministic ? kernels::SumOrder::kFixed : kernels::SumOrder::kAny};
}

std::string tf32_warning(Precision precision, const char* value) {
  const std::string text = value == nullptr ? "" : value;
  const bool is_tf32 = precision == Precision::kTf32;
  if (text.empty() || (text == "0") != is_tf32) {
    return "";
  }
  if (!is_tf32) {
    throw Error(ErrorClass::kUsage,
                str("--precision ", precision_name(precision), " is to have no TF32, but NVIDIA_TF32_OVERRIDE is '",
                    text, "', and NVIDIA's libraries obey that instead of this program"),
                "unset NVIDIA_TF32_OVERRIDE or set it to 0, or give --precision tf32");
  }
  return "--precision tf32 without TF32: NVIDIA_TF32_OVERRIDE is 0, by which NVIDIA's libraries never take it; unset "
         "it, or give --precision fp32";
}

void set_kernel_options(const StepConfig& config, c10::Device device, const comm::MpiGroup& world) {
  if (device.is_cuda()) {
    const std::string warning =
        comm::agreed(world, [&] { return tf32_warning(config.precision.kind, std::getenv("NVIDIA_TF32_OVERRIDE")); });
    if (!warning.empty()) {
      log_warning(warning);
    }
  }
  kernels::set_device_kernel_options(kernel_options(config));
}

namespace {

ProductTypes product_types(const StepConfig& config) {
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  return {policy.compute, policy.gradient, kernel_options(config).fp32};
}

SavedKernels use_of_saved(bool retune) {
  return retune ? SavedKernels::kMeasureAgain : SavedKernels::kUse;
}

// Makes kernel_table() one of `machine` with those choices of `saved` for `problems` that count. Why the others do not,
// for the end of the line on what was measured. Error(kBadData) where `saved` is damaged and used.
std::string begin_table(const std::string& machine, const std::vector<std::string>& problems, const std::string& saved,
                        SavedKernels use) {
  kernel_table() = {machine, {}};
  if (use == SavedKernels::kMeasureAgain) {
    return saved.empty() ? "" : ", the saved ones given up by --retune";
  }
  const KernelTable of_start = KernelTable::parse(saved);
  return kernel_table().adopt(of_start, problems) ? "" : ", the saved ones were for " + of_start.machine;
}

// Gives all ranks rank 0's kernel_table() and text.
std::string shared(const std::string& text, const comm::MpiGroup& world) {
  kernel_table() = KernelTable::parse(world.broadcast(kernel_table().text(), 0));
  return world.broadcast(text, 0);
}

// What the kernels of a linear layer's products do besides.
struct LayerExtras {
  ProductExtra forward = ProductExtra::kNone;
  std::optional<ProductExtra> input_gradient = ProductExtra::kNone;  // nothing: it is not computed
  ProductExtra weight_gradient = ProductExtra::kNone;
};

// The biases of row-parallel linears are added after the sum over the ranks; one rank has no such sum. Their gradients
// come with those of the norm behind them, or by a kernel of its own (RowParallelLinear). The gradient of fc1's bias
// comes with GELU's backward, unless that is a part of fc2's product (Mlp). The image needs no gradient.
LayerExtras layer_extras(model::LinearRole role, const model::VitOptions& options, int tensor_size,
                         const ProductTypes& types) {
  constexpr auto kNone = ProductExtra::kNone, kBias = ProductExtra::kBias;
  const bool may_fuse = kernels::may_fuse_gelu(options.gelu, types.compute, types.fp32);
  const bool may_fuse_backward = may_fuse && options.dropout == 0.0;
  const auto bias_gradient = kernels::is_as_wide_as_sums(types.gradient) ? ProductExtra::kBiasGradient : kNone;
  const auto row_bias = tensor_size == 1 ? kBias : kNone;
  const auto whole_gradient = tensor_size == 1 ? bias_gradient : kNone;
  switch (role) {
    case model::LinearRole::kPatches:
      return {kBias, std::nullopt, whole_gradient};
    case model::LinearRole::kQkv:
      return {kBias, kNone, bias_gradient};
    case model::LinearRole::kProjection:
      return {row_bias};
    case model::LinearRole::kFc1:
      return {may_fuse ? ProductExtra::kBiasGelu : kBias, kNone, may_fuse_backward ? bias_gradient : kNone};
    case model::LinearRole::kFc2:
      return {row_bias, may_fuse_backward ? ProductExtra::kGeluGradient : kNone};
    case model::LinearRole::kFieldHead:
      break;
    case model::LinearRole::kClassHead:
      return {kBias, kNone, whole_gradient};
  }
  return {};
}

KernelChoice parse_choice(const std::string& text, const std::string& machine) {
  const KernelTable table = KernelTable::parse(text);
  if (table.machine != machine) {
    throw Error(ErrorClass::kBadData, "it is not of this machine");
  }
  const KernelChoice* const choice = table.find(kHostProblem);
  if (choice == nullptr || !kernels::host_kernel_named(choice->kernel)) {
    throw Error(ErrorClass::kBadData, "it names no kernel that is known");
  }
  return *choice;
}

// The same kernel on all ranks, and whether they have another one too.
std::pair<kernels::HostKernel, bool> usual_kernel(const comm::MpiGroup& world) {
  const kernels::HostKernel own = kernels::usual_host_kernel();
  const bool has_other = kernels::has_block_kernel();
  if (world.min(has_other ? 1 : 0) == 0) {
    return {has_other ? kernels::HostKernel{ProductKernel::kLibrary, "not all ranks have oneDNN's block kernel"} : own,
            false};
  }
  auto kernel = own.kernel;
  world.broadcast(&kernel, sizeof(kernel), 0);
  return {kernel == own.kernel ? own : kernels::HostKernel{kernel, "as on rank 0"}, true};
}

KernelChoice measure_host_kernel(const HostLayer& layer, ProductKernel usual, const comm::MpiGroup& world) {
  constexpr std::array kKernels = {ProductKernel::kBlocked, ProductKernel::kLibrary};
  const auto timer = comm::agreed(
      world, [&] { return kernels::host_kernel_timer(kernels::measured_part(layer, at::get_num_threads())); });
  const auto times = microseconds_of_all_ranks(
      kKernels.size(), [&](size_t i) { return timer(kKernels.at(i)); }, world);
  return kernels::choose_host_kernel(usual, times[0], times[1]);
}

// A line for people, and what comes before the reason of a choice that is not from this start.
struct Told {
  std::string line;
  std::string origin;
};

// On rank 0: the choice of --deterministic, of the checkpoint or of the cache, put into kernel_table() if there is one.
Told choose_known(const HostProblem& problem, ProductKernel usual, const std::string& saved, SavedKernels use,
                  KernelCache* cache) {
  auto& choices = kernel_table().choices;
  std::string of_saved = begin_table(problem.machine, {kHostProblem}, saved, use);
  const KernelChoice* const found = kernel_table().find(kHostProblem);
  const std::string saved_kernel = found == nullptr ? "" : found->kernel;
  if (problem.order == kernels::SumOrder::kFixed) {
    const std::string name = kernels::host_kernel_name(usual);
    choices[kHostProblem] = kernels::unmeasured_host_kernel(usual, "--deterministic");
    return {saved_kernel.empty() || saved_kernel == name
                ? ""
                : str("--deterministic: fp32 products by the usual kernel, '", name, "', instead of the saved one, '",
                      saved_kernel, "': from here on the bits differ"),
            ""};
  }
  if (kernels::host_kernel_named(saved_kernel)) {
    return {"", "as saved in the checkpoint; "};
  }
  if (found != nullptr) {
    of_saved = str(", the saved one, '", saved_kernel, "', is not known to this version");
    choices.clear();
  }
  if (const auto kept = cache != nullptr && use == SavedKernels::kUse ? cache->read() : std::nullopt) {
    choices[kHostProblem] = *kept;
    return {of_saved.empty() ? "" : "kernel of fp32 products as kept for this machine" + of_saved,
            "as kept for this machine; "};
  }
  return {of_saved, ""};
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

// What the choice of the host's kernel holds for, in one line.
std::string host_machine_text() {
  const Processor& processor = this_processor();
  return shown(
      str(processor.name, " (family ", processor.family, ", model ", processor.model, ", vectors of ",
          vector_bytes(processor), " bytes), ranks with --threads ", at::get_num_threads(), ", LibTorch ",
          library_versions().front().second, ", oneDNN ", version_between(at::get_mkldnn_version(), "DNN v", " "),
          ", MKL ", version_between(at::get_mkl_version(), "Version ", " for "), library_settings()),
      std::string::npos);
}

// $XDG_CACHE_HOME/vit_hybrid where that is an absolute path, else ~/.cache/vit_hybrid; empty without a home.
std::string kernel_cache_folder() {
  for (const auto& [name, below] : {std::pair{"XDG_CACHE_HOME", "/vit_hybrid"}, {"HOME", "/.cache/vit_hybrid"}}) {
    if (const char* const value = std::getenv(name); value != nullptr && *value == '/') {
      return std::string(value) + below;
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> DeviceProblems::names() const {
  std::vector<std::string> names;
  std::transform(products.begin(), products.end(), std::back_inserter(names), [](auto& p) { return p.name(); });
  std::transform(attentions.begin(), attentions.end(), std::back_inserter(names), [](auto& p) { return p.name(); });
  return names;
}

std::vector<std::string> DeviceProblems::names_with_parts() const {
  std::vector<std::string> with_parts = names();
  for (kernels::ProductProblem product : products) {
    do {
      product = product.without_extra();
      with_parts.push_back(product.name());
    } while (product.extra != ProductExtra::kNone);
  }
  return with_parts;
}

DeviceProblems device_problems(const model::VitOptions& options, Range units, int tensor_rank, int tensor_size,
                               int64_t num_samples, const ProductTypes& types) {
  DeviceProblems problems;
  const int64_t heads = Partition(options.num_heads, tensor_size).part(tensor_rank).size();
  if (options.attention_dropout == 0.0 && heads > 0) {
    problems.attentions.assign(static_cast<size_t>(model::num_blocks(options, units)),
                               {num_samples, options.num_tokens(), heads, options.head_dim(), types.compute});
  }
  for (const model::LinearLayer& layer :
       model::linear_layers(options, units, {tensor_rank, tensor_size}, num_samples)) {
    if (layer.rows == 0 || layer.inputs == 0 || layer.outputs == 0) {
      continue;
    }
    const auto add = [&](ProductKind kind, ProductExtra extra) {
      auto problem =
          kernels::product_problem(kind, extra, layer.rows, layer.outputs, layer.inputs, types.compute, types.fp32);
      problem.result = kind == ProductKind::kWeightGradient ? types.gradient : types.compute;
      problems.products.push_back(problem);
    };
    const LayerExtras extras = layer_extras(layer.role, options, tensor_size, types);
    add(ProductKind::kForward, extras.forward);
    if (extras.input_gradient) {
      add(ProductKind::kBackwardInput, *extras.input_gradient);
    }
    add(ProductKind::kWeightGradient, extras.weight_gradient);
  }
  return problems;
}

DeviceProblems device_problems_of_mesh(const model::VitOptions& options, int tensor_size,
                                       const std::vector<int64_t>& micro_batch_sizes, const ProductTypes& types) {
  DeviceProblems problems;
  std::set<std::string> seen;
  const auto add_new = [&](auto& list, const auto& more) {
    std::copy_if(more.begin(), more.end(), std::back_inserter(list),
                 [&](const auto& problem) { return seen.insert(problem.name()).second; });
  };
  for (const int64_t num_samples : micro_batch_sizes) {
    for (int rank = 0; rank < tensor_size; ++rank) {
      const auto more = device_problems(options, {0, options.num_units()}, rank, tensor_size, num_samples, types);
      add_new(problems.products, more.products);
      add_new(problems.attentions, more.attentions);
    }
  }
  return problems;
}

std::vector<int64_t> micro_batch_sizes(const data::EpochPlan& plan, int64_t num_replicas, int64_t micro_batch_size,
                                       int parts) {
  std::set<int64_t> sizes;
  // All steps but the last have the whole batch.
  for (const int64_t step : {int64_t{0}, plan.num_steps() - 1}) {
    for (int64_t replica = 0; replica < num_replicas && plan.num_steps() > 0; ++replica) {
      const auto samples = plan.replica_batch(step, replica, num_replicas);
      for (const auto& micro_batch : data::micro_batches(samples, micro_batch_size)) {
        const Partition cut = tensor::parts_of(std::ssize(micro_batch), parts);
        sizes.insert({cut.part(0).size(), cut.largest()});
      }
    }
  }
  return {sizes.begin(), sizes.end()};
}

std::string tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use, c10::Device device,
                         const comm::MpiGroup& world) {
  std::string line;
  comm::agreed_on_rank_0(world, [&] {
    const Timer timer;
    const std::string machine =
        kernels::machine_text(kernels::device_traits(device), kernels::device_kernel_options().order);
    const std::string of_saved = begin_table(machine, problems.names_with_parts(), saved, use);
    const size_t num_saved = kernel_table().choices.size();
    const auto tune = [&](const auto& list, void (*measure)(decltype(list.front()), c10::Device)) {
      for (const auto& problem : list) {
        comm::note_work();
        if (kernel_table().find(problem.name()) == nullptr) {
          measure(problem, device);
        }
      }
    };
    tune(problems.products, &kernels::measure_product);
    tune(problems.attentions, &kernels::measure_attention);
    kernels::release_unused_device_memory();
    line = str("kernels of ", kernel_table().choices.size() - num_saved, " shapes measured on rank 0 in ",
               std::round(10.0 * timer.seconds()) / 10.0, " s", num_saved > 0 ? str(", ", num_saved, " as saved") : "",
               of_saved);
  });
  line = shared(line, world);
  kernels::forget_product_plans();
  return line;
}

void choose_kernels(const StepConfig& config, const std::vector<int64_t>& sizes, const std::string& saved,
                    c10::Device device, const comm::MpiGroup& world) {
  if (device.is_cpu()) {
    return;
  }
  const auto types = product_types(config);
  const auto problems = device_problems_of_mesh(config.model, config.parallel.tp, sizes, types);
  log_line(tune_kernels(problems, saved, use_of_saved(config.retune), device, world));
  if (config.deterministic && !kernel_table().choices.empty()) {
    const auto of_micro_batch = device_problems(config.model, {0, config.model.num_units()}, 0, config.parallel.tp,
                                                sizes.empty() ? 0 : sizes.back(), types);
    log_line(str("--deterministic: products and attention take ",
                 std::round(1000.0 * kernel_table().cost(of_micro_batch.names())) / 10.0,
                 " % longer than with the fastest kernels"));
  }
}

std::vector<std::string> kernel_settings(const char* const* environment) {
  const auto begins = [](std::string_view name) {
    const std::array kBeginnings = {"DNNL_", "ONEDNN_", "MKL_", "OMP_", "GOMP_", "KMP_"};
    return std::any_of(kBeginnings.begin(), kBeginnings.end(), [&](const char* b) { return name.starts_with(b); });
  };
  std::vector<std::string> settings;
  for (; *environment != nullptr; ++environment) {
    const std::string_view setting = *environment, name = setting.substr(0, setting.find('='));
    const auto lacks = [&](const char* word) { return name.find(word) == std::string_view::npos; };
    if (begins(name) && lacks("NUM_THREADS") && lacks("VERBOSE") && lacks("DISPLAY")) {
      settings.emplace_back(setting);
    }
  }
  std::sort(settings.begin(), settings.end());
  return settings;
}

KernelCache::KernelCache(const std::string& folder, const std::vector<std::string>& machines)
    : machine_(join(std::set<std::string>(machines.begin(), machines.end()), " beside ")) {
  std::array<char, 17> key{};
  std::snprintf(key.data(), key.size(), "%016llx", static_cast<unsigned long long>(name_key(machine_.c_str())));
  path_ = folder.empty() ? "" : str(folder, "/fp32_products-", key.data(), ".txt");
}

std::optional<KernelChoice> KernelCache::read() {
  constexpr int64_t kMostBytes = int64_t{1} << 16;
  try {
    if (path_.empty()) return std::nullopt;  // keep() says it
    return parse_choice(read_regular_file(path_, kMostBytes, Links::kRefuse), machine_);
  } catch (const Error& error) {
    if (error.error_class() == ErrorClass::kMissingInput) return std::nullopt;
    is_damaged_ = true;
    log_warning(str("the kernel choice kept in ", path_, " is not used: ", error.message()));
    return std::nullopt;
  }
}

KernelChoice KernelCache::keep(const KernelChoice& choice, SavedKernels use) {
  const std::string temporary = str(path_, ".", host_name(), "-", ::getpid(), ".part");
  KernelChoice counts = choice;
  try {
    if (path_.empty()) {
      throw Error(ErrorClass::kCannotCreate, "neither XDG_CACHE_HOME nor HOME names a folder");
    }
    data::make_output_folder(std::filesystem::path(path_).parent_path());
    const std::string text = KernelTable{machine_, {{kHostProblem, choice}}}.text();
    data::PosixFile(temporary, data::PosixFile::Access::kCreate)
        .write(0, text.data(), static_cast<int64_t>(text.size()));
    // A link is refused where there is a file: of starts that measure at the same time all take the first one's choice.
    const bool yields = use == SavedKernels::kUse && !is_damaged_;
    const bool is_first = yields && ::link(temporary.c_str(), path_.c_str()) == 0;
    const auto other = yields && !is_first ? read() : std::nullopt;
    if (!is_first && !other) {
      data::rename_file(temporary, path_);
    }
    counts = other.value_or(choice);
  } catch (const Error& error) {
    if (!is_damaged_) {  // one line is enough
      log_warning(str("the kernel choice is not kept for later runs: ", error.message()));
    }
  }
  ::unlink(temporary.c_str());
  return counts;
}

std::vector<double> microseconds_of_all_ranks(size_t count, const std::function<double(size_t candidate)>& measure,
                                              const comm::MpiGroup& world) {
  // So many rounds are measured where they fit into this time: few where ranks share cores and each round takes long.
  constexpr int kGoodRounds = 3, kMostRounds = 10;
  constexpr double kMostSeconds = 0.2, kEnoughSeconds = 0.1;
  std::vector<double> least(count, std::numeric_limits<double>::infinity());
  const Timer timer;
  const auto is_over = [&](double seconds) { return world.max(timer.seconds() < seconds ? 0 : 1) != 0; };
  // The first round starts threads, generates kernels and touches memory.
  const auto goes_on = [&](int round) {
    return round <= 1 || (round <= kMostRounds && !is_over(round <= kGoodRounds ? kMostSeconds : kEnoughSeconds));
  };
  for (int round = 0; goes_on(round); ++round) {
    for (size_t i = 0; i < count; ++i) {
      const double microseconds = comm::agreed(world, [&] { return measure(i); });
      least[i] = round == 0 ? least[i] : std::min(least[i], microseconds);
    }
  }
  // Whole nanoseconds, whose sum is exact: every rank chooses by it for itself. Then those ranks that have no time.
  std::vector<uint64_t> sums(2 * count, 0);
  for (size_t i = 0; i < count; ++i) {
    const bool is_time = std::isfinite(least[i]) && least[i] > 0.0;
    sums[i] = is_time ? static_cast<uint64_t>(std::llround(1e3 * least[i])) : 0;
    sums[count + i] = is_time ? 0 : 1;
  }
  world.sum(sums);
  std::vector<double> times(count, std::numeric_limits<double>::quiet_NaN());
  for (size_t i = 0; i < count; ++i) {
    if (sums[count + i] == 0) {
      times[i] = 1e-3 * static_cast<double>(sums[i]);
    }
  }
  return times;
}

std::string tune_host_kernel(const HostProblem& problem, const std::string& saved, SavedKernels use,
                             const comm::MpiGroup& world, KernelCache* cache) {
  kernel_table() = {};
  const auto [usual, has_other] = usual_kernel(world);
  kernels::set_host_kernel(usual);
  if (!has_other) {
    return {};
  }
  if (!kernels::is_large_product(problem.layer.rows, problem.layer.outputs, problem.layer.inputs)) {
    kernels::set_host_kernel({usual.kernel, "not measured: products as small as those of this model's blocks", true});
    return {};
  }
  const ProductKernel usual_one = usual.kernel;
  Told told;
  comm::agreed_on_rank_0(world, [&] { told = choose_known(problem, usual_one, saved, use, cache); });
  if (world.max(world.rank() == 0 && kernel_table().choices.empty() ? 1 : 0) == 1) {
    const Timer timer;
    KernelChoice choice = measure_host_kernel(problem.layer, usual_one, world);
    if (world.rank() == 0 && cache != nullptr) {
      choice = cache->keep(choice, use);
    }
    kernel_table().choices[kHostProblem] = choice;
    told.line =
        str("kernel of fp32 products measured on all ranks in ", fixed_text(timer.seconds(), 3), " s", told.line);
  }
  told.origin = world.broadcast(told.origin, 0);
  told.line = shared(told.line, world);
  const KernelChoice& choice = kernel_table().choices.at(kHostProblem);
  kernels::set_host_kernel({*kernels::host_kernel_named(choice.kernel), told.origin + choice.text});
  return told.line;
}

HostLayer largest_layer(const StepConfig& config, HostLayer::Passes passes) {
  const int64_t replica = config.replica_batch_size(), tokens = config.model.num_tokens();
  const auto share = [&](int64_t count) { return (count + config.parallel.tp - 1) / config.parallel.tp; };
  // qkv or fc1, which has as many products as fc2: there are many blocks, and one of each other layer.
  const int64_t qkv = 3 * share(config.model.num_heads) * config.model.head_dim();
  const int64_t outputs = std::max(qkv, share(config.model.mlp_hidden));
  const bool is_trained = passes == HostLayer::Passes::kForwardAndBackward;
  return {std::min<int64_t>(config.parallel.micro_batch_size, replica) * tokens, outputs, config.model.embed_dim,
          is_trained ? replica * tokens : 0, passes};
}

void choose_host_kernel(const StepConfig& config, HostLayer::Passes passes, const std::string& saved,
                        const comm::MpiGroup& world) {
  // A rank may stand on another processor than the others.
  if (world.max(kernels::multiplies_in_fp32(precision_policy(config.precision).compute) ? 1 : 0) == 0) {
    return;
  }
  const HostProblem problem{largest_layer(config, passes), host_machine_text(), kernel_options(config).order};
  // Other runs take it over only where also those settings are the same that checkpoints do not ask for.
  const std::string machine = str(problem.machine, "; ", shown(join(kernel_settings(environ)), std::string::npos));
  KernelCache cache(kernel_cache_folder(), world.gather(machine));  // which rank 0 alone reads and writes
  const std::string line = tune_host_kernel(problem, saved, use_of_saved(config.retune), world, &cache);
  if (!line.empty()) {
    log_line(line);
  }
}

std::string saved_kernels() {
  return kernel_table().choices.empty() ? std::string() : kernel_table().text();
}

Json kernel_choices_json() {
  if (kernel_table().choices.empty()) {
    return nullptr;
  }
  Json choices;
  for (const auto& [problem, choice] : kernel_table().choices) {
    // A kernel's bytes nobody can read.
    const bool is_bytes =
        !choice.kernel.empty() && choice.kernel.find_first_not_of("0123456789abcdef") == std::string::npos;
    choices[problem] = {{"kernel", is_bytes ? "cuBLASLt" : choice.kernel},
                        {"text", choice.text},
                        {"us", choice.microseconds},
                        {"fastest_us", choice.fastest}};
  }
  return {{"measured_on", kernel_table().machine}, {"choices", std::move(choices)}};
}

}  // namespace vit_hybrid::train
