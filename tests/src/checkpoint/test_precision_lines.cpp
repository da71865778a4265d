// What a checkpoint says of the precision and of the loss scale of the run that wrote it.
#include "src/checkpoint/verify.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "src/config/config_text.h"

using namespace vit_hybrid::train;

namespace {

using Lines = std::vector<std::string>;

CheckpointInfo written_by(Precision precision, double fixed_scale) {
  RunConfig config;
  config.precision.kind = precision;
  config.precision.loss_scale = fixed_scale;
  CheckpointInfo info;
  info.config = config_text(config);
  return info;
}

}  // namespace

TEST_CASE("precision lines: a fixed loss scale is told, though the scaler has no state") {
  CheckpointInfo info = written_by(Precision::kFp16, 1e12);
  info.skipped_steps = 3;
  CHECK((precision_lines(info) == Lines{"precision   fp16", "loss scale  fixed 1e+12, 3 steps skipped"}));
}

TEST_CASE("precision lines: a dynamic loss scale with its steps") {
  CheckpointInfo info = written_by(Precision::kFp16, 0.0);
  info.loss_scale = 32768.0;
  info.good_steps = 12;
  CHECK((precision_lines(info) == Lines{"precision   fp16", "loss scale  32768 for 12 steps, 0 steps skipped"}));
}

TEST_CASE("precision lines: without fp16 there is no scale, without a run nothing is known") {
  CHECK((precision_lines(written_by(Precision::kBf16, 0.0)) == Lines{"precision   bf16"}));
  CheckpointInfo info = written_by(Precision::kFp32, 0.0);
  info.skipped_steps = 1;
  CHECK((precision_lines(info) == Lines{"precision   fp32", "loss scale  none, 1 steps skipped"}));
  CHECK(precision_lines(CheckpointInfo()).empty());
}
