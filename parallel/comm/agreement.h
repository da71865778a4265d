// Agreement: errors and arguments that all ranks of a group must share, so that nobody goes on alone.
//
// Errors before step 1 are agreed: every rank says what went wrong on it, and all throw the same. Later, the first rank
// to claim an error prints the one message and calls MPI_Abort (failure.h).
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "parallel/comm/failure.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/base/error.h"

namespace vit_hybrid::comm {

/// An error that all ranks of a group throw, with the text of the lowest rank that had one.
class AgreedError : public Error {
 public:
  AgreedError(const Error& error, std::string place, bool speaks);

  /// Where it happened: "rank 3 of 16 on n1, and 2 other ranks".
  const std::string& place() const { return place_; }
  /// True on the one rank that prints it.
  bool speaks() const { return speaks_; }

 private:
  std::string place_;
  bool speaks_;
};

/// Every rank says what went wrong on it, if anything. Returns if no rank has an error; else all ranks throw the same
/// AgreedError, that of the lowest rank; one that has lost a folder (require_folders()) says that. Collective.
void agree(const MpiGroup& group, const std::exception* mine);
void agree(const MpiGroup& group, const std::optional<Error>& mine);

/// Runs `function()` on every rank and returns its value, if it threw on none; else all ranks throw.
/// `function` must not be able to throw on one rank while another waits in it. Collective over
/// `group`.
template <class Function>
auto agreed(const MpiGroup& group, Function&& function) {
  using Result = std::invoke_result_t<Function>;
  // The collective call is made after the catch: none of it runs while an exception is handled.
  std::optional<AgreedError> agreed_before;
  std::optional<Error> error;
  const auto finish = [&] {
    if (agreed_before) {
      agree(group, &*agreed_before);
    } else {
      agree(group, error);
    }
  };
  const auto run = [&](auto&& body) {
    try {
      body();
    } catch (const AgreedError& e) {
      agreed_before = e;
    } catch (const std::exception& e) {
      error = as_error(e);
    }
  };
  if constexpr (std::is_void_v<Result>) {
    run([&] { function(); });
    finish();
  } else {
    std::optional<Result> result;
    run([&] { result.emplace(function()); });
    finish();
    return std::move(*result);
  }
}

/// agreed() with a function that only rank 0 of the group runs: what one rank checks for all.
template <class Function>
void agreed_on_rank_0(const MpiGroup& group, Function&& function) {
  agreed(group, [&] {
    if (group.rank() == 0) function();
  });
}

/// Refuses, with Error(kUsage) on all ranks, a text that is not the same everywhere; the message
/// shows the first line that differs. `what` names it: "the command line". Collective over `group`.
void same_on_all_ranks(const MpiGroup& group, const std::string& text, const std::string& what);

}  // namespace vit_hybrid::comm
