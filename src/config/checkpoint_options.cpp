// The options of checkpoints, resuming and stopping.
#include "src/config/run_option_groups.h"

namespace vit_hybrid::train {

using options::flag;
using options::integer;
using options::number;
using options::text;

void add_checkpoints(options::OptionTable& table, RunConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  table.begin_group("Checkpoints");
  table.add({.name = "resume",
             .value = text(checkpoint.resume, "none|latest|auto|PATH"),
             .help = "Go on from a checkpoint, in any layout: the newest of this run's folder (latest), the same or, "
                     "where there is none yet, a new training (auto), or a file or folder (PATH).",
             .names_elsewhere = {"load-checkpoint", "resume-from", "resume-from-checkpoint"}});
  table.add({.name = "load",
             .value = text(checkpoint.load, "folder"),
             .help = "Go on from the newest checkpoint of this folder, in any layout, or, with a warning, start anew "
                     "where it has none.",
             .megatron = {{"load"}}});
  table.add({.name = "init-from",
             .value = text(checkpoint.init_from, "path"),
             .help = "Start a new training from the weights of a checkpoint, with a fresh optimizer; positions are "
                     "resized where the grid of patches differs.",
             .names_elsewhere = {"pretrained-checkpoint", "pretrained", "finetune-from"}});
  table.add({.name = "init-from-partial",
             .value = flag(checkpoint.init_from_partial),
             .help = "Let a head, last norm or class token that does not fit keep its initial values."});
  table.add({.name = "checkpoint-every",
             .value = integer(checkpoint.every, from_one(kMostCount, "none")),
             .help = "Iterations from one checkpoint to the next, and one after each validation that is the best so "
                     "far; none: only at the end and when the run is stopped.",
             .unit = "iterations",
             .megatron = {{"save-interval"}},
             .names_elsewhere = {"save-every", "save-freq", "save-steps", "checkpoint-interval"}});
  table.add({.name = "checkpoint-at-start",
             .value = flag(checkpoint.at_start),
             .help = "Save a checkpoint before the first iteration."});
  table.add({.name = "checkpoint-async",
             .value = flag(checkpoint.async),
             .help = "Copy the state to host memory and write it on a thread while training goes on.",
             .megatron = {{"async-save"}}});
  table.add({.name = "keep-checkpoints",
             .value = integer(checkpoint.keep, from_one(kMostCount, "none")),
             .help = "Newest checkpoints that are kept, besides the best by validation; none: no checkpoint is ever "
                     "saved."});
  table.add({.name = "checkpoint-dir",
             .value = text(checkpoint.dir, "folder"),
             .help = "Folder for checkpoints; where not given, checkpoints/ in the run's folder.",
             .megatron = {{"save"}},
             .names_elsewhere = {"save-dir", "checkpoint-path", "ckpt-dir"}});
  table.add({.name = "lock-renewal",
             .value = number(checkpoint.lock_renewal, {.least = 0.1, .most = 3600.0}),
             .help =
                 "Time from one renewal of the lock in the folders that the run writes to, to the next; a lock that "
                 "missed three of them is taken over.",
             .unit = "s"});
  table.add({.name = "preempt-signal",
             .value = text(checkpoint.preempt_signals, "NAMES"),
             .help = "Signals on which the run saves, ends with code 75 and may be resumed: names with commas between "
                     "them, of USR1, USR2, TERM, INT."});
  table.add({.name = "time-limit",
             .value = number(checkpoint.time_limit, positive("none")),
             .help = "Save and end with code 75 before the run has taken so long; the end of a Slurm job "
                     "(SLURM_JOB_END_TIME) does the same.",
             .unit = "s"});
}

}  // namespace vit_hybrid::train
