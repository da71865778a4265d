#!/usr/bin/env python3
"""launch/gpu_suite on a machine with a GPU that is none: a pack whose `run` is a script that plays the programs.

    gpu_suite.py WORK_DIR SOURCE_DIR
"""

import json
import os
import shutil
import subprocess
import sys

work, source = os.path.abspath(sys.argv[1]), sys.argv[2]
PACK = os.path.join(work, "pack")

# Plays each program. What fails and hangs is named by the variables FAILS and HANGS.
RUN = r"""#!/usr/bin/env python3
import json, os, sys, time
words = sys.argv[1:]
if words == ["where"]:
    print("LibTorch   /none\nGPUs       1")
    sys.exit()
with open(os.environ["PLAYED"], "a") as played:
    played.write(" ".join(words) + "\n")
line = " ".join(words[1:])
time.sleep(float(os.environ.get("DELAY", "0")))
if os.environ.get("FAILS", "nothing") in line:
    print('0.5 s: gpu a\nERROR: test case "gpu b" failed\nvit_hybrid: it | failed')
    sys.exit(70)
if os.environ.get("HANGS", "nothing") in line:
    print("1.25 s: gpu a\n2.5 s: gpu b", flush=True)
    time.sleep(60)
if words[1] == "compute-sanitizer" and "racecheck" in words:
    print("========= Error: Device not supported")
    sys.exit(1)
if "vit_hybrid" in words:
    folder = words[words.index("--run-dir") + 1]
    os.makedirs(folder, exist_ok=True)
    json.dump({"speed": {"samples_per_s": 100.0, "model_flops_per_s": 5e14, "percent_of_roof": 60.0, "percent_of_peak": None},
               "ranks": [{"seconds": {"step": 4.0, "data_wait": 0.1}, "memory": {"device_peak": 3 << 20}}]},
              open(folder + "/summary.json", "w"))
if words[1] == "ncu" and "--csv" in words:
    print('"ID","Kernel Name","gpu__time_duration.sum"\n"","","nsecond"')
    print('"0","void ns::slow<float>(int)","3,000"\n"1","quick(int)","1000"')
if "compare_pytorch.py" in line:
    print("| model | ratio |")
print("0.5 s: gpu a\n[doctest] test cases: 1 | 1 passed")
"""


def fail(text):
    print("gpu_suite:", text)
    sys.exit(1)


def suite(out, *words, **variables):
    environment = dict(os.environ, PLAYED=os.path.join(work, "played.txt"), PATH=os.path.join(work, "bin") + ":/usr/bin:/bin",
                       **variables)
    done = subprocess.run([os.path.join(PACK, "gpu_suite"), "--out", out, *words], capture_output=True, text=True,
                          env=environment, cwd=work)
    path = os.path.join(out, "results.md")
    return done.returncode, open(path).read() if os.path.exists(path) else "", done.stdout + done.stderr


def played():
    path = os.path.join(work, "played.txt")
    lines = open(path).read().splitlines() if os.path.exists(path) else []
    open(path, "w").close()
    return lines


def expect(condition, text, shown=""):
    if not condition:
        fail(f"{text}\n{shown}")


shutil.rmtree(work, ignore_errors=True)
os.makedirs(os.path.join(PACK, "bin"))
os.makedirs(os.path.join(work, "bin"))
for name in ("gpu_suite", "run"):
    path = os.path.join(PACK, name)
    with open(path, "w") as file:
        file.write(RUN if name == "run" else open(os.path.join(source, "launch", name)).read())
    os.chmod(path, 0o755)
open(os.path.join(PACK, "pack.txt"), "w").write("program   vit_hybrid 0.1.0\n")
for name in ("bench_gpu_kernels", "bench_gpu_products"):
    open(os.path.join(PACK, "bin", name), "w").close()

# All parts: what each row says.
code, results, _ = suite(os.path.join(work, "all"))
expect(code == 0, f"exit code {code} where all passes", results)
for line in ("| 1 | passed | 0 | 1 | [doctest] test cases: 1 / 1 passed |", "| memcheck | passed |",
             "| racecheck | skipped: the tool refuses this device |", "`bench_gpu_products vit-b16 64`: passed",
             "| vit-b16 | 256 | bf16 | off | passed | 100.0 | 500.0 | 60.0 |  | 3 | 2.50 |", "| vit-b16 | 8 | bf16 | on |",
             "| `void ns::slow<float>(int)` | 75.0 |", "| model | ratio |", "Program: vit_hybrid 0.1.0."):
    expect(line in results, f"'{line}' is not in the results", results)
lines = played()
expect(sum("gpu_tests" in line and "--test-case=gpu mesh" in line for line in lines) == 2, "4 and 8 ranks do all", lines)
expect(any("regex:" in line and line.startswith("1 bash -c exec ncu") for line in lines), "ncu looks at no kernel", lines)
expect(open(os.path.join(work, "all", "longest.txt")).read() == "slow|quick", "the longest kernels are others")
expect(len(open(os.path.join(work, "all", "summaries.jsonl")).readlines()) == 18, "there are not 18 summaries")

# A failure and a time-out: a row each, the cases that were done, exit code 1, and what comes after is done.
code, results, _ = suite(os.path.join(work, "failing"), "tests", "models", FAILS="gpu_tests")
expect(code == 1, f"exit code {code} after a failure", results)
for line in ("| 1 | FAILED with code 70 | 0 | 1 | vit_hybrid: it / failed |", '    ERROR: test case "gpu b" failed',
             "| vit-l16 | 128 | fp16 | auto | passed |"):
    expect(line in results, f"'{line}' is not in the results", results)
code, results, _ = suite(os.path.join(work, "hanging"), "--seconds", "12", "tests", "models", HANGS="gpu_tests")
expect(code == 1 and "FAILED: not done after 1" in results and "| 2 | 2.5 s: gpu b |" in results, "a time-out tells nothing", results)
expect("| vit-b16 | 256 | bf16 | off | not run: no time left |" in results, "what has no time stands nowhere", results)
played()

# The first minutes: each call goes on where the last one ended, and nothing is done twice.
expected = None
for call in range(20):
    code, results, said = suite(os.path.join(work, "first"), "--first-minutes", "24", GPU_SUITE_PIECE="61", DELAY="0.1")
    if "left for the next call" not in said:
        break
    expect(call < 19, "it does not come to an end", said)
lines = played()
expect(call > 0, "one call did all", results)
expect(len(lines) == len(set(lines)), "something was done twice", lines)
for heading in ("## Kernels", "## Memory errors", "## Tests, one rank", "## Training", "## Where the time", "## Beside PyTorch"):
    expect(heading in results, f"no '{heading}'", results)
expect(json.load(open(os.path.join(work, "gpu_suite_state", "rows.json"))), "no state is kept")

# Bad words.
for words, said in ((["frob"], "'frob' is no part"), (["--model", "x"], "--model is 'x'"), (["--seconds", "0"], "--seconds is 0"),
                    (["--first-minutes", "3", "tests"], "--first-minutes has parts")):
    code, _, text = suite(os.path.join(work, "bad"), *words)
    expect(code == 64 and said in text and text.count("\n") == 1, f"of {words} it says", text)
print("gpu_suite: all as expected")
