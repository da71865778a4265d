"""One rank of launch/profile: becomes the profiler that becomes the program.

    python3 profile_rank.py perf|nsys FOLDER FREQUENCY PROGRAM WORDS...

Where the profiler cannot be used here it leaves a line in FOLDER/rank_N.problem and ends with 66.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from messages import MISSING_INPUT

# By the launcher nearest to the program: mpirun within a job of Slurm has both. A process that nobody launched is rank 0.
RANK_VARIABLES = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"]
# Where processors count nothing (virtual machines), by their clock; without permission to look into the kernel, outside of it.
EVENTS = ["cycles", "cpu-clock", "cycles:u", "cpu-clock:u"]
# Bytes of the stack that a sample takes along; perf finds the callers in them, also where no frame pointers are kept.
STACK = 16384


def own_rank():
    return next((int(os.environ[name]) for name in RANK_VARIABLES if os.environ.get(name, "").isdigit()), 0)


def perf_words(event, frequency, output, commands, answers):
    return ["perf", "record", "--quiet", "--delay=-1", f"--control=fifo:{commands},{answers}", f"--event={event}",
            f"--freq={frequency}", f"--call-graph=dwarf,{STACK}", f"--output={output}", "--"]


def make_fifos(folder, name):
    paths = [os.path.join(folder, f"{name}.{kind}") for kind in ("commands", "answers")]
    for path in paths:
        os.mkfifo(path, 0o600)
    return paths


def usable_event(frequency):
    """The first event that perf records here. Raises RuntimeError with what it says of the last one."""
    said = ""
    with tempfile.TemporaryDirectory(prefix="vit_hybrid-profile-") as folder:
        fifos = make_fifos(folder, "try")
        for event in EVENTS:
            tried = subprocess.run([*perf_words(event, frequency, os.path.join(folder, "try.data"), *fifos), "true"],
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
            if tried.returncode == 0:
                return event
            said = next((line.strip() for line in tried.stderr.splitlines() if line.strip() not in ("", "Error:")), said)
    raise RuntimeError(said or f"exit code {tried.returncode}")


def permission_hint():
    try:
        with open("/proc/sys/kernel/perf_event_paranoid", encoding="ascii") as file:
            level = int(file.read())
    except (OSError, ValueError):
        return "this kernel has no perf_event_paranoid: it has no perf events"
    if level > 2:
        return f"kernel.perf_event_paranoid is {level}, users may profile at 2 or less: sysctl kernel.perf_event_paranoid=2"
    return f"kernel.perf_event_paranoid is {level}, which is enough: in a container, allow it perf_event_open (--cap-add=PERFMON)"


def give_up(folder, rank, text):
    try:
        with open(os.path.join(folder, f"rank_{rank}.problem"), "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError:  # of this rank's machine
        print(f"profile: rank {rank}: {text}", file=sys.stderr)
    sys.exit(MISSING_INPUT)


def become(tool, folder, frequency, program):
    rank = own_rank()
    if not shutil.which(tool):
        give_up(folder, rank, f"there is no {tool} in PATH on {socket.gethostname()}")
    if tool == "nsys":
        command = ["nsys", "profile", "--trace=cuda,nvtx,osrt,mpi", "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
                   f"--output={os.path.join(folder, f'rank_{rank}')}"]
    else:
        try:
            event = usable_event(frequency)
            fifos = make_fifos(folder, f"rank_{rank}")
        except RuntimeError as error:
            give_up(folder, rank, f"perf cannot be used on {socket.gethostname()} ({error}); {permission_hint()}")
        except FileExistsError as error:
            give_up(folder, rank, f"{error.filename} is there already: two processes take themselves for rank {rank}, as none of "
                    f"{', '.join(RANK_VARIABLES)} tells them apart")
        except OSError as error:
            give_up(folder, rank, f"{error.filename}: no FIFO can be made: {error.strerror}; name another --out")
        command = perf_words(event, frequency, os.path.join(folder, f"rank_{rank}.perf.data"), *fifos)
        os.environ["PERF_RECORD_CONTROL"] = f"fifo:{','.join(fifos)}"
        # The program's notice that its time is nearly up, which Slurm sends to all processes, must not end perf.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.execvp(command[0], command + program)


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
