#!/usr/bin/env python3
"""The histograms of --histogram-every: of a run's checkpoint, counted once more; with the norm that its record has; the same
bytes in a second run; in a run that goes on in another layout; where gradients are not finite; and words it does not take.

    histograms.py PROGRAM RANKS LAUNCHER WORDS...     the launcher's words end with the option that takes the number of ranks

The same in all layouts and precisions, against whole tensors in the program's memory: tests/parity/test_histograms.cpp.
"""
import bisect
import json
import math
import re
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import event_file  # noqa: E402
from checked_folder import CheckedFolder  # noqa: E402

SMALL = ["--depth=2", "--embed-dim=32", "--generated-samples=40", "--generated-valid-samples=4", "--global-batch-size=8",
         "--micro-batch-size=2", "--threads=1", "--device=cpu", "--deterministic", "--clip-norm=0.01", "--lock-renewal=0.3"]
LAYOUTS = {
    2: [["--dp=2"], ["--tp=2", "--precision=bf16"]],
    4: [["--dp=2", "--tp=2"], ["--dp=2", "--pp=2", "--zero=0"], ["--dp=4", "--precision=bf16"],
        ["--tp=2", "--pp=2", "--precision=fp16"]],
}


def require(holds, text):
    if not holds:
        sys.exit(f"FAILED: {text}")


def limits():
    """TensorFlow's, as tensorflow/core/lib/histogram/histogram.cc has them."""
    positive, limit = [], 1e-12
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    return [-limit for limit in reversed(positive)] + [0.0] + positive + [sys.float_info.max]


LIMITS = limits()


