// What memory a GPU's allocator has held, and which GPU it is; empty answers in programs without CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace vit_hybrid {

/// Most bytes that the allocator has held of the device so far, its unused blocks included; 0 for the CPU.
int64_t device_peak_bytes(c10::Device device);

/// Bytes of memory that the device has; 0 for the CPU, and where the device cannot be asked.
int64_t device_total_bytes(c10::Device device);

/// PCI address of a GPU, as its driver's tools show it ("00000000:1B:00.0"); empty for the CPU.
std::string device_pci_address(c10::Device device);

}  // namespace vit_hybrid
