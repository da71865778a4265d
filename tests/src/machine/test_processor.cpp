// Processors from the kernel's text, and peaks against the makers' figures.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "src/base/text.h"
#include "src/machine/processor.h"
#include "src/machine/roofline.h"
#include "tests/support/contains.h"

using namespace vit_hybrid::train;
using vit_hybrid::str;
using vit_hybrid::testing::contains;

namespace {

// By the text of a machine that has another one beside.
Processor machine(const std::string& vendor, int family, int model, const std::string& flags) {
  std::istringstream text(str("processor\t: 0\nvendor_id\t: ", vendor, "\ncpu family\t: ", family,
                              "\nmodel\t\t: ", model, "\nmodel name\t: A processor\nflags\t\t: fpu fma ", flags,
                              "\npower management:\n\n",
                              "processor\t: 1\nvendor_id\t: another\nmodel name\t: Another\nflags\t\t: vmx\n\n"));
  return parse_processor(text);
}

const std::string kAvx512 = "avx2 avx512f ";

}  // namespace

TEST_CASE("processor: the first one is told of") {
  const Processor processor = machine("AuthenticAMD", 26, 2, kAvx512 + "avx512_bf16");
  CHECK(processor.name == "A processor");
  CHECK(processor.vendor == "AuthenticAMD");
  CHECK(processor.family == 26);
  CHECK(processor.model == 2);
  CHECK(processor.has("avx512_bf16"));
  CHECK_FALSE(processor.has("avx512"));
  CHECK_FALSE(processor.has("vmx"));
  std::istringstream nothing("");
  CHECK(parse_processor(nothing).name == "unknown");
}

TEST_CASE("processor: operations a cycle are those of the makers' manuals, or not known") {
  // Zen 5: two 512-bit units; Zen 4: the same instructions in halves; Zen 3: no AVX-512.
  const Processor zen5 = machine("AuthenticAMD", 0x1a, 2, kAvx512 + "avx512_bf16");
  CHECK(flops_per_cycle(zen5, at::kFloat) == 2 * 2 * 16);
  CHECK(flops_per_cycle(zen5, at::kDouble) == 2 * 2 * 8);
  CHECK(flops_per_cycle(zen5, at::kBFloat16) == 2 * 2 * 32);
  CHECK(flops_per_cycle(zen5, at::kHalf) == flops_per_cycle(zen5, at::kFloat));
  const Processor zen4 = machine("AuthenticAMD", 0x19, 0x11, kAvx512 + "avx512_bf16");
  CHECK(flops_per_cycle(zen4, at::kBFloat16) == 64);
  const Processor zen3 = machine("AuthenticAMD", 0x19, 0x01, "avx2");
  CHECK(flops_per_cycle(zen3, at::kBFloat16) == 32);
  const Processor sapphire = machine("GenuineIntel", 6, 0x8f, kAvx512 + "avx512_bf16 amx_bf16");
  CHECK(flops_per_cycle(sapphire, at::kFloat) == 64);
  CHECK(flops_per_cycle(sapphire, at::kBFloat16) == 1024);
  CHECK(flops_per_cycle(machine("GenuineIntel", 6, 0x55, kAvx512), at::kFloat) == 0);
  CHECK(flops_per_cycle(machine("AuthenticAMD", 0x30, 0, kAvx512), at::kFloat) == 0);
  CHECK(flops_per_cycle(Processor{}, at::kFloat) == 0);
}

TEST_CASE("processor: what is missing of the instruction sets is said") {
  const Processor zen5 = machine("AuthenticAMD", 0x1a, 2, kAvx512 + "avx512_bf16");
  CHECK(vector_bytes(zen5) == 64);
  CHECK(instruction_set_text(zen5, at::kBFloat16) == "AVX-512 with BF16");
  CHECK(instruction_set_text(zen5, at::kFloat) == "AVX-512");
  CHECK(instruction_set_text(zen5, at::kDouble) == "AVX-512");
  CHECK(contains(instruction_set_text(zen5, at::kHalf), "fp16 is computed in fp32"));
  const Processor skylake = machine("GenuineIntel", 6, 0x55, kAvx512);
  CHECK(instruction_set_text(skylake, at::kFloat) == "AVX-512");
  CHECK(contains(instruction_set_text(skylake, at::kBFloat16), "bf16 is computed in fp32"));
  const Processor zen3 = machine("AuthenticAMD", 0x19, 1, "avx2");
  CHECK(vector_bytes(zen3) == 32);
  CHECK(contains(instruction_set_text(zen3, at::kFloat), "AVX2 only"));
  CHECK_FALSE(contains(instruction_set_text(zen3, at::kFloat), "bf16"));
  CHECK(vector_bytes(machine("GenuineIntel", 6, 0x2a, "")) == 16);
}

TEST_CASE("peak: GPUs by their driver's name, and nothing is made up") {
  CHECK(gpu_peak_flops("NVIDIA H200", Precision::kBf16) == doctest::Approx(989.4e12));
  CHECK(gpu_peak_flops("NVIDIA H200 NVL", Precision::kFp16) == doctest::Approx(835.5e12));
  CHECK(gpu_peak_flops("NVIDIA H100 PCIe", Precision::kBf16) == doctest::Approx(756e12));
  CHECK(gpu_peak_flops("NVIDIA A100-SXM4-80GB", Precision::kTf32) == doctest::Approx(156e12));
  CHECK(gpu_peak_flops("Tesla V100-SXM2-32GB", Precision::kFp16) == doctest::Approx(125e12));
  CHECK(gpu_peak_flops("Tesla V100-SXM2-32GB", Precision::kBf16) == 0.0);
  CHECK(gpu_peak_flops("Tesla V100S-PCIE-32GB", Precision::kFp16) == doctest::Approx(130e12));
  CHECK(gpu_peak_flops("NVIDIA GeForce RTX 4090", Precision::kFp16) == 0.0);
}
