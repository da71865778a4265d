// loaded_libraries(): each library is asked.
#include "src/machine/loaded_libraries.h"

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_session.h"
#include "src/base/text.h"
#include "src/base/version.h"

namespace vit_hybrid::train {

std::vector<std::pair<std::string, std::string>> loaded_libraries() {
  std::vector<std::pair<std::string, std::string>> out = {{"MPI", comm::mpi_library_version()}};
  for (auto& library : cuda_library_versions()) {
    out.push_back(std::move(library));
  }
  if (std::string nccl = comm::nccl_version(); !nccl.empty()) {
    out.emplace_back("NCCL", std::move(nccl));
  }
  return out;
}

std::string program_text() {
  std::string text = version_text();
  for (const auto& [name, version] : loaded_libraries()) {
    text += str(name, " ", version, "\n");
  }
  return text + (cuda_library_versions().empty() ? "built without CUDA: computes on processors only\n" : "");
}

}  // namespace vit_hybrid::train
