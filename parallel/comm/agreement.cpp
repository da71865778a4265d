// Agreement: a minimum over the ranks that have an error, and a broadcast of the lowest one's text.
#include "parallel/comm/agreement.h"

#include <sstream>

#include "src/base/folder_lock.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

std::string line_of(std::istringstream& stream) {
  std::string line;
  return std::getline(stream, line) ? line : "(nothing)";
}

Error difference(const std::string& mine, const std::string& first, const std::string& what) {
  std::istringstream my_lines(mine);
  std::istringstream first_lines(first);
  std::string a = line_of(my_lines);
  std::string b = line_of(first_lines);
  while (a == b && (my_lines || first_lines)) {
    a = line_of(my_lines);
    b = line_of(first_lines);
  }
  return Error(ErrorClass::kUsage, str("the ranks disagree on ", what, ": '", a, "' here, '", b, "' on rank 0"),
               "start all ranks with the same program, arguments and files");
}

// What fails in a folder that has become another job's fails of that: files are gone, or are the other's.
std::optional<Error> loss_of_folders() {
  try {
    require_folders();
  } catch (const Error& error) {
    if (error.error_class() == ErrorClass::kCannotCreate) return error;
  }
  return std::nullopt;
}

}  // namespace

AgreedError::AgreedError(const Error& error, std::string place, bool speaks)
    : Error(error.error_class(), error.message(), error.hint()), place_(std::move(place)), speaks_(speaks) {}

void agree(const MpiGroup& group, const std::exception* mine) {
  const auto first_of_all = [&] { return group.min(mine != nullptr ? group.rank() : group.size()); };
  if (first_of_all() == group.size()) return;
  const bool is_agreed = dynamic_cast<const AgreedError*>(mine) != nullptr;
  const std::optional<Error> loss = is_agreed ? std::nullopt : loss_of_folders();
  if (loss) mine = &*loss;
  const int64_t first = first_of_all();
  const int64_t others = group.sum(mine != nullptr ? 1 : 0) - 1;
  const bool speaks = group.rank() == first;
  Error error(ErrorClass::kInternal, "");
  std::string place = process_place().text();
  if (speaks) {
    error = as_error(*mine);
    const auto* const agreed_before = dynamic_cast<const AgreedError*>(mine);
    if (agreed_before != nullptr) {
      place = agreed_before->place();
    } else if (others > 0) {
      place += str(", and ", counted(others, "other rank"));
    }
  }
  const int root = static_cast<int>(first);
  int64_t error_class = error.exit_code();
  group.broadcast(&error_class, sizeof error_class, root);
  const std::string message = group.broadcast(error.message(), root);
  const std::string hint = group.broadcast(error.hint(), root);
  place = group.broadcast(place, root);
  throw AgreedError(Error(static_cast<ErrorClass>(error_class), message, hint), place, speaks);
}

void agree(const MpiGroup& group, const std::optional<Error>& mine) {
  agree(group, mine ? &*mine : nullptr);
}

void same_on_all_ranks(const MpiGroup& group, const std::string& text, const std::string& what) {
  const std::string first = group.broadcast(text, 0);
  std::optional<Error> error;
  if (text != first) error = difference(text, first, what);
  agree(group, error);
}

}  // namespace vit_hybrid::comm
