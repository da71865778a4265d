#!/usr/bin/env bash
# One of two ranks reads slowly for a while: the run names it, its host and the part of its work, and tells when it is well
# again, in a warning, a line, the records and the summary.
#
#   slow_rank.sh PROGRAM SHIM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks)
set -euo pipefail

program=$1 shim=$2 work=$3
shift 3
fail() { echo "slow_rank: $*" >&2; cat err.txt >&2; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"
"$program" data generate --out data --train-years 1 --valid-years 1 --steps-per-year 40 --channels 3 --height 16 --width 32 >/dev/null
export VIT_HYBRID_TEST_SLOW_READS=$PWD/slow
echo 40000 >slow.1  # microseconds
"$@" 2 env LD_PRELOAD="$shim" "$program" --train-data data/train --valid-data data/valid --stats data/stats --in-channels 3 \
  --out-channels 3 --image-size 16x32 --depth 2 --embed-dim 48 --num-heads 4 --dp 2 --global-batch-size 4 --threads 1 \
  --steps 2500 --keep-checkpoints none --run-dir run >out.txt 2>err.txt &
job=$!

found() { grep -sqE "\"kind\":\"straggler\",\"step\":[0-9]+,\"rank\":1,\"host\":\"[^\"]+\",\"slow\":$1,.*\"part\":\"data_wait\"" run/metrics.jsonl; }
for _ in $(seq 1200); do
  if found true; then rm -f slow.1; fi
  kill -0 "$job" 2>/dev/null || break
  sleep 0.1
done
wait "$job" || fail "the run ended with exit code $?"

found true || fail "no record names rank 1 and its reading"
found false || fail "no record says that rank 1 is well again"
grep -qE '^vit_hybrid: warning: step [0-9]+: ranks? .*1 on [^ ]+ (is|are) slow since step [0-9]+: .* ms a step \([0-9.]+ %\) more work than its peers have, most of it in data wait$' err.txt ||
  fail "no warning"
grep -qE '^step [0-9]+: ranks? .*1 on [^ ]+ (is|are) slow no more: in steps [0-9]+ to [0-9]+ ' out.txt || fail "no line of its end"
grep -qE '^rank [01] on [^ ]+ has most work: [0-9.]+ ms a step beside waiting for others, who have [0-9.]+ ms; most of the difference in ' \
  out.txt || fail "no line on who has most work"
python3 - <<'PYTHON' || fail "summary.json tells another story"
import json
summary = json.load(open("run/summary.json"))
rank = summary["ranks"][1]
slow = [spell for spell in rank["slow"] if spell["part"] == "data_wait"]
assert slow and slow[0]["to_step"] > slow[0]["from_step"] >= 1 and slow[0]["percent"] > 20, slow
assert rank["own_seconds"]["data_wait"] > 0.9 * slow[0]["seconds_per_step"] * (slow[0]["to_step"] - slow[0]["from_step"]), rank
assert summary["deciding"]["rank"] in (0, 1), summary["deciding"]
PYTHON
echo "slow_rank: passed"
