// Mutated .npy files for their reader.
#include "data/datasets/npy.h"
#include "tests/support/fuzz.h"

namespace {

// As numpy.save writes an array of float32 with the given dictionary.
std::string file_of(const std::string& dictionary, size_t data_bytes) {
  const std::string text = dictionary + std::string(117 - dictionary.size(), ' ') + "\n";
  return std::string("\x93NUMPY\x01\x00v\x00", 10) + text + std::string(data_bytes, '\x3f');
}

const std::vector<std::string> kSeeds = {
    file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 1, 1), }", 8),
    file_of("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 8),
    file_of("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", 24),
};

}  // namespace

int main(int argc, char** argv) {
  return vit_hybrid::testing::fuzz(argc, argv, kSeeds,
                                   [](const std::string& path) { vit_hybrid::data::read_npy(path); });
}
