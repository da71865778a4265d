// StepTest: what is kept of each step, and the gathering.
#include "src/train/step_test.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "src/report/run_speed.h"

namespace vit_hybrid::train {

StepTest::StepTest(int64_t steps, UsageSampler& usage) : steps_(steps), warm_up_(warm_up_steps(steps)), usage_(usage) {
  if (warm_up_ == 0) {
    begin_metering();
  }
}

void StepTest::begin_metering() {
  first_ = usage_.read();
  since_metering_.restart();
}

void StepTest::read_meters() {
  last_ = usage_.read();
  metered_seconds_ = since_metering_.seconds();
}

void StepTest::add(const StepRecord& step) {
  ++num_done_;
  if (num_done_ == warm_up_) {
    begin_metering();
  } else if (num_done_ > warm_up_) {
    seconds_.push_back(step.seconds);
    samples_.push_back(static_cast<double>(step.samples));
    read_meters();
  }
}

std::vector<std::vector<StepSeconds>> StepTest::gathered_seconds(const comm::MpiGroup& world) const {
  static_assert(std::is_trivially_copyable_v<StepSeconds>);
  const std::string own(reinterpret_cast<const char*>(seconds_.data()), seconds_.size() * sizeof(StepSeconds));
  std::vector<std::vector<StepSeconds>> by_rank;
  for (const std::string& bytes : world.all_gather(own)) {
    std::memcpy(by_rank.emplace_back(seconds_.size()).data(), bytes.data(), bytes.size());
  }
  return by_rank;
}

Power StepTest::power(bool is_metered, const Energy& first, const Energy& last, const comm::MpiGroup& world) const {
  const bool is_known = last.joules.has_value();
  // Joules, meters, and meters that can be read.
  std::vector<double> sums = {is_known ? *last.joules - first.joules.value_or(0.0) : 0.0, is_metered ? 1.0 : 0.0,
                              is_known ? 1.0 : 0.0};
  world.sum(sums);
  if (sums[1] == 0.0) {
    return {std::nullopt, "no GPU is used"};
  }
  if (sums[2] == sums[1] && metered_seconds_ > 0.0) {
    return {sums[0] / metered_seconds_, {}};
  }
  return {std::nullopt, is_known ? "it cannot be read on every node" : last.missing};
}

std::optional<TestFigures> StepTest::figures(const comm::MpiGroup& world) const {
  if (seconds_.empty()) {
    return std::nullopt;  // all ranks have done the same steps
  }
  TestFigures figures = test_figures(gathered_seconds(world), samples_);
  figures.warm_up = warm_up_;
  figures.packages = power(last_.has_packages, first_.packages, last_.packages, world);
  figures.gpus = power(last_.has_gpu, first_.gpu, last_.gpu, world);
  return figures;
}

}  // namespace vit_hybrid::train
