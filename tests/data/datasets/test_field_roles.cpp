// Roles of channels: lists, counts and texts; and targets that are increments.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include "data/datasets/field_roles.h"
#include "data/datasets/normalization.h"
#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {
namespace {

using vit_hybrid::testing::contains;
using vit_hybrid::testing::thrown_error;

TEST_CASE("field roles: rows hold forcings of the data, channels and diagnostics") {
  const FieldRoles roles = {.history = 2,
                            .forcings = "zenith,sst,cos_local_time,t:850:1000",
                            .diagnostics = "tp",
                            .statics = "orography,land_sea_mask,sin_latitude"};
  CHECK(forcings_of_data(roles) == "sst,t:850:1000");
  CHECK(row_channels(roles, "u10,z:500:850") == "sst,t:850:1000,u10,z:500:850,tp");
  CHECK(row_channels({}, "") == "");
  const SampleChannels channels = sample_channels(roles, 7);
  CHECK(channels.forcings == 3);
  CHECK(channels.prognostic == 3);
  CHECK(channels.diagnostic == 1);
  CHECK(channels.computed == 2);
  CHECK(channels.statics == 4);
  CHECK(channels.inputs() == 3 + 2 * 3 + 2 + 4);
  CHECK(channels.outputs() == 4);
  CHECK(channels.past_state(0) == channels.state());
  CHECK(channels.past_state(1) == Range{6, 9});
  CHECK(channels.predicted() == Range{3, 7});
  CHECK(num_row_channels(roles, 4) == 7);
  CHECK(roles_text(roles) ==
        "history 2, forcings cos_zenith,sst,cos_local_time,t850,t1000, diagnostics tp, static "
        "orography,lsm,sin_latitude");
  CHECK(roles_text({}) == "");
}

TEST_CASE("field roles: what leaves nothing to predict, or is named for no channels, is refused") {
  const Error without = thrown_error([] { row_channels({.forcings = "sst"}, ""); });
  CHECK(without.error_class() == ErrorClass::kUsage);
  CHECK(contains(without.message(), "--forcings has sst, of the data, without --channels"));
  CHECK(contains(without.hint(), "cos_zenith"));
  const Error none = thrown_error([] { sample_channels({.forcings = "sst", .diagnostics = "tp"}, 2); });
  CHECK(contains(none.message(), "none is both taken and predicted"));
  const Error changing = thrown_error([] { sample_channels({.statics = "cos_zenith"}, 2); });
  CHECK(contains(changing.message(), "changes with time"));
}

TEST_CASE("increment targets: in deviations of increments, and back; diagnostics are themselves") {
  const Normalization increments = {{3.0, -1.0}, {2.0, 0.5}}, states = {{100.0, 7.0}, {10.0, 4.0}};
  const IncrementTarget target = IncrementTarget(increments, states).to(at::kCPU, at::kDouble);
  CHECK(target);
  CHECK_FALSE(IncrementTarget());
  const at::Tensor now = at::rand({2, 3, 4, 5}, at::kDouble), next = at::rand({2, 3, 4, 5}, at::kDouble);
  const at::Tensor y = target.target(next, now);
  for (int64_t c = 0; c < 2; ++c) {
    const auto of = static_cast<size_t>(c);
    const auto physical = [&](const at::Tensor& x) { return x.select(1, c) * states.std[of] + states.mean[of]; };
    const at::Tensor expected = (physical(next) - physical(now) - increments.mean[of]) / increments.std[of];
    CHECK(at::allclose(y.select(1, c), expected, 1e-12, 1e-12));
  }
  CHECK(at::allclose(y.select(1, 2), next.select(1, 2), 0.0, 0.0));
  CHECK(at::allclose(target.state(y, now.narrow(1, 0, 2)), next, 1e-12, 1e-12));
}

}  // namespace
}  // namespace vit_hybrid::data
