"""Plots of a memory study, of its settings (with the run and the figures of each) or searches.

    page.plot(*plot_ranks(settings))
"""
from html_page import bar_style, label, legend, styles_of
from run_figures import CLASSES
from run_folder import figure, part
from run_plots import name_rows, rows_figure, stack

STATES = ["parameters", "gradients", "optimizer", "communication"]  # the classes that have closed forms
MOST_ROWS = 24  # of bars, as many as a plot has names beside each other
MiB = 1 << 20
# (what, marker, its values) of marks on a bar; open and of different shapes, and below each other, so that none hides another.
FORMS = [("closed form, without\npacked weights", "|", lambda forms: sum(forms[name] for name in STATES)),
         ("ZeRO-2 (not\nimplemented)", "D", lambda forms: forms["stage_2"]),
         ("ZeRO-3 (not\nimplemented)", "^", lambda forms: forms["stage_3"])]
PEAKS = [("tensors, at once", "D", lambda memory: figure(memory, "total_peak")),
         ("planned, at once", "|", lambda memory: figure(memory, "predicted_total")),
         ("allocator", "^", lambda memory: figure(memory, "allocator_peak") or None),
         ("growth of\nthe process", "o", lambda memory: grown(memory))]


def grown(memory):
    """By how much a rank's process grew since its start, where its libraries alone are; None where that is not known."""
    peak, start = figure(memory, "process_peak"), figure(memory, "process_start")
    return None if peak is None or start is None else peak - start


def of_first(count):
    return f" Shown are the first {MOST_ROWS} of {count} settings; the table has all." if count > MOST_ROWS else ""


def draw_bars(names, values, classes, marks, **labels):
    """A row for each name, with bars of classes upon each other and marks of [(what, marker, a value a row)] about its middle."""
    drawing, (axes, *_) = rows_figure(1.25 * len(names))
    stack(axes.barh, range(len(names)), {name: [row[name] for row in values] for name in classes}, styles_of(classes, CLASSES), height=0.8)
    places = [round(0.56 * index / (len(marks) - 1) - 0.28, 3) for index in range(len(marks))]
    for place, (text, marker, found) in zip(places, marks):
        known = [(value, row + place) for row, value in enumerate(found) if value is not None]
        if known:
            axes.plot(*zip(*known), linestyle="none", marker=marker, markersize=9 if marker == "|" else 5, markeredgecolor="black",
                      markerfacecolor="white", markeredgewidth=2.2 if marker == "|" else 1.0, label=text)
    name_rows(axes, [label(name) for name in names])
    axes.set(**labels)
    axes.set_xlim(left=0)
    legend(axes)
    return drawing


def plot_states(settings):
    """(bytes of a parameter by class, with the closed forms as marks; what the caption says of it)."""
    known = [s for s in settings if s.figures["bytes_per_parameter"]]
    shown = known[:MOST_ROWS]
    closed = [s.figures["closed_forms"] for s in shown]
    marks = [(text, marker, [forms and value(forms) for forms in closed]) for text, marker, value in FORMS]
    return draw_bars([s.label for s in shown], [s.figures["bytes_per_parameter"] for s in shown], [*STATES, "packed_weights"], marks,
                     xlabel="bytes a parameter", title="Model states, measured, beside the closed forms"), of_first(len(known))


def plot_ranks(settings):
    """(peaks by class of each rank, or of the fullest rank of each setting where there are too many; what the caption says of it)."""
    each = [(f"{s.label}, {found['rank']}" if s.ranks > 1 else s.label, found["classes"], part(rank, "memory"))
            for s in settings for found, rank in zip(s.figures["ranks"], s.run.ranks)]
    of_all = len(each) <= MOST_ROWS
    if not of_all:
        each = [(s.label, found["classes"], part(rank, "memory")) for s in settings if s.figures["ranks"]
                for found, rank in [max(zip(s.figures["ranks"], s.run.ranks), key=lambda pair: pair[0]["total_peak"] or 0)]]
    shown = each[:MOST_ROWS]
    scaled = [[value and value / MiB for value in map(of, (memory for *_, memory in shown))] for *_, of in PEAKS]
    drawing = draw_bars([name for name, *_ in shown], [{name: value / MiB for name, value in classes.items()} for _, classes, _ in shown],
                        CLASSES, [(text, marker, values) for (text, marker, _), values in zip(PEAKS, scaled)], xlabel="MiB",
                        title="Peaks by class, rank by rank" if of_all else "Peaks by class of the fullest rank")
    return drawing, ("" if of_all else " Of each setting the fullest rank.") + of_first(len(each))


def plot_largest(searches):
    shown = searches[:MOST_ROWS]
    drawing, (axes, *_) = rows_figure(len(shown))
    for index, (text, key) in enumerate((("confirmed", "largest"), ("by plan", "planned"))):
        axes.barh([row + 0.36 * (index - 0.5) for row in range(len(shown))], [found[key] or 0 for found in shown], 0.34, label=text,
                  **bar_style(index))
    name_rows(axes, [label(found["name"]) for found in shown])
    axes.set(xlabel=searches[0]["find"], title=f"Largest {searches[0]['find']}")
    legend(axes)
    return drawing, of_first(len(searches))
