// ModelCommand: parsing and checking with one message.
#include "src/commands/model_command.h"

#include <unistd.h>

#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/commands/command.h"
#include "src/config/sources.h"

namespace vit_hybrid::commands {

namespace {

void refuse(const std::vector<std::string>& problems) {
  if (!problems.empty()) {
    throw_on_all_ranks(Error(ErrorClass::kUsage, options::problem_list(problems)));
  }
}

}  // namespace

ModelCommand::ModelCommand(const Invocation& invocation, const comm::MpiSession& session)
    : words_(invocation.words), world_(session.world()) {
  set_log_speaker(world_.rank() == 0);
  agree_on_start(world_, words_);
}

options::Source ModelCommand::parse(const options::OptionTable& table) const {
  options::Source entries = same_error_on_all_ranks([&] { return options::parse_command_line(table, words_); });
  options::Settings settings(table);
  settings.add(entries);
  settings.apply_all();
  warn_of_remarks(settings);
  refuse(settings.problems());
  return entries;
}

void ModelCommand::require(const std::vector<std::pair<std::string, std::string>>& options) const {
  std::vector<std::string> problems;
  for (const auto& [name, value] : options) {
    if (value.empty()) {
      problems.push_back(str("--", name, " must be given; see --help"));
    }
  }
  refuse(problems);
}

train::RunConfig ModelCommand::configure(const train::CheckpointReader& checkpoint, const std::string& data,
                                         const options::Source& overrides) const {
  return same_error_on_all_ranks(
      [&] { return train::config_for_use(checkpoint.info(), checkpoint.path(), data, overrides, world_.size()); });
}

void ModelCommand::check_paths(train::RunConfig& config, const options::Source& overrides) const {
  if (train::has_time_means_of_training(config, overrides)) {
    int64_t is_there = ::access(config.data.time_means.c_str(), R_OK) == 0 ? 1 : 0;
    world_.broadcast(&is_there, sizeof(is_there), 0);
    if (is_there == 0) {
      config.data.time_means.clear();
    }
  }
  comm::agreed_on_rank_0(world_, [&] {
    if (const auto problems = train::missing_paths(config); !problems.empty()) {
      const std::string text = options::problem_list(problems);
      const bool of_training = text.find("--stats") != std::string::npos || text.find("--global") != std::string::npos;
      throw Error(ErrorClass::kMissingInput, text,
                  of_training ? "the statistics are the training's unless --stats is given" : "");
    }
  });
}

}  // namespace vit_hybrid::commands
