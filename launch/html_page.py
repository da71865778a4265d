"""One HTML file with text, tables and plots, which needs nothing beside itself and opens offline.

    from html_page import Page, bar_style, label, legend, line_style, new_figure

    figure = new_figure(height=3.0)
    axes = figure.subplots()
    axes.plot([1, 2, 4], [1.0, 1.9, 3.5], label=label("run a"), **line_style(0))
    axes.set(xlabel="ranks", ylabel="speed-up", title="Strong scaling")
    legend(axes)

    page = Page("Scaling study of weather-d12", maker="launch/scaling_study")
    page.heading("Speed-up")
    page.warning("ranks outnumber cores")
    page.table(["ranks", "samples/s"], [[1, 10.0], [2, None]])
    page.plot(figure, "Medians of three runs.")
    page.save("study.html")                 # raises OSError; FileExistsError where another's file is there

Plots are matplotlib's SVG. All texts of the methods may be a user's: they are escaped. Texts within a figure that come from a
user go through label(). Lines and bars are told apart by more than their colours: by line styles and markers, or hatches.
"""
import html
import io
import os
import re
import xml.etree.ElementTree as ElementTree

from messages import shortened, shown
from python_with import PLOTS, modules
from tables import cell_text, is_right

matplotlib, *_ = modules(*PLOTS)

WIDTH = 9.0  # of a page's plots, in inches
TITLE_HEIGHT = 0.4  # of a title above a subplot with the margins of its figure, in inches
LONG_TEXT = 48  # characters of a cell, from which on its column has lines that are broken, so that the next ones are seen

# From dark to light, so that neighbours differ in grey too.
COLOURS = ["#173f73", "#e07b1a", "#2e8540", "#b9a11e", "#7b2d8b", "#4fb3d9", "#a3262a", "#8a8a8a"]
LINES = ["-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
FILLS = ["#3b6ea5", "#f2c48d", "#9ccfa4", "#e9e3a6", "#c9a3d3", "#cfe8f5", "#e0908f", "#d9d9d9", "#8fa3b5", "#ffffff"]
HATCHES = ["", "//", "\\\\", "--", "xx", "", "||", "++", "/", "\\"]  # without dots and circles, which make a page large

MARK = '<meta name="generator" content="vit_hybrid '  # of every page, near its beginning
STYLE = """
body { font: 15px/1.5 sans-serif; color: #1a1a1a; background: #fff; max-width: 1080px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.7em; } h2 { margin-top: 2em; border-bottom: 1px solid #ccc; font-size: 1.3em; } h3 { margin-top: 1.6em; }
h1, h2, h3, p, figcaption { overflow-wrap: anywhere; }
p.warning { border-left: 4px solid #b8620a; background: #fff6e5; padding: .5em 1em; }
div.table { overflow: auto; max-height: 38em; } table { border-collapse: collapse; font-size: 13px; margin: 1em 0; }
caption { text-align: left; color: #555; padding-bottom: .3em; }
th, td { padding: .25em .5em; border-bottom: 1px solid #e0e0e0; text-align: left; vertical-align: top; }
td { white-space: nowrap; } th { vertical-align: bottom; } th:first-child, td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 9em; }
th.n:first-child, td.n:first-child { min-width: 0; white-space: nowrap; }
th.long, td.long { white-space: normal; overflow-wrap: anywhere; min-width: 16em; max-width: 30em; }
@media print { div.table { overflow: visible; max-height: none; } th, td { white-space: normal; } figure { break-inside: avoid; } }
th { border-bottom: 2px solid #888; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1em 0; } figure svg { width: 100%; height: auto; display: block; } figcaption { color: #555; font-size: 14px; }
footer { margin-top: 3em; color: #777; font-size: 13px; }
"""

if matplotlib:  # not there for --help
    matplotlib.rcdefaults()  # the same picture whatever the user's settings
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "vit_hybrid", "font.size": 10.0, "axes.titlesize": 11.0, "axes.grid": True,
        "grid.color": "0.9", "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
        "axes.formatter.limits": (-4, 6), "legend.frameon": False, "legend.fontsize": 9.0, "legend.handlelength": 3.0,
        "hatch.linewidth": 0.6, "lines.linewidth": 1.4, "lines.markersize": 5.0})


def new_figure(height=3.4, width=WIDTH):
    """A figure of so many inches, whose subplots are laid out so that nothing overlaps: figure.subplots(...)."""
    figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
    matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
    return figure


