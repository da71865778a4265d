"""Plots of runs of one model, for a page: curves over steps and epochs, and bars of time, memory, communication and energy;
how the machine was used.

    from run_plots import add_plots
    add_plots(page, runs)       # of run_folder.Run, whose labels tell them apart

What no run has is left out. Of many runs the first ones are shown by name: the captions say which.
"""
import math
import warnings

import numpy

from html_page import bar_style, label, legend, line_style, matplotlib, new_figure, styles_of
from run_figures import CLASSES, PHASES, WAITING, fullest, phases_of, steps_of
from run_folder import figure, mean_over_channels, part
from tables import bytes_text, number_text

MOST_CURVES = 10  # runs with a line of their own; further ones are grey
MOST_BARS = 40  # runs with a bar
MOST_DETAILED = 10  # runs whose ranks are shown
MOST_RANKS = 64  # with a bar of their own
MOST_POINTS = 400  # of a curve
PREDICTED = {"alpha": 0.4}  # on a class's style: paler than what was measured
GREY = {"color": "0.75", "linewidth": 0.8, "marker": ".", "zorder": 1}
LOG_RATIO = 30  # between a curve's largest and smallest value, from which on its axis is logarithmic
MiB = 1 << 20


def of_first(runs, most):
    return f" Shown are the first {most} of {len(runs)} runs." if len(runs) > most else ""


# ---- curves ----------------------------------------------------------------------------------------------------------


