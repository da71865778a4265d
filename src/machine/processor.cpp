// Processor: the kernel's text, and what the makers' optimisation manuals say of the units.
#include "src/machine/processor.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace vit_hybrid::train {

namespace {

// Highest frequency of core 0, in kHz in the file. Virtual machines have no such file; what cpuinfo calls "cpu MHz" is
// the frequency of the moment, or of the clock.
double highest_frequency() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  double kilohertz = 0.0;
  return file >> kilohertz ? 1e3 * kilohertz : 0.0;
}

// fp32 SIMD lanes of all multiply-add units of a core, two operations each.
int fp32_flops_per_cycle(const Processor& processor) {
  constexpr int kSkylakeServer = 0x55;  // and Cascade Lake: some of them have one wide unit, some two
  if (processor.vendor == "AuthenticAMD") {
    switch (processor.family) {
      case 0x17:  // Zen: 2 x 128 bits; Zen 2: 2 x 256
        return processor.model < 0x30 ? 16 : 32;
      case 0x19:  // Zen 3 and Zen 4, which does 512 bits in two halves
        return 32;
      case 0x1a:  // Zen 5: 2 x 512
        return 64;
      default:
        return 0;
    }
  }
  if (processor.vendor == "GenuineIntel" && processor.family == 6 && processor.has("fma")) {
    if (!processor.has("avx512f")) {
      return processor.has("avx2") ? 32 : 0;
    }
    return processor.model == kSkylakeServer ? 0 : 64;
  }
  return 0;
}

}  // namespace

Processor parse_processor(std::istream& cpuinfo) {
  Processor out;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    const size_t colon = line.find(':');
    const std::string key = line.substr(0, std::min(colon, line.find_last_not_of(" \t", colon - 1) + 1));
    const std::string value = colon != std::string::npos && colon + 2 < line.size() ? line.substr(colon + 2) : "";
    if (key == "vendor_id") {
      out.vendor = value;
    } else if (key == "cpu family") {
      out.family = std::atoi(value.c_str());
    } else if (key == "model") {
      out.model = std::atoi(value.c_str());
    } else if (key == "model name") {
      out.name = value;
    } else if (key == "flags") {
      std::istringstream words(value);
      for (std::string word; words >> word;) {
        out.flags.insert(word);
      }
    }
  }
  return out;
}

const Processor& this_processor() {
  static const Processor processor = [] {
    std::ifstream file("/proc/cpuinfo");
    Processor out = parse_processor(file);
    out.max_hertz = highest_frequency();
    return out;
  }();
  return processor;
}

int vector_bytes(const Processor& processor) {
  if (processor.has("avx512f")) {
    return 64;
  }
  return processor.has("avx2") ? 32 : 16;
}

int flops_per_cycle(const Processor& processor, at::ScalarType type) {
  const int fp32 = fp32_flops_per_cycle(processor);
  if (type == at::kDouble) {
    return fp32 / 2;
  }
  if (type == at::kBFloat16 && processor.has("amx_bf16")) {
    return 1024;  // a 16 x 16 tile of sums of 32 products every 16 cycles
  }
  return type == at::kBFloat16 && processor.has("avx512_bf16") ? 2 * fp32 : fp32;
}

std::string instruction_set_text(const Processor& processor, at::ScalarType type) {
  if (processor.vendor.empty()) {
    return "vectors of 16 bytes; half types are computed in fp32";  // not x86
  }
  std::string out = "neither AVX-512 nor AVX2: vectors of 16 bytes";
  if (processor.has("avx512f")) {
    out = type != at::kBFloat16          ? "AVX-512"
          : processor.has("amx_bf16")    ? "AVX-512 and AMX"
          : processor.has("avx512_bf16") ? "AVX-512 with BF16"
                                         : "AVX-512";
  } else if (processor.has("avx2")) {
    out = "AVX2 only: vectors of 32 bytes instead of 64";
  }
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  const bool multiplies = type == at::kBFloat16 && (processor.has("avx512_bf16") || processor.has("amx_bf16"));
  if (is_half && !multiplies) {
    out += type == at::kHalf ? "; fp16 is computed in fp32" : "; no BF16 instructions, so bf16 is computed in fp32";
  }
  return out;
}

}  // namespace vit_hybrid::train
