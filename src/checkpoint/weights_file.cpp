// Writing of weights alone.
#include "src/checkpoint/weights_file.h"

#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "parallel/comm/agreement.h"
#include "src/checkpoint/checkpoint_description.h"

namespace vit_hybrid::train {

namespace {

data::Hdf5DatasetSpec spec_of(const std::string& name, const at::Tensor& values) {
  const std::vector<int64_t> shape = values.sizes().vec();
  TensorChecksum checksum;
  checksum.add(shape, std::vector<int64_t>(shape.size(), 0), values);
  return {dataset_path(kParametersGroup, name), shape, values.scalar_type(), {{kChecksumAttribute, checksum.text()}}};
}

}  // namespace

void write_weights(const comm::MpiGroup& group, const std::string& path, const CheckpointInfo& info,
                   const NamedWeights& weights) {
  std::vector<data::Hdf5DatasetSpec> specs;
  for (const auto& [name, values] : weights) {
    specs.push_back(spec_of(name, values));
  }
  data::Hdf5Writer writer(group, path, std::move(specs), info_attributes(info), data::IoMode::kDirect,
                          data::Hdf5Seal::kMetadata);
  comm::agreed_on_rank_0(group, [&] {
    for (const auto& [name, values] : weights) {
      writer.write(dataset_path(kParametersGroup, name), std::vector<int64_t>(values.sizes().size(), 0), values);
    }
  });
  writer.finish();
}

}  // namespace vit_hybrid::train
