// Agreement: errors of some ranks become the same error of all, and arguments that differ are noticed.
#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"
#include "src/base/folder_lock.h"
#include "tests/support/contains.h"
#include "tests/support/scratch_folder.h"

namespace vit_hybrid::testing {

namespace {

using comm::agreed;
using comm::AgreedError;
using comm::MpiGroup;

std::optional<Error> failing(bool fails, int rank) {
  if (!fails) return std::nullopt;
  return Error(ErrorClass::kMissingInput, "no file on rank " + std::to_string(rank), "look at it");
}

// Every rank must end up with the error of rank `lowest`.
void check_thrown(const MpiGroup& group, bool fails, int lowest) {
  try {
    comm::agree(group, failing(fails, group.rank()));
    FAIL_CHECK("no error on rank " << group.rank());
  } catch (const AgreedError& error) {
    CHECK(error.message() == "no file on rank " + std::to_string(lowest));
    CHECK(error.hint() == "look at it");
    CHECK(error.exit_code() == 66);
    CHECK(error.speaks() == (group.rank() == lowest));
  }
}

}  // namespace

TEST_CASE("agreement: what fails in a folder that is another job's now fails of that") {
  const MpiGroup world = MpiGroup::world();
  const ScratchFolder folder;
  FolderLock lock(folder.path(), "run folder", 1000.0);
  if (world.rank() == 0) {
    REQUIRE(lock.try_take(FolderLock::Doubt::kRefuse));
    std::filesystem::remove(folder.file("run.lock"));
  }
  try {
    comm::agree(world, failing(world.rank() == world.size() - 1, world.rank()));
    FAIL_CHECK("no error");
  } catch (const AgreedError& error) {
    CHECK(contains(error.message(), "has lost this job's lock"));
    CHECK(error.error_class() == ErrorClass::kCannotCreate);
    CHECK(error.speaks() == (world.rank() == 0));
  }
  agreed(world, [] {});  // only what fails is looked at
}

TEST_CASE("agreement: nobody fails") {
  const MpiGroup world = MpiGroup::world();
  comm::agree(world, std::optional<Error>());
  CHECK(agreed(world, [&] { return world.rank() + 5; }) == world.rank() + 5);
  bool ran = false;
  agreed(world, [&] { ran = true; });
  CHECK(ran);
}

TEST_CASE("agreement: one rank fails, or some, or all") {
  const MpiGroup world = MpiGroup::world();
  const int last = world.size() - 1;
  check_thrown(world, world.rank() == last, last);
  check_thrown(world, world.rank() == 0, 0);
  check_thrown(world, world.rank() >= last / 2, last / 2);
  check_thrown(world, true, 0);
}

TEST_CASE("agreement: any exception of a function becomes the error of all") {
  const MpiGroup world = MpiGroup::world();
  const int last = world.size() - 1;
  try {
    agreed(world, [&]() -> int {
      if (world.rank() == last) throw std::runtime_error("broken");
      return 1;
    });
    FAIL_CHECK("no error");
  } catch (const AgreedError& error) {
    CHECK(error.message() == "broken");
    CHECK(error.error_class() == ErrorClass::kInternal);
    CHECK(error.speaks() == (world.rank() == last));
  }
  // And the group can go on.
  CHECK(world.sum(1) == world.size());
}

TEST_CASE("agreement: an agreed error of a part keeps its speaker's place in the whole") {
  const MpiGroup world = MpiGroup::world();
  const MpiGroup part = world.split(world.rank() % 2);
  const bool in_failing_part = world.rank() % 2 == 0;
  try {
    agreed(world, [&] {
      if (in_failing_part) comm::agree(part, failing(part.rank() == part.size() - 1, part.rank()));
    });
    FAIL_CHECK("no error");
  } catch (const AgreedError& error) {
    CHECK(error.message().find("no file on rank") == 0);
    CHECK(world.sum(error.speaks() ? 1 : 0) == 1);
    // The rank is named once.
    CHECK(error.place().find(" of ") == error.place().rfind(" of "));
  }
}

TEST_CASE("agreement: one rank checks for all") {
  const MpiGroup world = MpiGroup::world();
  int runs = 0;
  comm::agreed_on_rank_0(world, [&] { ++runs; });
  CHECK(world.sum(runs) == 1);
  CHECK_THROWS_AS(comm::agreed_on_rank_0(world, [] { throw Error(ErrorClass::kUsage, "no"); }), AgreedError);
}

TEST_CASE("agreement: the same text everywhere") {
  const MpiGroup world = MpiGroup::world();
  comm::same_on_all_ranks(world, "--dp 2\n--tp 1", "the command line");
  comm::same_on_all_ranks(world, "", "the command line");
  if (world.size() == 1) return;
  const int last = world.size() - 1;
  const std::string mine = world.rank() == last ? "--dp 2\n--tp 3" : "--dp 2\n--tp 1";
  try {
    comm::same_on_all_ranks(world, mine, "the command line");
    FAIL_CHECK("not noticed");
  } catch (const AgreedError& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    CHECK(error.message() == "the ranks disagree on the command line: '--tp 3' here, '--tp 1' on rank 0");
    CHECK(error.speaks() == (world.rank() == last));
  }
  const std::string longer = world.rank() == last ? "a\nb\nc" : "a\nb";
  CHECK_THROWS_WITH_AS(comm::same_on_all_ranks(world, longer, "the configuration"),
                       doctest::Contains("'c' here, '(nothing)' on rank 0"), AgreedError);
}

TEST_CASE("agreement: control messages") {
  const MpiGroup world = MpiGroup::world();
  CHECK(world.min(world.rank() + 3) == 3);
  CHECK(world.max(world.rank() + 3) == world.size() + 2);
  CHECK(world.sum(2) == 2 * world.size());
  std::vector<int64_t> least = {world.rank(), -world.rank(), 7};
  world.min(least);
  CHECK(least == std::vector<int64_t>{0, 1 - world.size(), 7});
  std::vector<uint64_t> sums = {1, world.rank() == 0 ? ~uint64_t{0} : 1};  // which wraps
  world.sum(sums);
  const auto size = static_cast<uint64_t>(world.size());
  CHECK(sums == std::vector<uint64_t>{size, size - 2});
  std::vector<double> values = {0.5, world.rank() + 0.25};
  world.sum(values);
  CHECK(values ==
        std::vector<double>{0.5 * world.size(), 0.25 * world.size() + 0.5 * world.size() * (world.size() - 1)});
  const auto all = world.all_gather(world.rank() * 10);
  REQUIRE(static_cast<int>(all.size()) == world.size());
  for (int r = 0; r < world.size(); ++r)
    CHECK(all[static_cast<size_t>(r)] == r * 10);
  const int root = world.size() - 1;
  const std::string mine = world.rank() == root ? "from the root" : "";
  CHECK(world.broadcast(mine, root) == "from the root");
  const MpiGroup node = world.split_by_node();
  CHECK(node.size() == world.size());  // the tests run on one node
  CHECK(world.node_sizes() == std::vector<int>{world.size()});
}

}  // namespace vit_hybrid::testing