def line_style(index, points=0):
    """Keywords of axes.plot() for the index-th line of a plot; of lines of many points about ten have a marker."""
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": LINES[index % len(LINES)],
            "marker": MARKERS[index % len(MARKERS)], "markevery": max(points // 10, 1)}


def bar_style(index):
    """Keywords of axes.bar() for the index-th class of a plot with at most ten."""
    return {"facecolor": FILLS[index % len(FILLS)], "hatch": HATCHES[index % len(HATCHES)], "edgecolor": "0.25",
            "linewidth": 0.5}


def styles_of(names, order):
    """{name: bar_style()}, by the place of each name in `order`, so that a class looks alike on all pages, whichever of them a plot
    has; names that are not there come after."""
    places = list(dict.fromkeys([*order, *names]))
    return {name: bar_style(places.index(name)) for name in names}


def label(text, longest=40):
    """A user's text for a title, a legend or a tick: never read as a formula, cut in its middle where it is too long."""
    text = shortened(shown(text), longest)
    # A legend leaves out what begins with a line.
    return (" " + text if text.startswith("_") else text).replace("$", r"\$")


def legend(axes, is_stack=False, of=None):
    """To the right of the subplot, over nothing; where there is something to tell apart. The figure becomes as high as it needs.
    `is_stack`: of bars upon each other, whose order from above it has. `of`: another subplot, whose lines it is of."""
    handles, texts = (of or axes).get_legend_handles_labels()
    if handles:
        order = -1 if is_stack else 1
        made = axes.legend(handles[::order], texts[::order], loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
        figure = axes.figure
        needed = made.get_window_extent().height / figure.dpi + TITLE_HEIGHT
        figure.set_figheight(max(figure.get_figheight(), needed))


def short_numbers(text):
    """With hundredths of a point, of which no eye sees a part."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", text)


def svg_text(figure, name, number):
    """The figure as an <svg> element; `number` makes its ids the only ones of their page, `name` is what readers aloud say."""
    written = io.BytesIO()
    figure.savefig(written, format="svg")
    for prefix, space in (("", "http://www.w3.org/2000/svg"), ("xlink", "http://www.w3.org/1999/xlink")):
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(written.getvalue())
    for metadata in root.findall("{*}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key in ("d", "points", "transform", "x", "y"):
                element.set(key, short_numbers(value))
            elif key == "id":
                element.set(key, f"plot{number}-{value}")
            elif key.endswith("}href"):
                element.set(key, value.replace("#", f"#plot{number}-", 1))
            else:
                element.set(key, re.sub(r"url\(#", f"url(#plot{number}-", value))
    del root.attrib["width"], root.attrib["height"]  # the page's width decides; viewBox has the shape
    root.attrib.update({"role": "img", "aria-label": name})
    return ElementTree.tostring(root, encoding="unicode")


class Page:
    """What is added stands below what is there."""

    def __init__(self, title, maker):
        """`maker`: the script, as a user calls it."""
        self.title, self.maker = title, maker
        self.parts, self.plots = [], 0

    def add(self, tag, text, attributes=""):
        self.parts.append(f"<{tag}{attributes}>{html.escape(shown(text))}</{tag}>")

    def heading(self, text, level=2):
        self.add(f"h{level}", text)

    def paragraph(self, text):
        self.add("p", text)

    def warning(self, text):
        self.add("p", text, ' class="warning"')

    def table(self, header, rows, caption=""):
        """Cells as those of tables.py."""
        def kind(column):
            is_long = max(len(cell_text(cell)) for cell in column) > LONG_TEXT
            return ' class="n"' if is_right(column) else ' class="long"' if is_long else ""
        kinds = [kind(column) for column in zip(*rows)] or [""] * len(header)

        def line(tag, cells):
            return "<tr>" + "".join(f"<{tag}{kind}>{html.escape(cell_text(cell))}</{tag}>"
                                    for cell, kind in zip(cells, kinds)) + "</tr>"
        head = f"<caption>{html.escape(shown(caption))}</caption>" if caption else ""
        self.parts.append("\n".join([f'<div class="table"><table>{head}<thead>{line("th", header)}</thead><tbody>',
                                     *(line("td", row) for row in rows), "</tbody></table></div>"]))

    def plot(self, figure, caption=""):
        """A figure of matplotlib, with what is to be known of it below; its first title is its name."""
        self.plots += 1
        name = next((axes.get_title() for axes in figure.axes if axes.get_title()), f"plot {self.plots}")
        below = f"<figcaption>{html.escape(shown(caption))}</figcaption>" if caption else ""
        self.parts.append(f"<figure>{svg_text(figure, name, self.plots)}{below}</figure>")

    def text(self):
        title = html.escape(shown(self.title))
        return "\n".join([
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'{MARK}{html.escape(self.maker)}">',
            # Whatever a name may hold: nothing is loaded, and nothing runs.
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>", *self.parts,
            f"<footer>Written by vit_hybrid {html.escape(self.maker)}.</footer>\n</body></html>\n"])

    def save(self, path, force=False):
        """Writes the file, under a temporary name first: whoever looks finds the old one or the new one, whole. Replaces only
        a page of vit_hybrid unless `force`. Raises OSError, FileExistsError where something else is there."""
        if not force and os.path.lexists(path):
            there = FileExistsError(17, "something is there that is no page of vit_hybrid", path)
            if not os.path.isfile(path):  # a FIFO would be waited for
                raise there
            with open(path, "rb") as old:
                if MARK.encode() not in old.read(1000):
                    raise there
        temporary = f"{path}.{os.getpid()}.part"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(self.text())
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.remove(temporary)
