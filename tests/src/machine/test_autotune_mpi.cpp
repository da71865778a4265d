// The kernel of the host's fp32 products on several ranks: the same on all of them, whatever each has measured.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/text.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/small_product.h"
#include "src/machine/autotune.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::KernelTable;
using kernels::ProductKernel;
using train::SavedKernels;

namespace {

// What was set is undone at the end of each test.
class KeptChoice {
 public:
  ~KeptChoice() {
    kernels::set_host_kernel(kernel_);
    kernels::kernel_table() = table_;
  }

 private:
  kernels::HostKernel kernel_ = kernels::host_kernel();
  KernelTable table_ = kernels::kernel_table();
};

const train::HostProblem kProblem{{256, 96, 64, 256}, "this machine", kernels::SumOrder::kAny};

std::string saved_choice(const std::string& machine, const std::string& kernel) {
  KernelTable table{machine, {}};
  table.choices[kernels::kHostProblem] = {kernel, "measured: long ago", 12.5, 12.5};
  return table.text();
}

std::string other_kernel() {
  return kernels::usual_host_kernel().kernel == ProductKernel::kBlocked ? "library" : "blocked";
}

void check_same_on_all_ranks(const comm::MpiGroup& world) {
  const auto& host = kernels::host_kernel();
  comm::same_on_all_ranks(world, kernels::host_kernel_name(host.kernel) + " " + host.reason, "the kernel");
  comm::same_on_all_ranks(world, kernels::kernel_table().text(), "the table");
}

bool was_measured(const std::string& line) {
  return line.starts_with("kernel of fp32 products measured on all ranks in ");
}

bool has_choice() {
  if (!kernels::has_block_kernel()) {
    MESSAGE("skipped: no block kernel of oneDNN's here");
  }
  return kernels::has_block_kernel();
}

}  // namespace

TEST_CASE("host kernel: each rank's least time counts, the first round does not, and the sum is the same everywhere") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  // Round after round 114, 107, 100, 107, ... microseconds; how many rounds there are is a matter of time.
  std::vector<std::vector<double>> measured(2);
  const auto times = train::microseconds_of_all_ranks(
      2,
      [&](size_t candidate) {
        const auto call = static_cast<double>(measured[candidate].size());
        const double least = candidate == 0 ? 100.0 : 40.1 * (world.rank() + 1);
        measured[candidate].push_back(call == 0 ? 1.0 : least + 7.0 * std::abs(call - 3.0));
        return measured[candidate].back();
      },
      world);
  REQUIRE(times.size() == 2);
  const auto rounds = static_cast<int64_t>(measured[0].size());
  CHECK(rounds >= 2);
  CHECK(measured[1].size() == measured[0].size());
  CHECK(world.max(rounds) == world.min(rounds));
  for (size_t i = 0; i < 2; ++i) {
    const double least = *std::min_element(measured[i].begin() + 1, measured[i].end());
    CHECK(times[i] == doctest::Approx(1e-3 * static_cast<double>(world.sum(std::llround(1e3 * least)))));
  }
  comm::same_on_all_ranks(world, str(std::hexfloat, times[0], " ", times[1]), "the sums");
}

TEST_CASE("host kernel: ranks whose own times contradict each other choose alike") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  // For the last rank alone the library is much faster, and for all others a little slower.
  const bool is_last = world.rank() == world.size() - 1;
  const auto times = train::microseconds_of_all_ranks(
      2, [&](size_t candidate) { return candidate == 0 ? 100.0
                                        : is_last      ? 10.0
                                                       : 105.0; }, world);
  const auto choice = kernels::choose_host_kernel(ProductKernel::kBlocked, times[0], times[1]);
  const double others = world.size() - 1.0;
  const bool library_wins = 100.0 * (others + 1.0) >= 1.1 * (105.0 * others + 10.0);
  CHECK(choice.kernel == (library_wins ? "library" : "blocked"));
  CHECK(library_wins == (world.size() <= 6));
  comm::same_on_all_ranks(world, choice.kernel + choice.text, "the choice");
}

TEST_CASE("host kernel: a candidate without a time on one rank has none on any") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  for (const double no_time :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 0.0, -5.0}) {
    const auto times = train::microseconds_of_all_ranks(
        2, [&](size_t candidate) { return candidate == 1 && world.rank() == world.size() - 1 ? no_time : 3.0; }, world);
    CHECK(times[0] == doctest::Approx(3.0 * world.size()));
    CHECK(std::isnan(times[1]));
  }
}

TEST_CASE("host kernel: what one rank throws while it measures all throw") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  int calls = 0;
  const Error error = agreed_error(world, [&] {
    train::microseconds_of_all_ranks(
        2,
        [&](size_t) -> double {
          if (++calls == 3 && world.rank() == world.size() - 1) {  // in the second round, the last that is always there
            throw Error(ErrorClass::kIo, "the third");
          }
          return 1.0;
        },
        world);
  });
  CHECK(error.message() == "the third");
  CHECK(world.max(calls) == 3);
}

