"""Plots of an optimisation study, of its steps (a rung beside what it is compared with) and settings.

    page.plot(plot_differences(steps, least=1.0))
"""
import math

from comparison import BETTER, QUANTITIES, WORSE
from html_page import label, legend, line_style, new_figure
from run_plots import name_rows, rows_figure

MARKS = {BETTER: "o", WORSE: "X"}  # of differences that count


def plot_differences(steps, least):
    """A column for each quantity that is known, a row for each rung: the pairs of each seed, their mean and its interval. `least`: the
    smallest difference that counts, in per cent. None where nothing is known."""
    known = [key for key in QUANTITIES if any(step.found[key]["difference"] is not None for step in steps if step.found)]
    if not known:
        return None
    drawing, subplots = rows_figure(1.15 * len(steps), len(known))
    for axes, key in zip(subplots, known):
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.axvspan(-least, least, color="0.9", linewidth=0)
        places, wide = [0.0], []  # of means and pairs; (row, end) of intervals
        for row, step in enumerate(steps):
            found, before, after = step.found.get(key), step.before.values(key), step.after.values(key)
            if not found or found["difference"] is None:
                continue
            mean, half = 100 * found["difference"], 100 * (found["half_width"] or 0)
            pairs = [100 * (after[seed] / before[seed] - 1) for seed in before if before[seed] and after.get(seed) is not None]
            axes.plot(pairs, [row + 0.22] * len(pairs), linestyle="none", marker="|", color="0.45", markersize=7)
            places, wide = [*places, mean, *pairs], [*wide, (row, mean - half), (row, mean + half)]
            counts = found["verdict"] in MARKS
            axes.errorbar(mean, row, xerr=half or None, marker=MARKS.get(found["verdict"], "s"), markersize=8 if counts else 5,
                          color="#173f73" if counts else "0.45", markerfacecolor="#173f73" if counts else "white",
                          markeredgecolor="white" if counts else "0.45", capsize=3)
        room = 0.5 * (max(places) - min(places)) or 1.0
        left, right = (max(min(places) - room, min([0, *(end for _, end in wide)]) - 0.2 * room),
                       min(max(places) + room, max([0, *(end for _, end in wide)]) + 0.2 * room))
        axes.set_xlim(left, right)
        for row, end in wide:
            if not left <= end <= right:  # else the others would be too narrow to be seen
                axes.plot(max(min(end, right), left), row, marker="<" if end < left else ">", color="0.3", clip_on=False)
        axes.set(title=QUANTITIES[key].name, xlabel="difference [%]")
        axes.locator_params(axis="x", nbins=4)
    name_rows(subplots[0], [label(step.rung.name, 24) for step in steps])
    return drawing


def plot_losses(settings):
    """Training and validation loss by epoch: means, and from the least to the most of the seeds."""
    drawing = new_figure(height=4.0)
    for axes, key, title in zip(drawing.subplots(1, 2, sharex=True, sharey=True), ("train_losses", "valid_losses"), ("Training", "Validation")):
        for index, setting in enumerate(settings):
            by_epoch = losses_by_epoch(setting, key)
            if by_epoch:
                epochs = list(by_epoch)
                means = [sum(by_epoch[epoch]) / len(by_epoch[epoch]) for epoch in epochs]
                axes.errorbar([epoch + 0.2 * (index / len(settings) - 0.5) for epoch in epochs], means,
                              yerr=[[mean - min(by_epoch[epoch]) for mean, epoch in zip(means, epochs)],
                                    [max(by_epoch[epoch]) - mean for mean, epoch in zip(means, epochs)]],
                              capsize=2, label=label(setting.name, 28), **line_style(index))
        axes.set(title=f"{title} loss by epoch", xlabel="epoch", ylabel="loss")
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlim(-0.4, max((epoch for setting in settings for run in setting.runs.values() for key in ("train_losses", "valid_losses")
                             for epoch, _ in run[key]), default=1) + 0.4)
    legend(axes)
    return drawing


def losses_by_epoch(setting, key):
    """{epoch: finite losses of the seeds}."""
    found = {}
    for run in setting.runs.values():
        for epoch, loss in run[key]:
            if epoch is not None and math.isfinite(loss):
                found.setdefault(epoch, []).append(loss)
    return found


def plot_turns(settings):
    """Samples/s of every run at the time when it ran."""
    timed = [(setting, [(run["time"], run["samples_per_s"]) for run in setting.runs.values() if run["time"] and run["samples_per_s"]])
             for setting in settings]
    first = min((time for _, points in timed for time, _ in points), default=None)
    if first is None:
        return None
    drawing = new_figure(height=3.6)
    axes = drawing.subplots()
    for index, (setting, points) in enumerate(timed):
        if points:
            axes.plot(*zip(*sorted(((time - first) / 60, rate) for time, rate in points)), label=label(setting.name, 28),
                      **{**line_style(index), "linewidth": 0.7})
    axes.set(title="Speed of each run", xlabel="minutes since the first run began", ylabel="samples/s")
    axes.set_ylim(bottom=0)
    legend(axes)
    return drawing
