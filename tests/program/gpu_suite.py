#!/usr/bin/env python3
"""launch/gpu_suite on a machine with a GPU that is none: a pack whose `run` is a script that plays the programs.

    gpu_suite.py WORK_DIR SOURCE_DIR MPI_TESTS [GPU_TESTS]

MPI_TESTS is a program of the same main() as gpu_tests that needs no GPU: what the suite reads is what that one prints.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys

work, source, mpi_tests = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
gpu_tests = sys.argv[4] if len(sys.argv) > 4 else None
PACK = os.path.join(work, "pack")

MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}

# Plays each program. What fails and hangs is named by the variables FAILS and HANGS.
RUN = r"""#!/usr/bin/env python3
import json, os, signal, subprocess, sys, time
words = sys.argv[1:]
if words == ["where"]:
    if "NO_TORCH" in os.environ:
        print("run: python3 has no torch", file=sys.stderr)
        sys.exit(1)
    print("LibTorch   /none\nGPUs       1")
    sys.exit()
with open(os.environ["PLAYED"], "a") as played:
    played.write(" ".join(words) + "\n")
line = " ".join(words[1:])
if words[1] == "nsys":
    sys.exit(subprocess.run(words[1:]).returncode)
print("NCCL_DEBUG=" + os.environ["NCCL_DEBUG"])
if words[1] == "gpu_tests" and "REAL" in os.environ:
    real = subprocess.Popen([os.environ["REAL"], "--duration=true", "--test-case=" + os.environ["CASES"]],
                            stdout=subprocess.PIPE, text=True)
    ends = 0
    for said in real.stdout:
        print(said, end="", flush=True)
        ends += " s: " in said
        if " s: " in said and ends == int(os.environ["WATCH_ENDS_IT_AFTER"]):
            real.send_signal(signal.SIGALRM)  # that of its own watch
    sys.exit(real.wait())
time.sleep(float(os.environ.get("DELAY", "0")))
if os.environ.get("SKIPS", "nothing") in line:
    print("[skipped] no CUDA device")
    sys.exit(77)
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
               "ranks": [{"seconds": {"step": 4.0, "data_wait": 0.1}, "memory": {"allocator_peak": 3 << 20}}]},
              open(folder + "/summary.json", "w"))
if words[1] == "ncu" and "--csv" in words:
    print('"ID","Kernel Name","gpu__time_duration.sum"\n"","","nsecond"')
    print('"0","void ns::slow<float>(int)","3,000"\n"1","quick(int)","1000"')
if "compare_pytorch.py" in line:
    print("| model | ratio |")
print("0.5 s: gpu a\n[doctest] test cases: 1 | 1 passed")
"""

# Plays nsys: its report is which steps the program was to have captured, and its table has them.
NSYS = r"""#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
if words[0] == "profile":
    given = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if (given["capture-range"], given["capture-range-end"]) != ("cudaProfilerApi", "stop"):
        sys.exit("the program is ended, or captured from its start")
    with open(given["output"] + ".nsys-rep", "w") as report:
        report.write(words[words.index("--profile-steps") + 1])
elif words[0] == "stats":
    with open(words[-1]) as report:
        print(" Time (%)  Total Time (ns)  Name\n    100.0          6000000  kernel_of_steps_" + report.read())
elif words != ["--version"]:
    sys.exit("no such command")