TEST_CASE("host kernel: measured where nothing is saved, and the same on all ranks") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const KeptChoice kept;
  if (!has_choice()) {
    return;
  }
  const std::string line = train::tune_host_kernel(kProblem, "", SavedKernels::kUse, world);
  CHECK(was_measured(line));
  CHECK(contains(kernels::host_kernel().reason, "measured: "));
  const auto* const choice = kernels::kernel_table().find(kernels::kHostProblem);
  REQUIRE(choice != nullptr);
  CHECK(choice->kernel == kernels::host_kernel_name(kernels::host_kernel().kernel));
  CHECK(choice->microseconds > 0.0);
  CHECK(kernels::kernel_table().machine == kProblem.machine);
  check_same_on_all_ranks(world);
}

TEST_CASE("host kernel: a saved choice is taken over on its machine alone, and --retune gives it up") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const KeptChoice kept;
  if (!has_choice()) {
    return;
  }
  // Only rank 0 looks into the checkpoint.
  const auto on_rank_0 = [&](const std::string& text) { return world.rank() == 0 ? text : std::string("nonsense"); };
  const std::string saved = saved_choice(kProblem.machine, other_kernel());
  for (int start = 0; start < 2; ++start) {  // a resumed run's choice is taken over like the first one's
    const std::string table = start == 0 ? saved : kernels::kernel_table().text();
    const std::string line = train::tune_host_kernel(kProblem, on_rank_0(table), SavedKernels::kUse, world);
    CHECK(line.empty());
    CHECK(kernels::host_kernel_name(kernels::host_kernel().kernel) == other_kernel());
    CHECK(kernels::host_kernel().reason == "as saved in the checkpoint; measured: long ago");
    CHECK(kernels::kernel_table().text() == saved);
    check_same_on_all_ranks(world);
  }
  const std::string again = train::tune_host_kernel(kProblem, on_rank_0(saved), SavedKernels::kMeasureAgain, world);
  CHECK(was_measured(again));
  CHECK(contains(again, ", the saved ones given up by --retune"));
  CHECK_FALSE(contains(kernels::host_kernel().reason, "saved"));
  check_same_on_all_ranks(world);
  const std::string another_machine = "another machine";
  for (const auto& [machine, kernel] :
       {std::pair(another_machine, other_kernel()), std::pair(kProblem.machine, std::string("of a later version"))}) {
    const std::string other = saved_choice(machine, kernel);
    const std::string line = train::tune_host_kernel(kProblem, on_rank_0(other), SavedKernels::kUse, world);
    CHECK(was_measured(line));
    CHECK(contains(line, machine == another_machine
                             ? ", the saved ones were for another machine"
                             : ", the saved one, 'of a later version', is not known to this version"));
    check_same_on_all_ranks(world);
  }
}

TEST_CASE("host kernel: a damaged saved choice is refused on all ranks, unless it is given up") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const KeptChoice kept;
  if (!has_choice()) {
    return;
  }
  const auto tune = [&](SavedKernels use) {
    return train::tune_host_kernel(kProblem, world.rank() == 0 ? "damaged" : "", use, world);
  };
  CHECK(agreed_error(world, [&] { tune(SavedKernels::kUse); }).error_class() == ErrorClass::kBadData);
  CHECK(was_measured(tune(SavedKernels::kMeasureAgain)));
}

TEST_CASE("host kernel: with --deterministic the usual one is taken, whatever was saved") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const KeptChoice kept;
  if (!has_choice()) {
    return;
  }
  train::HostProblem fixed = kProblem;
  fixed.order = kernels::SumOrder::kFixed;
  for (const auto use : {SavedKernels::kUse, SavedKernels::kMeasureAgain}) {
    const std::string line = train::tune_host_kernel(fixed, saved_choice(fixed.machine, other_kernel()), use, world);
    const std::string change = str("'", kernels::host_kernel_name(kernels::usual_host_kernel().kernel),
                                   "', instead of the saved one, '", other_kernel(), "': from here on the bits differ");
    CHECK(contains(line, change) == (use == SavedKernels::kUse));
    CHECK(line.empty() == (use == SavedKernels::kMeasureAgain));
    CHECK((kernels::host_kernel().kernel == kernels::usual_host_kernel().kernel));
    CHECK(contains(kernels::host_kernel().reason, "; not measured: --deterministic"));
    check_same_on_all_ranks(world);
  }
  // A run that goes on without the option has the same bits too.
  const std::string saved = kernels::kernel_table().text();
  CHECK(train::tune_host_kernel(fixed, saved, SavedKernels::kUse, world).empty());
  CHECK(train::tune_host_kernel(kProblem, saved, SavedKernels::kUse, world).empty());
  CHECK(kernels::host_kernel().reason.starts_with("as saved in the checkpoint; "));
  CHECK((kernels::host_kernel().kernel == kernels::usual_host_kernel().kernel));
}

TEST_CASE("host kernel: for small products nothing is measured and nothing saved") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  const KeptChoice kept;
  if (!has_choice()) {
    return;
  }
  train::HostProblem small = kProblem;
  small.layer.rows = 8;
  const std::string line = train::tune_host_kernel(small, "", SavedKernels::kUse, world);
  CHECK(line.empty());
  CHECK(kernels::kernel_table().choices.empty());
  CHECK((kernels::host_kernel().kernel == kernels::usual_host_kernel().kernel));
  CHECK(kernels::host_kernel().is_rare);
  CHECK(kernels::host_kernel().reason == "not measured: products as small as those of this model's blocks");
  check_same_on_all_ranks(world);
}
