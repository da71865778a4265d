// Mutated safetensors files for their reader.
#include "src/checkpoint/exchange.h"
#include "src/checkpoint/safetensors.h"
#include "tests/support/fuzz.h"

namespace {

using namespace vit_hybrid;

std::string file_of(const std::string& json, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>((json.size() >> (8 * i)) & 0xff);
  }
  return bytes + json + std::string(data_bytes, '\x3f');
}

// Two tensors; and names, types and metadata of all kinds.
const std::vector<std::string> kSeeds = {
    file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
            R"("b":{"dtype":"BF16","shape":[1,1],"data_offsets":[8,10]}})",
            10),
    file_of(R"({"head.weight":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},)"
            R"("module.blocks.0.norm1.weight":{"dtype":"F64","shape":[0],"data_offsets":[4,4]},)"
            R"("caf\u00e9":{"dtype":"I32","shape":[],"data_offsets":[0,4]},"__metadata__":{"vit_hybrid.model":"{}"}})",
            16),
    file_of("{}    ", 0),
};

}  // namespace

int main(int argc, char** argv) {
  return testing::fuzz(argc, argv, kSeeds, [](const std::string& path) {
    const train::SafetensorsReader reader(path);
    for (const auto& entry : reader.header().tensors) {
      if (entry.type != "I32") {
        reader.read(entry);
      }
    }
    train::read_foreign_weights(path, train::WeightNames::kTimm);
  });
}
