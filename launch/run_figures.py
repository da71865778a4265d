"""Figures of one run, as studies and reports compare them.

    from run_figures import most, phases_of, run_figures, steps_of
    run_figures(Run("runs/a"))["samples_per_s"]
"""
import statistics

from messages import shown
from run_folder import figure, part

PHASES = ["data_wait", "forward", "backward", "reduce", "optimizer"]  # which follow each other in a step
WAITING = "waiting"  # what is in none of them, in tables and plots; keys of records call it other or rest
CLASSES = ["parameters", "gradients", "optimizer", "communication", "packed_weights", "activations", "workspaces", "data",
           "untagged"]  # of memory


def energy_of(summary):
    """(joules a sample, of what) where the run could read counters, else (None, why not)."""
    joules = figure(summary, "energy", "joules_per_sample")
    if joules is not None:
        return joules, shown(part(summary, "energy").get("source", "energy counters"))
    power, rate = part(summary, "test", "power"), figure(summary, "test", "samples_per_s_spread", "median")
    watts = {name: figure(power, name, "watts") for name in power}
    known = [name for name in watts if watts[name] is not None]
    if known and rate:
        return sum(watts[name] for name in known) / rate, " and ".join(known)
    reasons = [str(part(power, name).get("missing")) for name in power]
    return None, shown(part(summary, "energy").get("unavailable") or "; ".join(reasons) or "the run has no figures")


def samples_per_s(run):
    """The summary's; else, of a run that has none, the median that it would have. None where that is not positive: a damaged one."""
    if run.summary:
        rate = figure(run.summary, "test", "samples_per_s_spread", "median") or figure(run.summary, "samples_per_s")
        return rate if rate is not None and rate > 0 else None
    known = [rate for rate in (figure(step, "samples_per_s") for step in run.counted_steps) if rate is not None]
    return statistics.median(known) if known else None


def most(run, key):
    """Of the memory of the rank that has most of it, in bytes; None where a rank does not tell."""
    values = [figure(rank, "memory", key) for rank in run.ranks]
    return max(values) if values and None not in values else None


def fullest(run):
    """The rank whose tensors held the most; None where that is not known."""
    ranks = [rank for rank in run.ranks if figure(rank, "memory", "total_peak") is not None and part(rank, "memory", "peak")]
    return max(ranks, key=lambda rank: rank["memory"]["total_peak"], default=None)


def furthest_off(predicted, measured):
    """(name, predicted, measured, difference as a share of all that was predicted) of what of two objects is furthest from its
    prediction; None where nothing has both."""
    pairs = [(name, figure(predicted, name), figure(measured, name)) for name in measured if name != "step"]
    known = [pair for pair in pairs if None not in pair]
    name, *both = max(known, key=lambda pair: abs(pair[2] - pair[1]), default=(None,))
    whole = sum(pair[1] for pair in known)
    return (name, *both, abs(both[1] - both[0]) / whole) if whole > 0 else None


def share(run, name):
    """Of the time of the steps, mean of the ranks; None where a rank does not tell."""
    values, steps = ([figure(rank, "seconds", key) for rank in run.ranks] for key in (name, "step"))
    return sum(values) / sum(steps) if steps and None not in values + steps and sum(steps) > 0 else None


def steps_of(run):
    """How many steps the ranks' seconds are of."""
    last = figure(run.summary, "steps")
    return last - run.first_step if last is not None else None


def phases_of(rank, steps):
    """A rank's seconds a step by phase, and what is in none of them; None where it has no such figures."""
    seconds = {phase: figure(rank, "seconds", phase) for phase in PHASES}
    whole = figure(rank, "seconds", "step")
    if not steps or whole is None or None in seconds.values():
        return None
    by_phase = {phase: value / steps for phase, value in seconds.items()}
    by_phase[WAITING] = max(whole / steps - sum(by_phase.values()), 0.0)
    return by_phase


def run_figures(run):
    """The figures of one run, None where it does not have one; times of phases are means of the ranks over all steps, those that
    warm up too, in seconds a step."""
    summary, phases = run.summary, [phases_of(rank, steps_of(run)) for rank in run.ranks]
    nodes, rate = figure(run.start, "layout", "nodes"), samples_per_s(run)
    step = figure(summary, "test", "seconds_spread", "step", "median")
    training_steps = figure(summary, "test", "whole_training", "steps")
    # Not the test's own duration of the whole training, in which its validations are.
    duration = training_steps * step if training_steps is not None and step is not None else None
    joules, source = energy_of(summary)
    return {"samples_per_s": rate,
            "step_seconds": step,
            "phases": {"other" if name == WAITING else name: statistics.fmean(of_rank[name] for of_rank in phases)
                       for name in phases[0]} if phases and all(phases) else None,
            "exposed_communication": share(run, "communication"),
            "tensor_bytes": most(run, "total_peak"), "process_bytes": most(run, "process_peak"),
            "allocator_bytes": most(run, "allocator_peak"),
            "nodes": nodes, "cores": figure(run.start, "machine", "cores"),
            "training_steps": training_steps, "training_seconds": duration,
            "node_hours": nodes * duration / 3600 if nodes and duration is not None else None,
            "node_hours_per_sample": nodes / rate / 3600 if nodes and rate else None,
            "predicted_step_seconds": figure(summary, "time", "predicted", "step"),
            "joules_per_sample": joules, "energy_of": source, "losses": [figure(step, "loss") for step in run.steps]}
