// TrainedModel: machine, mesh, parameters and runner of a model that is used, from a checkpoint.
#include "src/infer/trained_model.h"

#include <ATen/Parallel.h>

#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "parallel/comm/failure.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/checkpoint/slice_reader.h"
#include "src/machine/autotune.h"
#include "src/machine/device.h"
#include "src/report/kernel_report.h"

namespace vit_hybrid::train {

namespace {

mesh::DeviceMesh make_mesh(const RunConfig& config, const CheckpointReader& checkpoint, const comm::MpiGroup& world) {
  const ParallelConfig& parallel = config.parallel;
  const c10::Device device = set_up_machine(config, ModelPurpose::kUse, world).device;
  if (device.is_cpu()) {
    choose_host_kernel(config, kernels::HostLayer::Passes::kForward, checkpoint.info().kernels, world);
  }
  return {parallel_dims(parallel), world, device, transport_options(parallel)};
}

}  // namespace

TrainedModel::TrainedModel(const RunConfig& config, const CheckpointReader& checkpoint, const comm::MpiGroup& world)
    : mesh_(make_mesh(config, checkpoint, world)),
      runner_(config.model, precision_policy(config.precision), mesh_, std::nullopt) {
  comm::agreed(world,
               [&] { load_parameters(checkpoint, runner_.parameters().specs(), runner_.parameters(), mesh_.model()); });
}

void warn_of_use(const RunConfig& config, const CheckpointReader& checkpoint, const TrainingData& given) {
  const CheckpointInfo& trained = checkpoint.info();
  if (const auto line = earlier_format_line(checkpoint)) {
    log_line("  note      " + *line);
  }
  if (const std::string difference = statistics_difference(trained, given); !difference.empty()) {
    log_warning(str("the statistics of ", config.data.global_means, " and ", config.data.global_stds,
                    " are used, which are not those of the training: ", difference));
  }
  if (const std::string doubt = doubt_of_rows(trained, given.grid); !doubt.empty()) {
    log_warning(doubt);
  }
  if (trained.format >= kTrainingDataFormat && trained.class_names.empty() != given.class_names.empty()) {
    log_warning(given.class_names.empty()
                    ? str("the data name no classes: their numbers are taken for those of ", shown(trained.class_names))
                    : "the checkpoint names no classes: the data's numbers are taken for its own");
  }
}

void announce(const RunConfig& config, const CheckpointReader& checkpoint, c10::Device device) {
  const ParallelConfig& parallel = config.parallel;
  const CheckpointInfo& info = checkpoint.info();
  log_line(str(config.name, ": ", model::num_parameters(config.model), " parameters of ", checkpoint.path(), " (step ",
               info.step, ", ", info.epoch, " epochs), dp ", parallel.dp, " x tp ", parallel.tp, " x pp ", parallel.pp,
               " on ", device.str(), ", ", counted(at::get_num_threads(), "thread"), " a rank"));
  log_lines(report_kernels(config, device, ModelPurpose::kUse).lines());
}

}  // namespace vit_hybrid::train
