// ModelCommand: the start of a command that uses a trained model.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/mpi/mpi_session.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/commands/command.h"
#include "src/config/option_table.h"
#include "src/config/settings.h"
#include "src/infer/model_use.h"

namespace vit_hybrid::commands {

inline constexpr const char* kOnlyCommandLine = "\nThese are given on the command line only.\n";

class ModelCommand {
 public:
  /// Rank 0 speaks from here on, and all ranks were started alike. Collective over the world.
  ModelCommand(const Invocation& invocation, const comm::MpiSession& session);

  /// Fills the variables of the table from the command line, whose entries it returns.
  options::Source parse(const options::OptionTable& table) const;
  /// Refuses options that must be given and are empty: name and value of each.
  void require(const std::vector<std::pair<std::string, std::string>>& options) const;
  /// The configuration that the checkpoint and the command line make.
  train::RunConfig configure(const train::CheckpointReader& checkpoint, const std::string& data,
                             const options::Source& overrides) const;
  /// Refuses paths that are not there, but for the time means of the training, which are left out then; rank 0 looks at
  /// them. Collective.
  void check_paths(train::RunConfig& config, const options::Source& overrides) const;

 private:
  std::vector<std::string> words_;
  const comm::MpiGroup& world_;
};

}  // namespace vit_hybrid::commands
