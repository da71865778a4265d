// The command `options`: docs/options.md, from the tables of all commands.
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/commands/command.h"

namespace vit_hybrid::commands {

namespace {

constexpr const char* kIntroduction = R"(# Options

This file is what `vit_hybrid options` prints.

Every option of `train` can be given as `--name value` or `--name=value` on the command line, as `name: value` in a YAML
file that `--config FILE[:SECTION]` names, or as a variable `VIT_HYBRID_NAME` of the environment; flags also as `--name`
and `--no-name`. `-` and `_` are the same in a name. Files give way to the environment, both to the command line; of
several `--config`, later ones win; a preset gives way to what is said beside it. An option given twice on the command
line counts as the last one says, and a line tells so; a key given twice in a file is refused. An option of the command
line or the environment that has no effect beside the others is named at the start. `--print-config` shows the outcome,
with the origin of each value.

Megatron-LM's names are accepted in all three places (the list is under the heading Megatron): flags of its that are a
value here, as `--bf16`, are flags, and `bf16: true` in a file. Such a flag that is off (`--no-bf16`, `bf16: false`)
takes its value back where that was said before, and leaves any other as it is; `use_distributed_optimizer` off is
`zero: 0`. Files are regular files of at most 1 MiB.

Keys of the reference workload's YAML have their meaning under the names below. `model_backend`, `data_loader_config`,
`enable_fused`, `enable_jit`, `enable_apex`, `inf_data_path`, `wireup_info` and `wireup_store` are accepted in files,
have no meaning here, and are listed at the start of the run; `dt` may be 1 only.
)";

}  // namespace

std::string options_help() {
  return "usage: vit_hybrid options\n\nPrints all options of all commands as Markdown.\n";
}

std::string options_markdown() {
  std::string out = kIntroduction;
  for (const Command& command : all_commands()) {
    if (command.markdown != nullptr) {
      out += "\n## `vit_hybrid " + command.name + "`\n" + command.markdown();
    }
  }
  return out;
}

int run_options(const Invocation& invocation) {
  if (!invocation.words.empty()) {
    throw_on_all_ranks(
        Error(ErrorClass::kUsage, str("the command options takes nothing, not '", invocation.words.front(), "'")));
  }
  print_once(options_markdown());
  return 0;
}

}  // namespace vit_hybrid::commands