def thinned(x, y):
    """At most MOST_POINTS points: means of as many values each, with their least and largest. Values that are not known are
    left out, and a point without any is NaN."""
    size = max(-(-len(x) // MOST_POINTS), 1)
    if size == 1:
        return x, y, None, None
    padded = [numpy.concatenate([values, numpy.full(-len(x) % size, numpy.nan)]).reshape(-1, size) for values in (x, y)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a point without any value
        return (numpy.nanmean(padded[0], axis=1), numpy.nanmean(padded[1], axis=1), numpy.nanmin(padded[1], axis=1),
                numpy.nanmax(padded[1], axis=1))


def draw_curves(axes, runs, points_of, scale="linear"):
    """`points_of(run)`: its list of (x, y), where None is not known. `scale`: linear, from zero, or loss (logarithmic where
    values are far apart). Returns whether there was anything to draw."""
    known = []
    others = 0
    for index, run in enumerate(runs):
        points = [(x, math.nan if y is None else y) for x, y in points_of(run) if x is not None]
        values = [y for _, y in points if not math.isnan(y)]
        if not values:
            continue
        known += [min(values), max(values)]
        x, y, low, high = thinned(*numpy.array(points, dtype=float).T)
        if index >= MOST_CURVES:
            others += 1
            axes.plot(x, y, label=f"{len(runs) - MOST_CURVES} others" if others == 1 else None,
                      **{**GREY, "marker": "." if len(x) == 1 else None})
            continue
        style = line_style(index, len(x))
        axes.plot(x, y, label=label(run.label, 24), zorder=2, **style)
        if low is not None:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0, zorder=1)
    if scale == "loss" and known and min(known) > 0 and max(known) > LOG_RATIO * min(known):
        axes.set_yscale("log")
    if scale == "from zero" and known:
        axes.set_ylim(0, 1.05 * max(known))
    return bool(known)


def number_places(*subplots):
    """Axes of whole numbers, also where one place is all there is."""
    for axes in subplots:
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        left, right = axes.get_xlim()
        if right - left < 1:
            axes.set_xlim(left - 1, right + 1)


def curve(page, runs, points_of, labels, caption, height=3.4, scale="linear"):
    """A plot of one figure of each run. `labels`: title, xlabel and ylabel."""
    drawn = new_figure(height)
    axes = drawn.subplots()
    if not draw_curves(axes, runs, points_of, scale):
        return
    axes.set(**labels)
    number_places(axes)
    if len(runs) > 1:
        legend(axes)
    longest = max(len(points_of(run)) for run in runs)
    if longest > MOST_POINTS:
        caption += f" Of more than {MOST_POINTS} points means are drawn, and about them from the least to the largest value."
    if len(runs) > MOST_CURVES:
        caption += f" The first {MOST_CURVES} of {len(runs)} runs have names."
    page.plot(drawn, caption.strip())


def two_curves(page, runs, left, right, caption, scale="linear", reference=None, **keywords):
    """Two plots beside each other: `left` and `right` are (points_of, labels, level), where a level that is known is drawn as
    a line with the name `reference`."""
    drawn = new_figure(3.2)
    both = drawn.subplots(1, 2, **keywords)
    are_drawn = [draw_curves(axes, runs, points_of, scale) for axes, (points_of, *_) in zip(both, (left, right))]
    if not any(are_drawn):
        return
    for axes, is_drawn, (_, labels, *level) in zip(both, are_drawn, (left, right)):
        axes.set(**labels)
        if not is_drawn:
            axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", color="0.5")
        if level and level[0] is not None:
            axes.axhline(level[0], color="0.4", linestyle=(0, (1, 1)), linewidth=1.0, label=reference)
    number_places(*both)
    if len(both[1].get_legend_handles_labels()[0]) > 1 or len(runs) > 1:
        legend(both[1] if are_drawn[1] else both[0])
    page.plot(drawn, caption + (f" The first {MOST_CURVES} of {len(runs)} runs have names." if len(runs) > MOST_CURVES else ""))


def step_axis(runs):
    """What curves of training go along, as (label, function of a run to one value a step): steps, or where batches differ the
    samples that were trained with, because a step is another piece of the training then; None from where a step is missing."""
    batches = {figure(run.start, "layout", "global_batch_size") for run in runs}
    if len(batches) == 1:
        return "step", lambda run: [step["step"] for step in run.steps]

    def samples(run):
        places, total = [], 0
        for number, step in enumerate(run.steps, 1):
            count = figure(step, "samples")
            total = total + count if step["step"] == number and None not in (total, count) else None
            places.append(total)
        return places
    return "samples trained with", samples


def persistence(runs, score):
    """That of all validations; None where it is not the same in all of them."""
    values = {mean_over_channels(record.get(f"persistence_{score}")) for run in runs for record in run.valids}
    known = [value for value in values if value is not None]
    return known[0] if len(known) == len(values) > 0 and math.isclose(min(known), max(known), rel_tol=1e-6) else None


def add_curves(page, runs):
    axis, places = step_axis(runs)
    along = (" Batches differ, so steps do not compare: the axis counts samples, where the records have all steps before."
             if axis != "step" else "")

    def of_steps(key):
        return lambda run: list(zip(places(run), (figure(step, key) for step in run.steps)))

    def of_training(key):  # a range test is no part of one, and its last losses and rates would be all that is seen
        return lambda run: of_steps(key)(run) if run.kind != "range test" else []

    def of_epochs(value):
        return lambda run: [(figure(record, "epoch"), value(record)) for record in run.epochs]

    def of_valids(value):
        return lambda run: [(figure(record, "epoch"), value(record)) for record in run.valids]

    def is_known(*figures):
        return any(value is not None for points_of in figures for run in runs for _, value in points_of(run))

    def loss(record):
        return figure(record, "loss")

    if is_known(of_training("loss"), of_epochs(loss), of_valids(loss)):
        page.heading("Losses", 3)
    curve(page, runs, of_training("loss"), {"title": "Training loss of each step", "xlabel": axis, "ylabel": "loss"},
          "Mean over the samples of the step." + along, scale="loss")
    two_curves(page, runs, (of_epochs(loss),
                            {"title": "Training loss by epoch", "xlabel": "epoch", "ylabel": "loss"}),
               (of_valids(loss),
                {"title": "Validation loss by epoch", "xlabel": "epoch", "ylabel": "loss"}),
               "Means over the samples of the epoch, and of the validation after it; epoch 0 is the untrained network.",
               scale="loss", sharex=True, sharey=True)
    if any("rmse" in record for run in runs for record in run.valids):
        two_curves(page, runs, (of_valids(lambda r: mean_over_channels(r.get("rmse"))),
                                {"title": "RMSE by epoch", "xlabel": "epoch", "ylabel": "RMSE [standard deviations]"},
                                persistence(runs, "rmse")),
                   (of_valids(lambda r: mean_over_channels(r.get("acc"))),
                    {"title": "ACC by epoch", "xlabel": "epoch", "ylabel": "ACC"}, persistence(runs, "acc")),
                   "Of validations, means over the channels.", reference="persistence")
    elif any("top1" in record for run in runs for record in run.valids):
        two_curves(page, runs, *((of_valids(lambda r, key=key: None if figure(r, key) is None else 100 * r[key]),
                                  {"title": f"{name} by epoch", "xlabel": "epoch", "ylabel": f"{name} [%]"})
                                 for key, name in (("top1", "Top-1"), ("top5", "Top-5"))),
                   "Of validations, shares of the samples.")
    if is_known(of_training("lr"), of_steps("samples_per_s")):
        page.heading("Learning rate and throughput", 3)
    curve(page, runs, of_training("lr"), {"title": "Learning rate", "xlabel": axis, "ylabel": "learning rate"}, along, 2.6)
    curve(page, runs, of_steps("samples_per_s"), {"title": "Throughput", "xlabel": axis, "ylabel": "samples/s"},
          "Samples of each step over its time." + along, scale="from zero")


# ---- bars ------------------------------------------------------------------------------------------------------------


def stack(bar, places, values, styles, is_named=True, **keywords):
    """Bars of several classes upon each other: `values[name]` has one a place; those of nothing but zeros are left out."""
    base = numpy.zeros(len(places))
    for name, heights in values.items():
        heights = numpy.array(heights, dtype=float)
        if heights.any():
            side = "left" if bar.__name__ == "barh" else "bottom"
            text = label(name.replace("_", " ")) if is_named else None
            edges = {"linewidth": 0.1} if len(places) > MOST_RANKS // 4 else {}
            bar(places, heights, label=text, **{side: base}, **{**styles[name], **edges}, **keywords)
            base = base + heights


def rows_figure(rows, subplots=1, **keywords):
    """For horizontal bars, the first row on top, as high as its rows need."""
    drawn = new_figure(1.3 + 0.36 * max(rows, 2))
    drawn.get_layout_engine().set(wspace=0.06)  # between the last number of an axis and the first one of the next
    axes = drawn.subplots(1, subplots, squeeze=False, sharey=True, **keywords)[0]
    for each in axes:
        each.grid(axis="y", visible=False)
    return drawn, axes


def name_rows(axes, names):
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)


def shown_ranks(ranks, weight):
    """(number, rank) of each, or of many the one with the most of each of MOST_RANKS groups that follow each other."""
    size = -(-len(ranks) // MOST_RANKS)
    groups = [ranks[i:i + size] for i in range(0, len(ranks), size)]
    return [max(group, key=weight) for group in groups], size


def ranks_axes(title, ylabel, ranks):
    drawn = new_figure(3.2)
    axes = drawn.subplots()
    axes.set(title=title, xlabel="rank", ylabel=ylabel)
    every = -(-len(ranks) // 16)
    axes.set_xticks(range(0, len(ranks), every), [str(rank["rank"]) for rank in ranks[::every]])
    axes.set_xlim(-0.8, len(ranks) - 0.2)
    axes.grid(axis="x", visible=False)
    return drawn, axes


def of_groups(size, total, what):
    return (f" Of {total} ranks, groups of {size} neighbours have a bar each: that of the rank with the {what} of its group."
            if size > 1 else "")


# ---- time ------------------------------------------------------------------------------------------------------------


def add_time_of_runs(page, runs):
    """Bars of the runs beside each other. Returns the runs whose times are known, and the phases' styles."""
    styles = styles_of([*PHASES, WAITING], PHASES)
    timed = [run for run in runs if run.ranks and all(phases_of(rank, steps_of(run)) for rank in run.ranks)]
    if not timed:
        return timed, styles
    page.heading("Time", 3)
    if len(timed) > 1:
        shown = timed[:MOST_BARS]
        by_run = [[phases_of(rank, steps_of(run)) for rank in run.ranks] for run in shown]
        drawn, axes = rows_figure(len(shown))
        stack(axes[0].barh, range(len(shown)), {phase: [numpy.mean([rank[phase] for rank in run]) for run in by_run]
                                                for phase in styles}, styles, height=0.7)
        name_rows(axes[0], [label(run.label, 32) for run in shown])
        axes[0].set(title="Time of a step by phase", xlabel="seconds a step, mean of the ranks")
        legend(axes[0])
        page.plot(drawn, "Means over the steps." + of_first(timed, MOST_BARS))
    return timed, styles


def add_time(page, runs):
    timed, styles = add_time_of_runs(page, runs)
    for run in timed[:MOST_DETAILED]:
        add_time_by_rank(page, run, styles)
    if len(timed) > MOST_DETAILED:
        page.paragraph(of_first(timed, MOST_DETAILED).strip())
    add_predicted_time(page, [run for run in runs if part(run.summary, "time")])


def add_time_by_rank(page, run, styles):
    ranks, size = shown_ranks(run.ranks, lambda rank: rank["seconds"]["step"])
    drawn, axes = ranks_axes(f"Time of a step by phase and rank: {label(run.label)}", "seconds a step", ranks)
    by_rank = [phases_of(rank, steps_of(run)) for rank in ranks]
    stack(axes.bar, range(len(ranks)), {phase: [rank[phase] for rank in by_rank] for phase in styles}, styles, width=0.8)
    blocked = [figure(rank, "seconds", "communication") for rank in ranks]
    if None not in blocked:
        axes.plot(range(len(ranks)), [value / steps_of(run) for value in blocked], linestyle="", marker="D", markersize=4,
                  color="black", markerfacecolor="white", label="blocked in\ncommunication")
    legend(axes, is_stack=True)
    page.plot(drawn, "Means over the steps. Blocked in communication: in whichever phase, so that it is part of the bars."
              + of_groups(size, len(run.ranks), "longest steps"))


def add_predicted_time(page, runs):
    """Seconds a step by phase: predicted beside measured."""
    for run in runs[:MOST_DETAILED]:
        sides = {side: part(run.summary, "time", side) for side in ("predicted", "measured")}
        phases = dict.fromkeys(phase for side in sides.values() for phase in side)
        phases = [*(phase for phase in phases if phase not in ("step", "messages")), *(["step"] if "step" in phases else [])]
        if not phases:
            continue
        drawn, axes = rows_figure(len(phases) * 1.4)
        draw_pairs(axes[0], {side: [figure(found, phase) for phase in phases] for side, found in sides.items()}, seconds_text)
        name_rows(axes[0], [label(phase.replace("_", " ")) for phase in phases])
        messages = figure(sides["predicted"], "messages")
        axes[0].set(title=f"Time of a step, predicted and measured: {label(run.label)}", xlabel="seconds a step")
        legend(axes[0])
        page.plot(drawn, "Measured is the median step, shared among the phases as their means are; time by phase has the means "
                  "themselves." + (f" Of forward and backward {seconds_text(messages)} were predicted to be messages." if messages else ""))


def seconds_text(value):
    return f"{number_text(float(value), 3, is_padded=True)} s"


def draw_pairs(axes, sides, text, unit=1):
    """Two bars a row, `sides` = {predicted: values, measured: values}, each with its value in words; what is not known has
    none. `unit`: of the axis."""
    for offset, index, (side, values) in zip((-0.2, 0.2), (1, 0), sides.items()):
        draw_rows(axes, values, text, unit, offset, height=0.38, label=side, **bar_style(index))
    axes.margins(x=0.25)


def draw_rows(axes, values, text, unit=1, offset=0.0, **keywords):
    known = [(row + offset, value) for row, value in enumerate(values) if value is not None]
    if known:
        bars = axes.barh([row for row, _ in known], [value / unit for _, value in known], **keywords)
        axes.bar_label(bars, [text(value) for _, value in known], padding=3, fontsize=8)


# ---- memory ----------------------------------------------------------------------------------------------------------


def classes_of(runs):
    """Names of all classes, those that hold the most first, so that they are the lowest of a stack."""
    most = {}
    for run in runs:
        for rank in run.ranks:
            for side in ("predicted", "peak"):
                for name in part(rank, "memory", side):
                    most[name] = max(most.get(name, 0), figure(rank, "memory", side, name) or 0)
    return sorted(most, key=lambda name: -most[name])


def draw_memory(bar, ranks, styles, size, width):
    """Predicted and measured stacks beside each other, with a mark at what all classes held at one time. `width`: the keyword
    of a bar's breadth."""
    has_prediction = any(part(rank, "memory", "predicted") for rank in ranks)
    axes = bar.__self__
    sides = [("predicted", "predicted_total", -size / 4), ("peak", "total_peak", size / 4)] if has_prediction else [
        ("peak", "total_peak", 0)]
    is_flat, longest = bar.__name__ == "barh", 0.0
    for side, total, offset in sides:
        places = numpy.arange(len(ranks)) + offset
        values = {name: [(figure(rank, "memory", side, name) or 0) / MiB for rank in ranks] for name in styles}
        looks = {name: {**style, **PREDICTED} for name, style in styles.items()} if side == "predicted" else styles
        stack(bar, places, values, looks, is_named=side == "peak", **{width: 0.92 * size / len(sides)})
        totals = [(place, figure(rank, "memory", total) / MiB) for place, rank in zip(places, ranks)
                  if figure(rank, "memory", total) is not None]
        points = list(zip(*totals)) if totals else [[], []]
        longest = max([longest, *points[1], *map(sum, zip(*values.values()))])
        axes.plot(*(points[::-1] if is_flat else points), linestyle="", marker="|" if is_flat else "_", color="black",
                  markersize=max(12 * size * min(1, 16 / len(ranks)) if not is_flat else 10, 3), markeredgewidth=2.0,
                  label="all at\none time" if side == "peak" else None)
    if has_prediction:
        axes.add_patch(matplotlib.patches.Rectangle((0, 0), 0, 0, facecolor="0.4", label="pale:\npredicted", **PREDICTED))
    (axes.set_xlim if is_flat else axes.set_ylim)(0, 1.06 * (longest or 1))  # the mark at the longest bar's end is seen whole
    return has_prediction


MEMORY_CAPTION = ("Tensors. A bar stacks the most that each class held, which need not coincide; the thick line is the most "
                  "that all held at one time")


def add_memory_of_runs(page, runs):
    """Bars of the runs beside each other. Returns the runs whose memory is known, and the classes' styles."""
    counted = [run for run in runs if fullest(run)]
    if not counted:
        return counted, {}
    styles = styles_of(classes_of(counted), CLASSES)
    page.heading("Memory", 3)
    if len(counted) > 1:
        shown = counted[:MOST_BARS]
        drawn, axes = rows_figure(len(shown) * 1.3)
        has_prediction = draw_memory(axes[0].barh, [fullest(run) for run in shown], styles, 0.8, "height")
        name_rows(axes[0], [label(run.label, 32) for run in shown])
        axes[0].set(title="Memory of the fullest rank by class", xlabel="MiB")
        legend(axes[0])
        page.plot(drawn, MEMORY_CAPTION + (" (upper bar: predicted, lower: measured)." if has_prediction else ".") +
                  of_first(counted, MOST_BARS))
    return counted, styles


def add_memory(page, runs):
    counted, styles = add_memory_of_runs(page, runs)
    for run in counted[:MOST_DETAILED]:
        ranks, size = shown_ranks(run.ranks, lambda rank: figure(rank, "memory", "total_peak") or 0)
        drawn, axes = ranks_axes(f"Memory by class and rank: {label(run.label)}", "MiB", ranks)
        has_prediction = draw_memory(axes.bar, ranks, styles, 0.8, "width")
        legend(axes, is_stack=True)
        page.plot(drawn, MEMORY_CAPTION + (" (left bar of a rank: predicted, right: measured)." if has_prediction else ".") +
                  of_groups(size, len(run.ranks), "most"))
    if len(counted) > MOST_DETAILED:
        page.paragraph(of_first(counted, MOST_DETAILED).strip())


# ---- communication and energy ----------------------------------------------------------------------------------------


def axes_of(run):
    """[axis, ranks, bytes a step predicted, counted, seconds blocked a step] of each axis, of rank 0; None is not known. An axis of
    one rank is left out: its operations are counted, and move nothing."""
    steps, found = steps_of(run), run.summary.get("communication")
    rows = []
    for entry in found if isinstance(found, list) and steps else []:
        if figure(entry, "ranks") == 1:
            continue
        counted = [figure(operation, "bytes") for operation in part(entry, "rank_0").values()]
        blocked = figure(entry, "blocked_seconds")
        name = entry.get("axis") if isinstance(entry, dict) else None
        rows.append([str(name), figure(entry, "ranks"), figure(entry, "predicted_per_step", "bytes"),
                     sum(counted) / steps if counted and None not in counted else None,
                     blocked / steps if blocked is not None else None])
    return rows


def add_communication(page, runs):
    shown = [run for run in runs if axes_of(run)]
    if not shown:
        return
    page.heading("Communication", 3)
    for run in shown[:MOST_DETAILED]:
        names, ranks, predicted, counted, blocked = zip(*axes_of(run))
        drawn, (left, right) = rows_figure(len(names) * 1.4, 2, width_ratios=[3, 2])
        draw_pairs(left, {"predicted": predicted, "counted": counted}, bytes_text, MiB)
        draw_rows(right, blocked, seconds_text, height=0.5, **bar_style(3))
        right.margins(x=0.3)
        name_rows(left, [label(f"{name}, {size} ranks" if size is not None else name) for name, size in zip(names, ranks)])
        left.set(title=f"Bytes of a step by axis: {label(run.label, 24)}", xlabel="MiB a step")
        right.set(title="Blocked", xlabel="seconds a step")
        legend(right, of=left)
        page.plot(drawn, "Of rank 0. Predicted is a training step; counted is the whole run, validations and agreements too, "
                  "over its steps.")
    if len(shown) > MOST_DETAILED:
        page.paragraph(of_first(shown, MOST_DETAILED).strip())


def add_energy(page, runs):
    shown = [run for run in runs if part(run.summary, "energy", "stages")][:MOST_BARS]
    if not shown:
        return
    page.heading("Energy", 3)

    def of_stages(key):
        return [{stage: figure(values, key) for stage, values in part(run.summary, "energy", "stages").items()}
                for run in shown]
    add_energy_bars(page, shown, of_stages("joules"), "Energy by stage", "joules")
    add_energy_bars(page, shown, of_stages("mean_watts"), "Mean power by stage", "watts", are_parts=False)
    add_energy_bars(page, shown, [{WAITING if phase == "rest" else phase: figure(run.summary, "energy", "within_step", phase)
                                   for phase in part(run.summary, "energy", "within_step")} for run in shown],
                    "Energy within steps by phase", "joules", "By the shares of the phases in the time of the steps.")


def add_energy_bars(page, runs, by_run, title, unit, caption="", are_parts=True):
    """`by_run`: {name: number} of each run. Parts stand upon each other, others beside each other."""
    names = list(dict.fromkeys(name for values in by_run for name in values))
    values = {name: [found.get(name) or 0.0 for found in by_run] for name in names}
    if not any(map(any, values.values())):
        return
    drawn, axes = rows_figure(len(runs) * (1 if are_parts else len(names) / 2))
    if are_parts:
        stack(axes[0].barh, range(len(runs)), values, styles_of(names, PHASES), height=0.7)
    else:
        height = 0.8 / len(names)
        for index, name in enumerate(names):
            axes[0].barh(numpy.arange(len(runs)) + height * (index + 0.5) - 0.4, values[name], height=0.9 * height,
                         label=label(name), **bar_style(index))
    name_rows(axes[0], [label(run.label, 32) for run in runs])
    axes[0].set(title=title, xlabel=unit)
    legend(axes[0])
    page.plot(drawn, caption)


# ---- use of the machine ----------------------------------------------------------------------------------------------

# (of what, key, title, unit, how much of the file's unit that is)
USES = [("node", "cpu_percent", "Processors at work", "% of all", 1), ("gpu", "utilisation_percent", "GPU at work", "% of the time", 1),
        ("node", "memory_bytes", "Memory of the node", "GiB", 1 << 30), ("gpu", "memory_bytes", "Memory of the GPU", "GiB", 1 << 30),
        ("processors", "watts", "Power of the processors", "W", 1), ("gpu", "watts", "Power of the GPU", "W", 1)]


def add_usage(page, runs):
    """How the first node of each run was used, second by second."""
    samples = {run: run.usage for run in runs}

    def points_of(what, key, unit):
        def points(run):
            start = samples[run][0]["time"] if samples[run] else None
            values = [(sample["time"] - start, figure(sample, what, key)) for sample in samples[run]]
            return [(seconds, value / unit if value is not None else None) for seconds, value in values]
        return points
    shown = [use for use in USES if any(figure(sample, *use[:2]) is not None for run in runs for sample in samples[run])]
    if not shown:
        return
    page.heading("Use of the machine", 3)
    for pair in (shown[i:i + 2] for i in range(0, len(shown), 2)):
        drawn = new_figure(3.2)
        for axes, (what, key, title, unit, size) in zip(drawn.subplots(1, len(pair), squeeze=False)[0], pair):
            draw_curves(axes, runs, points_of(what, key, size), "from zero")
            axes.set(title=title, xlabel="seconds since the first sample", ylabel=unit)
            if len(runs) > 1:
                legend(axes)
        page.plot(drawn, "Of the first rank's node and its GPU, by all programs there.")


def range_points(run):
    """Rows of learning rate, loss and smoothed loss of a range test, without those of a loss that is no number."""
    rows = numpy.array(part(run.summary, "find_lr").get("curve") or [], dtype=float).reshape(-1, 3)
    return rows[numpy.isfinite(rows).all(axis=1)]


def add_range_test(page, runs):
    """The losses of --find-lr along the rate, as they were and smoothed, and where they fell fastest."""
    tested = [run for run in runs if len(range_points(run))]
    if not tested:
        return
    page.heading("Learning-rate range test", 3)
    drawn = new_figure(3.4)
    axes = drawn.subplots()
    first, least = [], []
    for index, run in enumerate(tested[:MOST_CURVES]):
        rates, losses, smoothed = range_points(run).T
        style = line_style(index, len(rates))
        axes.plot(rates, losses, color=style["color"], alpha=0.35, linewidth=0.8)
        axes.plot(rates, smoothed, label=label(run.label, 24), **style)
        first.append(smoothed[0])
        least.append(min(*losses, *smoothed))
        steepest = figure(run.summary, "find_lr", "steepest")
        if steepest is not None:
            axes.axvline(steepest, color=style["color"], linestyle=(0, (1, 1)), linewidth=1.0,
                         label=f"falls fastest:\n{number_text(steepest, 3)}")
    # Up to several times the first loss, where the test ends, the dip would not be seen.
    fall = (max(first) - min(least)) or abs(max(first)) or 1.0
    axes.set(title="Loss while the learning rate rises", xlabel="learning rate", ylabel="loss", xscale="log",
             ylim=(min(least) - 0.1 * fall, max(first) + 0.4 * fall))
    legend(axes)
    page.plot(drawn, "Pale: the loss of each step; thick: smoothed. The axis ends above the first loss; the test goes on until the "
              "smoothed loss has come to four times its least." + of_first(tested, MOST_CURVES))


def add_plots(page, runs):
    add_range_test(page, runs)
    add_curves(page, runs)
    add_time(page, runs)
    add_memory(page, runs)
    add_communication(page, runs)
    add_energy(page, runs)
    add_usage(page, runs)
