// Making and removing of scratch folders.
#include "tests/support/scratch_folder.h"

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>

namespace vit_hybrid::testing {

namespace {

std::string make_folder() {
  const char* parent = std::getenv("TMPDIR");
  std::string path = std::string(parent == nullptr ? "/tmp" : parent) + "/vit_hybrid_test_XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  return path;
}

}  // namespace

ScratchFolder::ScratchFolder() : path_(make_folder()) {}

ScratchFolder::ScratchFolder(const comm::MpiGroup& group) : group_(&group) {
  path_ = group.broadcast(group.rank() == 0 ? make_folder() : std::string(), 0);
}

ScratchFolder::~ScratchFolder() {
  if (group_ != nullptr) {
    if (std::uncaught_exceptions() > 0) {
      return;  // the others do not come to the barrier
    }
    group_->barrier();
    if (group_->rank() != 0) {
      return;
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace vit_hybrid::testing
