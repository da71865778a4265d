#!/usr/bin/env bash
# The records of runs: each has a time, a key means one thing in all of them and stands in docs/running.md, a step is there
# once though a run was killed and went on, and launch/metrics_csv makes tables of them. On a terminal the progress fits its
# width and says what is left; long work is named within seconds.
#
#   metrics.sh PROGRAM WORK_DIR SOURCE_DIR LAUNCHER...   (whose last word takes the number of ranks; 2 are used)
set -euo pipefail

program=$1 work=$2 source=$3
shift 3
launcher=("$@")
fail() { echo "metrics: $*" >&2; tail -n 5 "$work"/*.err >&2 || true; exit 1; }
# shellcheck source=tests/support/watched_run.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/watched_run.sh"
command -v python3 >/dev/null || { echo "[skipped] there is no python3"; exit 77; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"
export XDG_CACHE_HOME=$work/cache

# train RANKS NAME OPTIONS...: 40 samples by 8 are 5 steps an epoch
train() {
  local ranks=$1 name=$2
  shift 2
  "${launcher[@]}" "$ranks" "$program" --generated-samples 40 --generated-valid-samples 3 --global-batch-size 8 \
    --micro-batch-size 2 --depth 2 --embed-dim 32 "$@" >"$name.txt" 2>"$name.err"
}

# A run is killed after a step that no checkpoint has, and with half a line in its file; then it goes on.
began=$(date +%s)
train 2 killed --run-dir run --steps 2000 --checkpoint-every 4 --dp 2 &
job=$!
wait_for_steps run 14 $job
for child in $(pgrep -P $job); do  # the launcher; below it ranks, or MPICH's proxy with the ranks
  for below in $(pgrep -P "$child"); do
    kill -KILL $(pgrep -P "$below") "$below" 2>/dev/null || true
  done
done
wait $job && fail "the killed run ended well"
printf '{"kind":"step","st' >>run/metrics.jsonl
last=$(sed -n 's/^step-0*\([1-9][0-9]*\).h5$/\1/p' run/checkpoints/latest)
train 1 resumed --run-dir run --resume auto --steps $((last + 7)) || fail "the run does not go on"
train 1 tested --run-dir tested --test-steps 6 --steps 6 || fail "no test"

python3 - "$source/docs/running.md" "$began" "$last" <<'PYTHON' || fail "the records are wrong"
import json, re, sys, time
documented = set()
for line in open(sys.argv[1], encoding="utf-8"):
    row = re.match(r"\| `([^|]*)` \|", line)
    if row:
        documented.update(re.findall(r"[A-Za-z0-9_.]+", row.group(1).replace("`", "")))
began, last = float(sys.argv[2]), int(sys.argv[3])
kinds = {}
problems = []
def look(path, value):
    kind = ("number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__)
    if value is not None:
        kinds.setdefault(path.split(".")[-1] if path.startswith("seconds.") else path, {}).setdefault(kind, path)
runs = {}
for run in ("run", "tested"):
    runs[run] = [json.loads(line) for line in open(f"{run}/metrics.jsonl", encoding="utf-8")]
    for record in runs[run]:
        if not began - 1 <= record["time"] <= time.time() + 1:
            problems.append(f"{record['kind']}: the time is {record.get('time')}")
        for key, value in record.items():
            look(key, value)
            if key not in documented:
                problems.append(f"{record['kind']}: the key '{key}' is not in docs/running.md")
            if key == "seconds":
                for part, seconds in value.items():
                    look("seconds." + part, seconds)
for key, found in kinds.items():
    if len(found) > 1:
        problems.append(f"the key '{key}' is {' and '.join(found)}")
steps = [record["step"] for record in runs["run"] if record["kind"] == "step"]
if steps != list(range(1, last + 8)):
    problems.append(f"steps {steps}, not 1 to {last + 7} once each")
resumes = [record["step"] for record in runs["run"] if record["kind"] == "resume"]
if resumes != [last]:
    problems.append(f"resumed at {resumes}, not at {last}")
missing = {"start", "step", "epoch", "valid", "resume", "checkpoint", "test"} - {
    record["kind"] for run in runs.values() for record in run}
if missing:
    problems.append(f"no records of the kinds {missing}")
print("\n".join(problems))
sys.exit(1 if problems else 0)
PYTHON

# Numbers for people: none has more than six significant digits, but in the lines that the reference workload has.
if grep -E '^step ' resumed.txt | grep -E '[=, ](0\.0*)?[1-9][0-9.]{7,}'; then fail "a line of a step has too many digits"; fi
grep -qE '^step [0-9]+/[0-9]+, epoch [0-9]+(, [0-9.]+ (s|min) to go)?: loss=[0-9.]+, lr=[0-9.e-]+, grad norm=[0-9.]+, [0-9.]+ samples/s$' \
  resumed.txt || fail "no line of a step"

# Long work is named within 10 s, also where another rank has it, and however much of it is done.
"${launcher[@]}" 2 "$program" data generate --out long --train-years 1 --valid-years 0 --steps-per-year 400 --channels 4 \
  --height 256 --width 512 >long.txt 2>long.err &
job=$!
trap 'kill $job 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  ! grep -qE '^generating weather in long: ([0-9]+ % done, [0-9.]+ [a-z]+ to go|[0-9]+ s so far)$' long.txt || break
  kill -0 $job 2>/dev/null || fail "the generation ended at once"
  sleep 0.1
done
grep -q '^generating weather in long: ' long.txt || fail "nothing is said of a long generation"
kill $job
wait $job || true  # what MPICH's launcher returns is not always the program's code
trap - EXIT
rm -r long

# Tables.
"$source/launch/metrics_csv" run >steps.csv || fail "no table of steps"
head -n 1 steps.csv | grep -qx 'step,epoch,time,loss,lr,grad_norm,skipped,loss_scale,samples,samples_per_s,seconds.step,seconds.forward,seconds.backward,seconds.reduce,seconds.communication,seconds.optimizer,seconds.data_wait,data_wait_mean,data_wait_max,data_wait_max_percent' ||
  fail "other columns: $(head -n 1 steps.csv)"
[ "$(wc -l <steps.csv)" = $((last + 8)) ] || fail "not one line a step"
awk -F, 'NR > 1 { for (i = 1; i <= 20; ++i) if ($i == "") exit 1 }' steps.csv || fail "empty cells in the table of steps"
third=$(sed -n 's/.*"kind":"step","step":3,.*"loss":\([^,]*\),.*/\1/p' run/metrics.jsonl)
[ "$(awk -F, '$1 == 3 { print $4 }' steps.csv)" = "$third" ] || fail "a loss has lost digits"
"$source/launch/metrics_csv" run/metrics.jsonl --valid --out valid.csv || fail "no table of validations"
head -n 1 valid.csv | grep -qE '^step,epoch,time,samples,loss,duration,rmse\.[a-z0-9]+,' || fail "other columns: $(head -n 1 valid.csv)"
[ "$(wc -l <valid.csv)" -gt 2 ] || fail "no validations in the table"
printf '{"kind":"step","step":1,"loss":2.0}\n{"kind":"step","step":2,"loss":null}\n{"kind":"step","step":1,"loss":1.0}\n{"ki' >old.jsonl
[ "$("$source/launch/metrics_csv" old.jsonl 2>old.err | cut -d, -f 1,4 | tr '\n' ' ')" = "step,loss 1,1.0 2, " ] ||
  fail "a step that is there twice"
grep -q 'line 4 is no record' old.err || fail "half a line is passed over in silence"
code=0
"$source/launch/metrics_csv" run >/dev/full 2>full.err || code=$?
[ $code = 74 ] && [ "$(cat full.err)" = "metrics_csv: standard output cannot be written: No space left on device" ] ||
  fail "a table that cannot be written: $(cat full.err)"
"$source/launch/metrics_csv" nothing 2>none.err && fail "a run that is not there makes a table"
grep -q '^metrics_csv: nothing: No such file' none.err || fail "no word on a run that is not there"

# A terminal of 40 columns, whatever COLUMNS says; nothing wraps, and the rest is told.
python3 - "$program" <<'PYTHON' || fail "the progress on a terminal is wrong"
import fcntl, os, pty, re, struct, sys, termios
def shown(columns, variables, *options):
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(variables)
        os.execv(sys.argv[1], [sys.argv[1], *options])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    text = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the run on a terminal failed: " + text.decode()[-500:])
    # What is shown begins with the erasing of the line and ends before the next one; a line that stays ends otherwise.
    return re.findall(r"\r\x1b\[K([^\r\n]*)(?=\r\x1b)", text.decode())
options = ["--run-dir", "terminal", "--generated-samples", "40", "--generated-valid-samples", "3", "--global-batch-size", "8",
           "--depth", "2", "--embed-dim", "32", "--steps", "40", "--log-interval", "50"]
lines = [line for line in shown(40, {"COLUMNS": "200"}, *options) if line.startswith("step ")]
assert len(lines) > 20, lines
assert max(map(len, lines)) == 39, max(map(len, lines))
assert any("to go" in line for line in lines), lines
options[1] = "unknown_width"
lines = [line for line in shown(0, {"COLUMNS": "30"}, *options) if line.startswith("step ")]
assert len(lines) > 20 and max(map(len, lines)) == 29, lines
PYTHON
echo "metrics: passed"
