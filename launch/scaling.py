"""Arithmetic of a scaling study: speed-up, efficiency, turning point, differences of losses.

A setting is a layout at a number of ranks with a global batch; here it has `units` (nodes, or ranks of one node), `ranks`,
`threads` of each rank, `batch`, `name`, `modes` (strong, weak) and `runs`, of which each is what run_figures.run_figures()
returns and the number of its repeat.
"""
import itertools
import statistics

# Largest difference of two losses, relative to the loss, that rounding in another order makes (docs/studies.md).
TOLERANCES = {"fp64": 1e-9, "fp32": 1e-3, "tf32": 5e-3, "bf16": 5e-3, "fp16": 5e-3}


def middle_run(setting):
    """The run whose figures are the point's, so that they agree with each other: that with the median of the samples/s, of an even
    number the slower of the two in the middle."""
    runs = [run for run in setting.runs if run["samples_per_s"]] or setting.runs
    return sorted(runs, key=lambda run: run["samples_per_s"] or 0)[(len(runs) - 1) // 2] if runs else None


def middle(setting, key):
    run = middle_run(setting)
    return run and run[key]


# ---- arithmetic of scaling -------------------------------------------------------------------------------------------


def rates(setting):
    return [run["samples_per_s"] for run in setting.runs if run["samples_per_s"]]


def gain(setting, base):
    """(speed-up, efficiency), each (of the medians, least and most that any run of the one and any of the other make)."""
    speed, own, other = (1.0, 1.0, 1.0), rates(setting), rates(base)
    if setting is not base:
        speed = middle(setting, "samples_per_s") / middle(base, "samples_per_s"), min(own) / max(other), max(own) / min(other)
    return speed, tuple(value * base.units / setting.units for value in speed)


def curve_of(settings, mode):
    """Of each number of ranks the setting with the most samples/s, in growing order, with speed-up and efficiency against the
    smallest: [(setting, speed-up, efficiency)], of which the latter are (value, least, most)."""
    best = {}
    for setting in settings:
        if mode in setting.modes and rates(setting):
            other = best.get(setting.units)
            if other is None or middle(setting, "samples_per_s") > middle(other, "samples_per_s"):
                best[setting.units] = setting
    if not best:
        return []
    return [(best[units], *gain(best[units], best[min(best)])) for units in sorted(best)]


def turning_point(curve, least):
    """The first two neighbours of which the larger brings less than the share `least` of the speed that its ranks would bring if
    they were as fast as the smaller one's: (smaller setting, larger one, share); None where there are none."""
    for (small, *_), (large, *_) in zip(curve, curve[1:]):
        gain = middle(large, "samples_per_s") / middle(small, "samples_per_s") - 1
        share = gain / (large.units / small.units - 1)
        if share < least:
            return small, large, share
    return None


def loss_differences(settings, precision):
    """By global batch, how far the losses of any two of its runs are apart: {batch: {"runs", "steps", "largest", "where", "step",
    "tolerance", "agree"}}; largest is relative to the smaller loss, None where one is missing or zero."""
    out = {}
    for batch in sorted({setting.batch for setting in settings}):
        runs = {f"{setting.name}-r{run['repeat']}": run["losses"] for setting in settings if setting.batch == batch
                for run in setting.runs}
        if len(runs) < 2:
            continue
        found = {"runs": len(runs), "steps": max(map(len, runs.values())), "largest": 0.0, "where": None, "step": None,
                 "tolerance": TOLERANCES.get(precision, TOLERANCES["bf16"])}
        for step, losses in enumerate(itertools.zip_longest(*runs.values()), 1):
            named = list(zip(losses, runs))
            unknown = [name for loss, name in named if not loss]
            if unknown:
                found.update(largest=None, where=unknown[0], step=step)
                break
            (low, lowest), (high, highest) = min(named), max(named)
            difference = (high - low) / min(map(abs, losses))
            if difference > found["largest"]:
                found.update(largest=difference, where=f"{lowest} and {highest}", step=step)
        out[batch] = {**found, "agree": found["largest"] is not None and found["largest"] <= found["tolerance"]}
    return out


def is_crowded(setting):
    """Whether the threads of its ranks outnumbered the cores of a node."""
    threads = setting.ranks * setting.threads
    return any(run["cores"] and run["nodes"] and threads / run["nodes"] > run["cores"] for run in setting.runs)


def spread(values):
    return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 else None
