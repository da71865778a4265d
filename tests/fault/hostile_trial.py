"""Trial: starts the program with spoilt inputs, judges how it ends, and counts; for scripts whose cases are methods check_*. With
--long among the words they take all of what there are many of, else some."""
import concurrent.futures
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

MOST_SECONDS, MOST_BYTES = 120, 6 << 30  # of one command, which nothing needs; address space, of which libraries take most
LAUNCHER = "mpirun -q --oversubscribe --bind-to none -n".split()
ALONE = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_btl": "self", "OMPI_MCA_pml": "ob1"}  # starts twice as fast
TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


class Trial:
    def __init__(self, program, launcher, folder, is_long):
        self.program, self.launcher, self.folder = str(pathlib.Path(program).resolve()), launcher or LAUNCHER, pathlib.Path(folder)
        self.is_long = is_long
        self.failures, self.count = [], 0
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")

    def some(self, cases):
        """Of cases of one kind."""
        return cases if self.is_long else cases[::3]

    def start(self, words, ranks=1, most_file=None, before=(), program=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if ranks == 1:
                resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            if most_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_file, most_file))

        # Open MPI's folder there is shared by all that run: one that ends removes what another that starts has just made. (CTest
        # gives one that is never removed.)
        tmp = tempfile.mkdtemp(dir=self.folder)
        launcher = [*self.launcher, str(ranks)] if ranks > 1 else []
        return subprocess.Popen([*launcher, *before, program or self.program, *map(str, words)], cwd=self.folder, preexec_fn=limit,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                env={**os.environ, "TMPDIR": tmp, **(ALONE if ranks == 1 else {})})

    @staticmethod
    def end(process, seconds=MOST_SECONDS):
        """Exit code ('no end' after a kill) and both outputs."""
        try:
            out, err = process.communicate(timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks
            try:
                out, err = process.communicate(timeout=3)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
            code = "no end"
        return code, out.decode("utf8", "replace"), err.decode("utf8", "replace")

    def judge(self, name, result, codes, says=(), more=()):
        """`more` is what else was found wrong."""
        code, out, err = result
        before = (" so far", "warning:", "% done")  # progress and warnings may come before the error
        lines = [line for line in err.splitlines() if line.strip() and not any(part in line for part in before)]
        wrong = [f"ended with {code}, not {codes}"] if code not in codes else []
        wrong += [f"does not say '{part}'" for part in says if part not in out + err]
        if code in (64, 65, 66, 73, 74):
            wrong += [f"{len(lines)} lines"] if len(lines) != 1 else []
            wrong += ["blames memory"] if "out of memory" in err else []
            wrong += ["a line of more than 16 KiB"] if max(map(len, lines), default=0) > 16384 else []
        wrong += ["bytes for terminals"] if TERMINAL.search(out + err) else []
        wrong += more
        if wrong:
            self.failures.append(f"{name}: {'; '.join(wrong)}: {(err or out).strip()[-400:]!r}")
        self.count += 1

    def check(self):
        """The groups of cases, two at a time, the longest one first."""
        groups = [getattr(self, name) for name in dir(self) if name.startswith("check_")]
        groups.sort(key=lambda group: group.__name__ != "check_ranks")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(group) for group in groups]:
                done.result()
        print(f"{self.count} cases, {len(self.failures)} fail", *self.failures, sep="\n  ")
        return 1 if self.failures else 0


def main(trial):
    """Of a script whose words are the program and, if need be, the launcher."""
    words = [word for word in sys.argv[1:] if word != "--long"]
    with CheckedFolder() as folder:
        sys.exit(trial(words[0], words[1:], folder, "--long" in sys.argv).check())
