// Processor: what this node's processor is and can do at best; how many there are is placement's.
#pragma once

#include <c10/core/ScalarType.h>

#include <istream>
#include <set>
#include <string>

namespace vit_hybrid::train {

/// What /proc/cpuinfo and cpufreq tell.
struct Processor {
  std::string name = "unknown";  ///< "AMD EPYC 9755"
  std::string vendor;            ///< "AuthenticAMD", "GenuineIntel"
  int family = 0;
  int model = 0;
  std::set<std::string> flags;  ///< instruction sets, in the kernel's words
  double max_hertz = 0.0;       ///< highest frequency; 0: not known

  bool has(const char* flag) const { return flags.contains(flag); }
};

/// From the text of /proc/cpuinfo, what it says of the first one.
Processor parse_processor(std::istream& cpuinfo);
/// Of this node; read once.
const Processor& this_processor();

/// Bytes of a vector that loops are compiled for: 64, 32 or 16.
int vector_bytes(const Processor& processor);

/// Floating-point operations of one core in a cycle, in products of this type as our kernels compute them (fp16 in
/// fp32); 0 where it is not known of this processor.
int flops_per_cycle(const Processor& processor, at::ScalarType type);

/// "AVX-512 with BF16", "AVX2 only: ...": what it has for products of this type, and what that costs.
std::string instruction_set_text(const Processor& processor, at::ScalarType type);

}  // namespace vit_hybrid::train
