#!/usr/bin/env python3
"""Whether two builds of the program behave alike, bit by bit: for changes that move code and shall change nothing.

    same_behaviour.py OLD NEW LAUNCHER...   (whose last word takes the number of ranks; 8 are used at most)

- training: 24 short runs (both tasks, five layouts, types, dropout, recompute, optimizers, schedules); the checkpoints
  after 5 steps must have the same bits by `checkpoint diff`, and the reports before the first step the same words.
- checkpoints: NEW goes on from OLD's checkpoint in another layout, evaluates it and forecasts with it, as OLD does.
- texts: the help of all commands, the list of options, resolved configurations and what is said of bad command lines,
  but for the versions.

First it makes sure that it can tell: OLD with a learning rate that is another in its last digits must be seen to differ.
Exit code: 0 where all is the same, 1 where something differs, with a line for each.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile

SMALL_MODEL = ["--steps", "5", "--deterministic", "--threads", "1", "--checkpoint-every", "5", "--patch-size", "4",
               "--global-batch-size", "8", "--micro-batch-size", "1", "--depth", "4", "--embed-dim", "64", "--num-heads", "4"]
SMALL = [*SMALL_MODEL[:8], *SMALL_MODEL[10:], "--generated-samples", "32", "--generated-valid-samples", "8"]
CLASSIFY = ["--task", "classify", "--data", "builtin"]
LAYOUTS = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2)]
RUNS = [(layout, words) for words in ([], CLASSIFY) for layout in LAYOUTS] + [
    ((2, 1, 2), ["--precision", "bf16"]),
    ((1, 2, 1), ["--precision", "bf16", "--grad-dtype", "half", *CLASSIFY]),
    ((1, 2, 2), ["--precision", "fp16"]),
    ((2, 2, 1), ["--precision", "fp64"]),
    ((2, 2, 1), ["--dropout", "0.1", "--drop-path", "0.2"]),
    ((1, 2, 2), ["--dropout", "0.1", "--precision", "bf16", "--mixup", "0.4", *CLASSIFY]),
    ((1, 2, 1), ["--recompute", "selective"]),
    ((1, 1, 2), ["--recompute", "full", "--dropout", "0.1"]),
    ((2, 2, 1), ["--optimizer", "adamw", "--weight-decay", "0.1", "--clip-norm", "1"]),
    ((2, 1, 1), ["--optimizer", "sgd", "--nesterov", *CLASSIFY]),
    ((2, 2, 1), ["--optimizer", "lamb", "--weight-decay", "0.1"]),
    ((2, 1, 2), ["--optimizer", "lars", *CLASSIFY]),
    ((2, 1, 2), ["--schedule", "gpipe", "--zero", "0"]),
    ((3, 1, 1), ["--global-batch-size", "9", "--order", "dp-tp-pp"]),
]
COMMANDS = [[], ["train"], ["data"], ["data", "generate"], ["data", "generate", "images"], ["data", "inspect"],
            ["data", "repack"], ["data", "stats"], ["evaluate"], ["forecast"],
            ["checkpoint", "inspect"], ["checkpoint", "verify"], ["checkpoint", "diff"], ["checkpoint", "export"],
            ["checkpoint", "import"], ["options"]]
CONFIGURATIONS = [[], CLASSIFY, ["--preset", "weather-short"], ["--precision", "bf16", "--lr", "1e-3"],
                  ["--hidden-size", "64", "--num-layers", "2", "--train-iters", "7"]]
BAD = [["--depht", "3"], ["--depth", "0"], ["--depth", "16777216"], ["--tp", "3", "--num-heads", "4"],
       ["--pp", "3", "--depth", "4"], ["--embed-dim", "30", "--num-heads", "4"], ["--lr", "nan"], ["--lr", "1e400"],
       ["--precision", "fp8"], ["--optimizer", "adan"], ["--global-batch-size", "0"],
       ["--image-size", "31x64", "--patch-size", "32"], ["--config", "absent.yaml"], ["--train-data", "absent"],
       ["--preset", "weather"], ["--resume", "latest", "--run-dir", "absent"], ["--warmup", "99", "--steps", "5"],
       ["--data", "builtin", "--train-data", "x"], ["--local-batch-size", "3", "--global-batch-size", "8"],
       ["evaluate"], ["evaluate", "absent.h5"], ["forecast", "absent.h5"], ["checkpoint", "verify", "absent.h5"],
       ["checkpoint", "frob"], ["data", "inspect", "absent.h5"], ["data", "stats"],
       ["--embed-dim", "16777216"], ["--device", "cuda:9"], ["--threads", "4096"], ["words"]]


class Comparison:
    def __init__(self, old, new, launcher, work):
        self.programs = {"old": old, "new": new}
        self.launcher, self.work = launcher, work
        self.num_compared = self.num_different = 0
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("VIT_HYBRID_")}
        self.environment["XDG_CACHE_HOME"] = os.path.join(work, "cache")

    def run(self, which, ranks, *words):
        launch = [*self.launcher, str(ranks)] if ranks > 0 else []
        folder = os.path.join(self.work, which)
        os.makedirs(folder, exist_ok=True)
        return subprocess.run([*launch, self.programs[which], *map(str, words)], cwd=folder, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)

    def trained(self, which, layout, words, name, size=None):
        """The checkpoint's path, and what is said before the first step."""
        dp, tp, pp = layout
        ended = self.run(which, dp * tp * pp, *(size or SMALL), "--dp", dp, "--tp", tp, "--pp", pp, "--run-dir", name, *words)
        if ended.returncode != 0:
            sys.exit(f"same_behaviour: {which} {name} {words}: exit code {ended.returncode}: {ended.stderr}")
        report = ended.stdout.partition("  run folder")[0]
        return os.path.join(self.work, which, name, "checkpoints", "step-000000005.h5"), report

    def same(self, what, old, new):
        self.num_compared += 1
        if old == new:
            return
        self.num_different += 1
        print(f"DIFFERS: {what}")
        for line in sorted(set(old.splitlines()) ^ set(new.splitlines()))[:8]:
            print(f"  {'old' if line in old else 'new'}: {line[:200]}")

    def difference(self, old, new):
        """By the checkpoint tool of the new program; empty where there is none."""
        ended = self.run("new", 0, "checkpoint", "diff", "--all", old, new)
        if ended.returncode not in (0, 1):
            sys.exit(f"same_behaviour: checkpoint diff: exit code {ended.returncode}: {ended.stderr}")
        return ended.stdout if ended.returncode == 1 else ""

    def can_tell(self):
        first, _ = self.trained("old", (1, 1, 1), ["--lr", "0.001"], "told-1")
        other, _ = self.trained("old", (1, 1, 1), ["--lr", "0.001000001"], "told-2")
        if not self.difference(first, other):
            sys.exit("same_behaviour: it does not see another learning rate")

    def training(self):
        for i, (layout, words) in enumerate(RUNS):
            name = f"run-{i}"
            what = f"training {'x'.join(map(str, layout))} {' '.join(words)}"
            old, old_report = self.trained("old", layout, words, name)
            new, new_report = self.trained("new", layout, words, name)
            self.same(what + ": checkpoint", "", self.difference(old, new))
            self.same(what + ": report", old_report, new_report)
            print(f"[{i + 1}/{len(RUNS)}] {what}", flush=True)

    def checkpoints(self):
        """A checkpoint of the old program: read, gone on from, evaluated and forecast with by both."""
        fields, images = os.path.join(self.work, "fields"), os.path.join(self.work, "images")
        self.done("old", 1, "data", "generate", "--out", fields, "--train-years", 1, "--valid-years", 1,
                  "--steps-per-year", 20, "--height", 16, "--width", 32)
        self.done("old", 1, "data", "generate", "images", "--out", images, "--train-images", 32, "--valid-images", 16,
                  "--size", 32)
        uses = {"fields": (fields + "/valid", ["--train-data", fields + "/train", "--valid-data", fields + "/valid",
                                               "--stats", fields + "/stats", "--limit-nsamples", 16]),
                "images": (images + "/valid.h5", ["--task", "classify", "--train-data", images + "/train.h5",
                                                  "--valid-data", images + "/valid.h5"])}
        for name, (data, words) in uses.items():
            start, _ = self.trained("old", (2, 1, 1), words, name, SMALL_MODEL)
            results = {}
            for which in self.programs:
                on = [*SMALL_MODEL, *words, "--steps", 7, "--checkpoint-every", 7, "--tp", 2, "--run-dir", name + "-on"]
                used = ["--checkpoint", start, "--data", data, "--threads", 1, "--deterministic"]
                self.done(which, 2, *on, "--resume", start)
                calls = [[2, "evaluate", *used, "--tp", 2, "--out", name + ".json"],
                         [0, "checkpoint", "inspect", "--all", start], [0, "checkpoint", "verify", start],
                         [1, "checkpoint", "export", start, "--out", name + ".safetensors", "--names",
                          "nersc" if name == "fields" else "timm"]]
                if name == "fields":
                    calls.append([2, "forecast", *used, "--pp", 2, "--steps", 3, "--out", "forecast.h5"])
                results[which] = "\n".join(self.done(which, *call) for call in calls)
                outputs = [name + ".json", name + ".safetensors"] + (["forecast.h5"] if name == "fields" else [])
                for output in outputs:
                    results[which] += f"{output}: {self.digest(which, output)}\n"
            self.same(f"use of a checkpoint of {name}", results["old"], results["new"])
            ends = [os.path.join(self.work, which, name + "-on", "checkpoints", "step-000000007.h5")
                    for which in self.programs]
            self.same(f"resumed {name}", "", self.difference(*ends))

    def digest(self, which, output):
        with open(os.path.join(self.work, which, output), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def done(self, which, ranks, *words):
        code, text = self.told(which, ranks, *words)
        if code != 0:
            sys.exit(f"same_behaviour: {which} {' '.join(map(str, words))}: exit code {code}: {text}")
        return text

    def told(self, which, ranks, *words):
        """Exit code, output and messages, without what may differ from run to run."""
        ended = self.run(which, ranks, *words)
        text = ended.stdout + ended.stderr
        text = re.sub(r"commit \w+(\+changes)?", "commit", text)
        text = re.sub(r".*% done, .*\n?", "", text)  # told now and then
        text = re.sub(r"[0-9.e+-]+( ms| s|/s| sec| samples/s|  samples/sec)\b", r"_\1", text)
        return ended.returncode, text

    def texts(self):
        for command in COMMANDS:
            self.same("help of " + " ".join(command), str(self.told("old", 0, *command, "--help")[1]),
                      str(self.told("new", 0, *command, "--help")[1]))
        self.same("options", self.told("old", 0, "options")[1], self.told("new", 0, "options")[1])
        for words in CONFIGURATIONS:
            self.same("configuration of " + " ".join(words), self.told("old", 0, *words, "--print-config")[1],
                      self.told("new", 0, *words, "--print-config")[1])
        for words in BAD:
            old, new = self.told("old", 0, *words), self.told("new", 0, *words)
            if 0 in (old[0], new[0]):
                sys.exit(f"same_behaviour: {words} is taken for good")
            self.same("said of " + " ".join(words), f"{old[0]}\n{old[1]}", f"{new[0]}\n{new[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["training", "checkpoints", "texts"])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("launcher", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        comparison = Comparison(os.path.abspath(chosen.old), os.path.abspath(chosen.new), chosen.launcher, work)
        comparison.can_tell()
        for part in ("texts", "training", "checkpoints"):
            if chosen.only in (None, part):
                getattr(comparison, part)()
        print(f"{comparison.num_compared} compared, {comparison.num_different} differ")
        sys.exit(1 if comparison.num_different else 0)


if __name__ == "__main__":
    main()
