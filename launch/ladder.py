"""The rungs of an optimisation study: changes of a training, built-in ones and a user's own.

    for rung in chosen_rungs(["bf16", "zero"], ["clip:--clip-norm=1"], ranks=4, table=OptionTable(program)): ...
"""
import re
import shlex

from messages import USAGE, fail, shown
from program import Refused

BASELINE = "baseline"
KEPT = "kept"  # what a cumulative study has kept in the end
LAYOUT = ["dp", "tp", "pp"]
# Of each run by the study itself: the program's names, so that all of its spellings are found.
OWN_OPTIONS = {"config", "run-dir", "runs-root", "seed", "epochs", "steps", "test", "test-steps", "find-lr", "resume", "load",
               "keep-checkpoints", "checkpoint-dir", "local-batch-size"}
INSTEAD = {"config": "give --config before --", "seed": "give --first-seed and --seeds before --", "epochs": "give --epochs before --",
           "steps": "give --epochs before --, and -- --limit-nsamples N for short ones",
           "local-batch-size": "give --global-batch-size, which is the same in all layouts"}


class Rung:
    """A change: `words` of the command line by option; `on`: the rung that it stands on, whose options it has too; `text`: what it
    is; `times`: how many times the baseline's threads a rank has, None where they stay as they are; `is_own`: given by --set."""

    def __init__(self, name, words, text, on=None, times=None, is_own=False):
        self.name, self.words, self.text, self.on, self.times, self.is_own = name, words, text, on, times, is_own


SERIAL = ["--dp=1", "--tp=1", "--pp=1", "--precision=fp32", "--io-threads=0", "--deterministic", "--zero=0", "--no-tp-overlap",
          "--recompute=none", "--cuda-graph=off"]


def ladder(ranks):
    """(name, words and further arguments of a Rung) of all built-in ones."""
    def layout(**degrees):
        return [f"--{axis}={degrees.get(axis, 1)}" for axis in LAYOUT]

    return [("read-ahead", ["--io-threads=auto"], "samples are read in the background", None),
            ("prefetch", ["--prefetch-depth=8"], "eight batches are read ahead", "read-ahead"),
            ("stage", ["--stage-data=node"], "data files are copied to the node's memory first", None),
            ("bf16", ["--precision=bf16"], "half-precision parameters and activations", None),
            ("kernels", ["--no-deterministic"], "the fastest kernels by measuring", None),
            ("cuda-graph", ["--cuda-graph=auto"], "a step is recorded and started as a whole", None),
            ("threads", [], f"threads on the cores of {ranks} ranks, in one process", None, ranks),
            ("dp", layout(dp=ranks), f"{ranks} replicas", None, 1),
            ("zero", ["--zero=1"], "each replica keeps its share of the optimizer's state", "dp"),
            ("tp", layout(tp=ranks), f"each layer on {ranks} ranks", None, 1),
            ("tp-overlap", ["--tp-overlap"], "forward's sums are hidden", "tp"),
            ("pp", layout(pp=ranks), f"{ranks} pipeline stages", None, 1),
            ("recompute-selective", ["--recompute=selective"], "inputs of attention and GELU are computed again", None),
            ("recompute-full", ["--recompute=full"], "blocks are computed again", None)]


def own_rung(text, table, taken):
    """The rung of a --set: WORDS or NAME:WORDS."""
    named = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._=+-]{0,39}):(.*)", text, re.DOTALL)
    try:
        words = shlex.split(named[2] if named else text)
    except ValueError as error:
        fail(f"--set is '{shown(text)}', which is no list of words: {error}", USAGE)
    if not words:
        fail(f"--set is '{shown(text)}', without options; allowed: '--option=value ...' or 'NAME:--option=value ...'", USAGE)
    try:
        given = table.split(words)
    except Refused as error:
        fail(f"--set is '{shown(text)}': {error}", USAGE)
    for name, word in given.items():
        if name in OWN_OPTIONS:
            fail(f"--set is '{shown(text)}', but the study gives --{name} to each run; {INSTEAD.get(name, 'leave it out')}", USAGE)
        if name in LAYOUT and not re.fullmatch("[1-9][0-9]{0,6}", word.partition("=")[2]):
            fail(f"--set is '{shown(text)}', whose --{name} is no number of ranks; allowed: 1 or more", USAGE)
    # A value may hold what a folder's name may not.
    name = named[1] if named else re.sub(r"[^A-Za-z0-9._=+-]+", "_", "+".join(word.lstrip("-") for word in given.values()))[:40]
    if name in taken or not re.match(r"[A-Za-z0-9]", name):
        fail(f"--set is '{shown(text)}', whose name '{shown(name)}' is taken or is none; give 'NAME:--option=value ...'", USAGE)
    return Rung(name, given, "given by --set", is_own=True)


def chosen_rungs(names, own, ranks, table):
    """The rungs in their order, with those that others stand on. `names`: of built-in ones, None for all; `own`: texts of --set."""
    built_in = {name: Rung(name, table.split(words), *rest) for name, words, *rest in ladder(ranks)}
    for name in names or []:
        if name not in built_in:
            fail(f"--rungs has '{shown(name)}'; allowed: {', '.join(built_in)}; others by --set", USAGE)
    chosen = set(built_in if names is None else names)
    for name in names or []:
        if built_in[name].on and built_in[name].on not in chosen:
            print(f"{name} stands on {built_in[name].on}, which is measured too")
            chosen.add(built_in[name].on)
    rungs = [rung for name, rung in built_in.items() if name in chosen]
    for text in own:
        rungs.append(own_rung(text, table, {BASELINE, KEPT, *built_in, *(rung.name for rung in rungs)}))
    if not rungs:
        fail("there is no rung: give --set '--option=value ...', or --rungs", USAGE)
    return rungs
