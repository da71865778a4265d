#!/usr/bin/env bash
# A run of 72 ranks: its rows of ranks are in ranks.h5, which launch/report reads; summary.json and the log have no row for
# each. The run that goes on with fewer ranks has its rows in summary.json, and the file is gone.
#
#   ranks_file.sh PROGRAM SOURCE_DIR WORK_DIR LAUNCHER...   (whose last word takes the number of ranks)
set -euo pipefail

program=$1 source=$2 work=$3
shift 3
fail() { echo "ranks_file: $*" >&2; exit 1; }
python=python3
$python -c "import h5py" 2>/dev/null || python=/usr/bin/python3
$python -c "import h5py" 2>/dev/null || { echo "[skipped] no Python with h5py"; exit 77; }

mkdir -p "$work"
cd "$work"
rm -rf run ./*.txt
train() {
  "$@" "$program" --global-batch-size 72 --micro-batch-size 1 --generated-samples 80 --generated-valid-samples 0 --threads 1 \
    --timeout 600 --depth 1 --run-dir run "${options[@]}" >"out-$#.txt" 2>&1 || fail "$*: $(tail -n 5 "out-$#.txt")"
}
options=(--dp 72 --steps 2 --checkpoint-every 2)
train "$@" 72
[ "$(grep -c . "out-$(($# + 1)).txt")" -lt 70 ] || fail "the log has too many lines: $(cat out-*.txt)"
[ -e run/ranks.h5 ] || fail "no ranks.h5"
$python - "$source/launch" 72 <<'PYTHON' || fail "72 ranks: see above"
import json, sys
sys.path.insert(0, sys.argv[1])
from run_folder import Run, rank_rows
run, ranks = Run("run"), int(sys.argv[2])
assert [row["rank"] for row in run.ranks] == list(range(ranks)) and not run.notes, (run.ranks, run.notes)
assert "ranks" not in run.summary and "usage" not in run.summary and run.summary["ranks_file"] == "ranks.h5", run.summary
assert {row["host"] for row in run.ranks} == {run.summary["deciding"]["host"]}
assert all(row["memory"]["peak"]["parameters"] == row["memory"]["predicted"]["parameters"] > 0 for row in run.ranks)
assert all(isinstance(row["rank"], int) and row["slow"] == [] and row["seconds"]["step"] > row["seconds"]["forward"] > 0
           for row in run.ranks)
assert [row["rank"] for row in rank_rows("run/ranks.h5", "usage")] == [0]
PYTHON
$python "$source/launch/report" run --out report.html >report.txt 2>&1 || fail "launch/report: $(cat report.txt)"
grep -q "^Memory of the fullest rank" report.txt || fail "launch/report has no memory of ranks: $(cat report.txt)"

options=(--dp 2 --steps 3 --resume run/checkpoints --micro-batch-size 2)
train "$@" 2
[ ! -e run/ranks.h5 ] || fail "ranks.h5 is there beside the rows of another part"
$python -c 'import json; assert [r["rank"] for r in json.load(open("run/summary.json"))["ranks"]] == [0, 1]' || fail "no rows of 2 ranks"
echo "ranks_file: passed"