"""


def fail(text):
    print("gpu_suite:", text)
    sys.exit(1)


def suite(out, *words, **variables):
    environment = dict(os.environ, PLAYED=os.path.join(work, "played.txt"), PATH="/usr/bin:/bin",
                       PYTHONPATH=os.path.join(work, "modules"), CUDA_HOME=os.path.join(work, "cuda"))
    environment.pop("NCCL_DEBUG", None)
    environment.update(variables)
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
for module in ("torch", "numpy", "triton"):
    os.makedirs(os.path.join(work, "modules", module))
    open(os.path.join(work, "modules", module, "__init__.py"), "w").close()
for folder, tool, text in (("cuda", "compute-sanitizer", "#!/bin/sh\n"), ("cuda", "ncu", "#!/bin/sh\n"), ("nsys", "nsys", NSYS)):
    path = os.path.join(work, folder, "bin", tool)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)
    os.chmod(path, 0o755)
for name in ("gpu_suite", "run"):
    path = os.path.join(PACK, name)
    with open(path, "w") as file:
        file.write(RUN if name == "run" else open(os.path.join(source, "launch", name)).read())
    os.chmod(path, 0o755)
open(os.path.join(PACK, "pack.txt"), "w").write("program   vit_hybrid 0.1.0\n")
for name in ("gpu_tests", "bench_gpu_kernels", "bench_gpu_products"):
    open(os.path.join(PACK, "bin", name), "w").close()

# All parts: what each row says.
code, results, _ = suite(os.path.join(work, "all"))
expect(code == 0, f"exit code {code} where all passes", results)
for line in ("| 1 | passed | 0 | 1 | [doctest] test cases: 1 / 1 passed |", "| memcheck | passed |",
             "| racecheck | skipped: the tool refuses this device |", "`bench_gpu_products vit-b16 64`: passed",
             "| vit-b16 | 256 | bf16 | off | passed | 100.0 | 500.0 | 60.0 |  | 3 | 2.50 |", "| vit-b16 | 8 | bf16 | on |",
             "| vit-b16 --gelu tanh | 256 | bf16 | auto | passed |",
             "| `void ns::slow<float>(int)` | 75.0 |", "| model | ratio |", "Program: vit_hybrid 0.1.0."):
    expect(line in results, f"'{line}' is not in the results", results)
lines = played()
expect(sum("gpu_tests" in line and "--test-case=gpu mesh" in line for line in lines) == 2, "4 and 8 ranks do all", lines)
expect(any("regex:" in line and line.startswith("1 bash -c exec ncu") for line in lines), "ncu looks at no kernel", lines)
profiled = [line for line in lines if "--resume auto" in line]
expect([("ncu" in line, line.split("--steps ")[1].split()[0]) for line in profiled] ==
       [(False, "1"), (True, "3"), (True, "5")] and len({line.split("--run-dir ")[1].split()[0] for line in profiled}) == 1,
       "a profile does not go on from a run that has measured its kernels without a profiler", profiled)
expect(open(os.path.join(work, "all", "longest.txt")).read() == "slow|quick", "the longest kernels are others")
expect(len(open(os.path.join(work, "all", "summaries.jsonl")).readlines()) == 19, "there are not 19 summaries")
expect(sum(line.endswith("--gelu tanh") for line in lines) == 1, "tanh is not that of one row", lines)

# With nsys it captures three steps, after one that warms up, and its table is in the results; ncu looks at nothing.
code, results, _ = suite(os.path.join(work, "nsys_results"), "profile", CUDA_HOME=os.path.join(work, "nsys"))
profiled = [line for line in played() if "--resume auto" in line]
expect(code == 0 and "`nsys`: passed" in results and "ncu" not in results, f"exit code {code} with nsys", results)
expect("kernel_of_steps_3-5" in results, "the table of nsys is not in the results", results)
expect([("nsys profile" in line, line.split("--steps ")[1].split()[0]) for line in profiled] == [(False, "1"), (True, "5")] and
       len({line.split("--run-dir ")[1].split()[0] for line in profiled}) == 1, "nsys captures another run", profiled)

# A failure and a time-out: a row each, the cases that were done, exit code 1, and what comes after is done.
code, results, _ = suite(os.path.join(work, "failing"), "tests", "models", FAILS="gpu_tests")
expect(code == 1, f"exit code {code} after a failure", results)
for line in ("| 1 | FAILED with code 70 | 0 | 1 | vit_hybrid: it / failed |", '    ERROR: test case "gpu b" failed',
             "| vit-l16 | 128 | fp16 | auto | passed |"):
    expect(line in results, f"'{line}' is not in the results", results)
code, results, _ = suite(os.path.join(work, "hanging"), "--seconds", "12", "tests", "models", HANGS="gpu_tests")
expect(code == 1 and "| cut after 1" in results and "| 2 | 2.5 s: gpu b |" in results, "a time-out tells nothing", results)
expect("    1.25 s: gpu a\n    2.5 s: gpu b\n" in results, "the cases before the time-out are not listed", results)
expect("| vit-b16 | 256 | bf16 | off | not run: no time left |" in results, "what has no time stands nowhere", results)
code, results, _ = suite(os.path.join(work, "hanging"), "tests", "memory", HANGS="gpu_tests", GPU_SUITE_MOST="2")
expect(code == 1 and results.count("FAILED: not done after") == 4, "a limit of a task's own is no failure", results)
played()

# What a real test program prints: its cases as they end, also where it is ended (by its own watch, which flushes
# nothing) in the last of them, which takes seconds, and what its cases say.
QUICK, LONG = "step input:*,hdf5: a file that only one rank sees*", "activation memory: the estimate*"
quick = subprocess.run([mpi_tests, "--list-test-cases", "--test-case=" + QUICK], capture_output=True, text=True).stdout
quick = [line for line in quick.splitlines() if re.match("step input: |hdf5: ", line)]
expect(len(quick) == 3, "the quick cases are others", quick)
for cases, ended, wanted in ((QUICK, "0", "| 1 | passed | "), (QUICK + "," + LONG, "3", "| 1 | FAILED with code 124 | ")):
    code, results, _ = suite(os.path.join(work, "real"), "tests", REAL=mpi_tests, CASES=cases, WATCH_ENDS_IT_AFTER=ended, **MPI)
    expect(re.search(re.escape(wanted) + r"\d+ \| 3 \| ", results), f"no row '{wanted}' with three cases", results)
    for name in quick:
        expect(re.search(rf"^    \d+\.\d\d s: {re.escape(name)}$", results, re.MULTILINE), f"'{name}' is not listed", results)
    expect("    needs 2 ranks\n" in results, "what a case says is not in the results", results)
played()

# What is not on this machine or in the pack is skipped, and said.
hidden = os.path.join(PACK, "bin", "bench_gpu_kernels")
os.rename(hidden, hidden + ".hidden")
code, results, _ = suite(os.path.join(work, "bare"), CUDA_HOME=os.path.join(work, "none"), PYTHONPATH="")
os.rename(hidden + ".hidden", hidden)
expect(code == 0, f"exit code {code} where tools are missing", results)
for line in ("| memcheck | skipped: compute-sanitizer is not on this machine |",
             "`ncu, times`: skipped: neither nsys nor ncu is on this machine",
             "`vit-b16`: skipped: torch of Python not on this machine",
             "`bench_gpu_kernels`: skipped: not in this pack: build the target bench", "`bench_gpu_products vit-b16 64`: passed"):
    expect(line in results, f"'{line}' is not in the results", results)
code, results, _ = suite(os.path.join(work, "torchless"), NO_TORCH="1")
expect(code == 77 and "| skipped: run: python3 has no torch |" in results and "no GPU" not in results,
       f"exit code {code} where nothing can be started", results)
played()

# NCCL warns unless told otherwise.
for variables, value in (({}, "WARN"), ({"NCCL_DEBUG": "INFO"}, "INFO")):
    suite(os.path.join(work, "nccl"), "tests", **variables)
    expect(f"NCCL_DEBUG={value}\n" in open(os.path.join(work, "nccl", "log.txt")).read(), f"NCCL_DEBUG is not {value}")
played()

# The cases that are picked by name are there; of those on four ranks, a mesh.
if gpu_tests:
    script = runpy.run_path(os.path.join(source, "launch", "gpu_suite"))
    for pattern in (script["KERNEL_TESTS"] + "," + script["FEW_TESTS"]).split(","):
        listed = subprocess.run([gpu_tests, "--list-test-cases", "--test-case=" + pattern], capture_output=True, text=True)
        expect(pattern.rstrip("*") in listed.stdout, f"gpu_tests has no case '{pattern}'", listed.stdout + listed.stderr)
    expect("gpu mesh: 2 x 2 of four ranks" in script["FEW_TESTS"], "no mesh on four ranks")

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
expect(json.load(open(os.path.join(work, "gpu_suite_state", "rows.json")))["rows"], "no state is kept")

# A task that the end of a call cuts is done again, from its beginning and first, in the next one, and nothing else is.
shutil.rmtree(os.path.join(work, "gpu_suite_state"))
first = ["--first-minutes", "24"]
code, results, said = suite(os.path.join(work, "cut"), *first, GPU_SUITE_PIECE="8", GPU_SUITE_RESERVE="2", HANGS="memcheck")
expect(code == 0 and "| memcheck | cut after " in results and "FAILED" not in results, "a cut task counts as failed", results)
expect("tasks are left for the next call" in said, "it says that all is done", said)
before = played()
code, results, said = suite(os.path.join(work, "cut"), *first)
after = played()
expect(code == 0 and "| memcheck | passed |" in results and "cut" not in results, "a cut task is not done again", results)
expect("memcheck" in before[-1] and before[-1] == after[0], "the next call does not begin with what was cut", before + after)
expect(not set(before[:-1]) & set(after), "something was done twice", before + after)

# With the limit of its own over it has failed, and that is known.
shutil.rmtree(os.path.join(work, "gpu_suite_state"))
for call in range(2):
    code, results, _ = suite(os.path.join(work, "own"), *first, GPU_SUITE_MOST="2", HANGS="memcheck")
    expect(code == 1 and "| memcheck | FAILED: not done after" in results, "a task's own limit is no failure", results)
expect(sum("memcheck" in line for line in played()) == 1, "what hangs is done again")

# Another pack begins anew.
with open(os.path.join(PACK, "pack.txt"), "a") as file:
    file.write("contents  another\n")
code, results, said = suite(os.path.join(work, "own"), *first)
expect(code == 0 and "another pack" in said and "| memcheck | passed |" in results, "the rows of another pack are kept", said)
played()

# What was missing is not remembered.
shutil.rmtree(os.path.join(work, "gpu_suite_state"))
_, results, _ = suite(os.path.join(work, "own"), *first, CUDA_HOME=os.path.join(work, "none"), SKIPS="gpu_tests --duration=true")
expect("| memcheck | skipped: compute-sanitizer" in results, "compute-sanitizer is there", results)
_, results, _ = suite(os.path.join(work, "own"), *first)
expect("| memcheck | passed |" in results and "not on this machine" not in results, "what was missing is remembered", results)
expect("| 1 | skipped |" not in results, "a test program that was skipped is remembered", results)
lines = [line for line in played() if "gpu_tests --duration=true" not in line]
expect(len(lines) == len(set(lines)), "something was done twice", lines)

# What a machine that packs needs is installed with --cuda, and named where it is missing.
tools = os.path.join(work, "tools")
os.makedirs(tools)
for name in ("bash", "dirname", "realpath", "env"):
    os.symlink(shutil.which(name), os.path.join(tools, name))
said = subprocess.run([os.path.join(source, "launch", "pack")], capture_output=True, text=True, env={"PATH": tools}).stderr
expect("not found: patchelf" in said and "launch/install_dependencies --cuda" in said and said.count("\n") == 1,
       "launch/pack does not say what to install", said)
with open(os.path.join(tools, "dpkg-query"), "w") as file:
    file.write("#!/bin/sh\nexit 1\n")
os.chmod(os.path.join(tools, "dpkg-query"), 0o755)
for option, wanted in (("--cuda", True), ("--no-cuda", False)):
    said = subprocess.run([os.path.join(source, "launch", "install_dependencies"), "--check", option], capture_output=True,
                          text=True, env=dict(os.environ, PATH=tools + ":" + os.environ["PATH"])).stdout
    if "missing packages" in said:  # of Debian
        expect(("patchelf" in said) == wanted, f"install_dependencies {option}", said)

# Bad words.
for words, said in ((["frob"], "'frob' is no part"), (["--model", "x"], "--model is 'x'"), (["--seconds", "0"], "--seconds is 0"),
                    (["--first-minutes", "3", "tests"], "--first-minutes has parts")):
    code, _, text = suite(os.path.join(work, "bad"), *words)
    expect(code == 64 and said in text and text.count("\n") == 1, f"of {words} it says", text)
print("gpu_suite: all as expected")