class Runs:
    def __init__(self, program, launcher, folder):
        self.program, self.launcher, self.folder = program, launcher, Path(folder)

    def train(self, name, ranks, words, code=0):
        """Standard error of a run."""
        launcher = [*self.launcher, str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *SMALL, f"--run-dir={self.folder}/{name}", *words], capture_output=True,
                              text=True, check=False)
        require(done.returncode == code, f"{name}: exit code {done.returncode}, not {code}: {done.stdout[-500:]} {done.stderr}")
        return done.stderr

    def histograms(self, name):
        """{(step, tag): bytes of the message} of all files of the run."""
        found = [((step, tag), value[5]) for step, tag, value in event_file.values_of_folder(self.folder / name / "tensorboard")
                 if 5 in value]
        require(len(dict(found)) == len(found), f"{name}: a histogram is there twice")
        return dict(found)

    def records(self, name, kind):
        lines = (self.folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return {record["step"]: record for record in map(json.loads, lines) if record["kind"] == kind}

    def weights(self, name):
        """{parameter: values} of the run's last checkpoint."""
        path = self.folder / f"{name}.safetensors"
        subprocess.run([self.program, "checkpoint", "export", self.folder / name / "checkpoints", f"--out={path}",
                        "--dtype=fp64", "--overwrite"], check=True, capture_output=True)
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        heads = json.loads(content[8:8 + size])
        heads.pop("__metadata__", None)
        places = {tensor: [8 + size + offset for offset in head["data_offsets"]] for tensor, head in heads.items()}
        return {tensor: struct.unpack(f"<{(end - begin) // 8}d", content[begin:end]) for tensor, (begin, end) in places.items()}


def check_counts(histogram, values, what):
    """The buckets, some of them empty ones that were joined, hold exactly these values."""
    wanted = Counter(bisect.bisect_right(LIMITS, value) for value in values)
    found = {bisect.bisect_left(LIMITS, limit): count for limit, count in zip(histogram.limits, histogram.counts) if count}
    require(found == dict(wanted), f"{what}: other counts")
    require((histogram.least, histogram.most, histogram.num) == (min(values), max(values), len(values)), f"{what}: other ends")
    squares = math.fsum(value * value for value in values)
    require(math.isclose(histogram.sum_squares, squares, rel_tol=1e-12), f"{what}: sum of squares")
    require(abs(histogram.sum - math.fsum(values)) <= 1e-12 * math.fsum(map(abs, values)), f"{what}: sum")
    require(list(histogram.limits) == sorted(histogram.limits) and histogram.limits[-1] <= LIMITS[-1], f"{what}: limits")
    first = next(i for i, count in enumerate(histogram.counts) if count)
    begin = histogram.limits[first - 1] if first else -math.inf
    require(begin <= histogram.least < histogram.limits[first], f"{what}: its first bucket does not begin where its values do")


def check_layout(runs, ranks, words):
    name = "".join(words).replace("--", "_")
    runs.train(name, ranks, ["--steps=4", "--histogram-every=2", *words])
    weights = runs.weights(name)
    histograms = runs.histograms(name)
    tags = {f"{kind}/{tensor}" for kind in ("Parameters", "Gradients") for tensor in weights}
    require(set(histograms) == {(step, tag) for step in (2, 4) for tag in tags}, f"{name}: {sorted(set(histograms))}")
    for tensor, values in weights.items():
        check_counts(event_file.Histogram(histograms[4, f"Parameters/{tensor}"]), values, f"{name}, {tensor}")
    steps, records = runs.records(name, "step"), runs.records(name, "histograms")
    require(set(records) == {2, 4} and all(record["not_finite"] == 0 < record["duration"] for record in records.values()),
            f"{name}: {records}")
    for step in 2, 4:  # before clipping, each element of each tensor once
        of_gradients = [event_file.Histogram(histograms[step, f"Gradients/{tensor}"]) for tensor in weights]
        norm = math.sqrt(sum(histogram.sum_squares for histogram in of_gradients))
        require(math.isclose(norm, steps[step]["grad_norm"], rel_tol=1e-6) and norm > 0.02,
                f"{name}: gradients of norm {norm}, and the record of the step has {steps[step]['grad_norm']}")
        require([histogram.num for histogram in of_gradients] == [len(values) for values in weights.values()], f"{name}: sizes")
    return name


def check_determinism(runs, name, ranks, words):
    runs.train("again", ranks, ["--steps=4", "--histogram-every=2", *words])
    require(runs.histograms("again") == runs.histograms(name), "the histograms of a second run have other bytes")


def check_resumption(runs, ranks):
    """Step 3 comes again after its checkpoint was lost, in another layout: in a second file, of which TensorBoard shows the
    later one (tests/interop/tensorboard_events.py), and in metrics.jsonl once."""
    runs.train("resumed", 1, ["--steps=3", "--checkpoint-every=2", "--histogram-every=1"])
    (runs.folder / "resumed/checkpoints/step-000000003.h5").unlink()
    runs.train("resumed", ranks, ["--steps=4", "--checkpoint-every=2", "--histogram-every=1", "--resume=auto", f"--dp={ranks}"])
    files = (runs.folder / "resumed/tensorboard").iterdir()
    steps = sorted(sorted({step for step, _, value in event_file.values(file.read_bytes()) if 5 in value}) for file in files)
    require(steps == [[1, 2, 3], [3, 4]], f"resumed: histograms of the steps {steps} in its files")
    text = (runs.folder / "resumed/metrics.jsonl").read_text(encoding="utf-8")
    steps = re.findall(r'"kind":"histograms","step":(\d+)', text)
    require(steps == ["1", "2", "3", "4"], f"resumed: records of the steps {steps}")


def check_not_finite(runs):
    said = runs.train("infinite", 1, ["--steps=2", "--histogram-every=2", "--precision=fp16", "--loss-scale=1e12"])
    found = re.search(r"warning: the histograms of step 2 leave out (\d+) values that are not finite: "
                      r"(\d+ of the gradient of \S+, ){3}and some of \d+ more\n", said)
    require(found, f"no word on what is not finite: {said}")
    require(runs.records("infinite", "histograms")[2]["not_finite"] == int(found.group(1)), "another number in the record")
    weights = runs.weights("infinite")
    histograms = {key: event_file.Histogram(message) for key, message in runs.histograms("infinite").items()}
    require(all(histograms[2, f"Parameters/{tensor}"].num == len(values) for tensor, values in weights.items()),
            "weights are left out, too")
    counted = sum(histogram.num for (_, tag), histogram in histograms.items() if tag.startswith("Gradients/"))
    require(counted + int(found.group(1)) == sum(map(len, weights.values())), "finite values and others are not all gradients")


def check_words(runs):
    runs.train("without", 1, ["--steps=2"])
    require(not runs.histograms("without") and not runs.records("without", "histograms"), "histograms that nobody asked for")
    for word in "0", "-2", "2.5", "often":
        said = runs.train("bad", 1, [f"--histogram-every={word}"], code=64)
        wanted = f"'histogram-every' is '{word}'; allowed: none, or an integer at least 1"
        require(said.count("\n") == 1 and wanted in said, f"{word}: {said}")


def main():
    program, ranks, launcher = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    with CheckedFolder() as folder:
        runs = Runs(program, launcher, folder)
        names = [check_layout(runs, ranks, words) for words in LAYOUTS[ranks]]
        check_determinism(runs, names[0], ranks, LAYOUTS[ranks][0])
        check_resumption(runs, ranks)
        check_not_finite(runs)
        check_words(runs)
    print(f"histograms in {len(names)} layouts of {ranks} ranks: as counted once more")


if __name__ == "__main__":
    main()
