// The table of data sheets.
#include "src/machine/peak_speed.h"

#include <array>

namespace vit_hybrid::train {

namespace {

// TFLOP/s without sparsity; fp64 and fp32 by the faster of vector units and tensor cores that gives that precision.
struct DataSheet {
  const char* name;  // a part of the driver's name; the first row that fits counts
  double fp64, fp32, tf32, bf16, fp16;
};

constexpr std::array<DataSheet, 9> kDataSheets = {{
    {"H200 NVL", 60.0, 60.0, 417.5, 835.5, 835.5},
    {"H200", 67.0, 67.0, 494.7, 989.4, 989.4},  // GH200 too
    {"H100 NVL", 60.0, 60.0, 417.5, 835.5, 835.5},
    {"H100 PCIe", 51.2, 51.2, 378.0, 756.0, 756.0},
    {"H100", 66.9, 66.9, 494.7, 989.4, 989.4},
    {"A100", 19.5, 19.5, 156.0, 312.0, 312.0},
    {"V100-SXM2", 7.8, 15.7, 0.0, 0.0, 125.0},
    {"V100S-PCIE", 8.2, 16.4, 0.0, 0.0, 130.0},
    {"V100-PCIE", 7.0, 14.0, 0.0, 0.0, 112.0},
}};

double in_precision(const DataSheet& sheet, Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return sheet.fp64;
    case Precision::kFp32:
      return sheet.fp32;
    case Precision::kTf32:
      return sheet.tf32;
    case Precision::kBf16:
      return sheet.bf16;
    case Precision::kFp16:
      return sheet.fp16;
  }
  return 0.0;
}

}  // namespace

double gpu_peak_flops(const std::string& name, Precision precision) {
  for (const DataSheet& sheet : kDataSheets) {
    if (name.find(sheet.name) != std::string::npos) {
      return 1e12 * in_precision(sheet, precision);
    }
  }
  return 0.0;
}

}  // namespace vit_hybrid::train
