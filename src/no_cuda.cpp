// What a program without CUDA has in the place of all device files (src/cmake/targets.cmake): no GPU, on which no
// tensor lies.
#include <cstdlib>

#include "data/loading/normalize.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/nccl/device_marks.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/zero/rules/device_update.h"
#include "src/base/device/device_graph.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/trace.h"
#include "src/base/version.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/dropout.h"
#include "src/kernels/field_error.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/layer_norm.h"

namespace vit_hybrid {

namespace {

constexpr const char* kNoCuda = "this program was built without CUDA";

// Of a function of tensors on GPUs.
[[noreturn]] void no_tensor(const char* function) {
  fail_invariant("a tensor on a GPU in a program without CUDA", __FILE__, __LINE__, function);
}

}  // namespace

bool is_built_with_cuda() {
  return false;
}

GpuSurvey survey_gpus() {
  GpuSurvey survey;
  survey.none_reason = kNoCuda;
  return survey;
}

std::vector<std::pair<std::string, std::string>> cuda_library_versions() {
  return {};
}

int64_t device_peak_bytes(c10::Device) {
  return 0;
}

int64_t device_total_bytes(c10::Device) {
  return 0;
}

std::string device_pci_address(c10::Device) {
  return {};
}

std::unique_ptr<DeviceRecorder> make_device_recorder(Unrecordable, std::shared_ptr<RecordingWarning>) {
  no_tensor(__func__);
}

namespace trace {

bool has_device_profiler() {
  return false;
}

std::string start_device_capture() {
  return kNoCuda;
}

std::string stop_device_capture() {
  return {};
}

std::string open_profiler_ranges() {
  return std::getenv("NVTX_INJECTION64_PATH") == nullptr ? "" : "the program was built without CUDA";
}

bool has_profiler_ranges() {
  return false;
}

void begin_profiler_range(const std::string&) {}
void end_profiler_range() {}

}  // namespace trace

namespace comm {

std::unique_ptr<Communicator> make_nccl_communicator(const std::string& axis, const MpiGroup&, c10::Device device,
                                                     Communicator*, const TransportOptions&) {
  throw Error(ErrorClass::kUsage, str("axis '", axis, "': ", kNoCuda, " and cannot use ", device.str()),
              "use --device cpu, or the program built with VIT_HYBRID_ENABLE_CUDA=ON");
}

trace::MakeMark device_marks(c10::Device) {
  return nullptr;
}

std::string nccl_version() {
  return {};
}

}  // namespace comm

namespace zero {

void adam_step_cuda(const OwnedTensors&, const at::Tensor&, const OptimizerOptions&) {
  no_tensor(__func__);
}

void decide_cuda(const at::Tensor&) {
  no_tensor(__func__);
}

void sum_of_squares_cuda(const at::Tensor&, const CountedTable&, const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

}  // namespace zero

namespace data {

void normalize_batch_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

}  // namespace data

namespace kernels {

Normed device_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  no_tensor(__func__);
}

NormedSum device_residual_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, double) {
  no_tensor(__func__);
}

at::Tensor device_layer_norm_backward(const at::Tensor&, const NormInput&, const at::Tensor&, const at::Tensor&,
                                      const NormGradients&) {
  no_tensor(__func__);
}

at::Tensor device_residual_sum(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

at::Tensor device_scale_samples(const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

at::Tensor device_path_scales(const KeyedDrop&, const at::TensorOptions&) {
  no_tensor(__func__);
}

Dropped device_dropout(const at::Tensor&, const KeyedDrop&, const DrawPlaces&) {
  no_tensor(__func__);
}

at::Tensor device_field_sums(const at::Tensor&, const at::Tensor&, const PatchGrid&, const FieldMeasure&) {
  no_tensor(__func__);
}

at::Tensor device_field_gradient(const at::Tensor&, const at::Tensor&, const PatchGrid&, const at::Tensor&,
                                 const FieldMeasure&) {
  no_tensor(__func__);
}

at::Tensor device_linear_forward(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

at::Tensor device_linear_backward_input(const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

void device_add_weight_gradient(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

void device_add_column_sums(const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

at::Tensor device_linear_gelu_forward(const at::Tensor&, const at::Tensor&, const at::Tensor&, GeluKind, at::Tensor*) {
  no_tensor(__func__);
}

at::Tensor device_linear_pre_activation(const at::Tensor&, const at::Tensor&, const at::Tensor&, GeluKind) {
  no_tensor(__func__);
}

at::Tensor device_linear_gelu_backward_input(const at::Tensor&, const at::Tensor&, GeluKind, const at::Tensor&) {
  no_tensor(__func__);
}

bool device_fuses_gelu_backward(const at::Tensor&, int64_t, GeluKind) {
  no_tensor(__func__);
}

at::Tensor device_gelu(const at::Tensor&, GeluKind) {
  no_tensor(__func__);
}

at::Tensor device_gelu_backward(const at::Tensor&, const at::Tensor&, GeluKind, const at::Tensor&) {
  no_tensor(__func__);
}

void measure_product(const ProductProblem&, c10::Device) {
  no_tensor(__func__);
}

void forget_product_plans() {}

std::string device_product_text(at::ScalarType, GeluKind) {
  no_tensor(__func__);
}

DeviceTraits device_traits(c10::Device) {
  no_tensor(__func__);
}

double device_microseconds(const std::function<void()>&, Effort) {
  no_tensor(__func__);
}

void synchronize_device() {
  no_tensor(__func__);
}

void release_unused_device_memory() {
  no_tensor(__func__);
}

at::Tensor device_attention_mask(const AttentionMaskKey&, Range, Range, c10::Device) {
  no_tensor(__func__);
}

AttentionPass device_short_attention(const at::Tensor&, int64_t, Passes) {
  no_tensor(__func__);
}

at::Tensor device_short_attention_backward(const at::Tensor&, const at::Tensor&, int64_t, const AttentionPass&) {
  no_tensor(__func__);
}

at::Tensor device_qkv_gradient(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_tensor(__func__);
}

}  // namespace kernels

}  // namespace vit_hybrid
