"""Flame graph as one SVG file, which needs nothing beside itself: boxes upon the boxes that called them, as wide as their share.

    root = Box("rank 0")
    root.add([("forward", "phase"), ("gemm", "BLAS")], 3)
    write_svg("rank_0.svg", root, "Rank 0, steps 10 to 12")

Colours are of the library, the more frequent ones told apart in grey too; a box says its name, library, count and share where the
mouse rests on it.
"""
import html

from messages import shown

WIDTH, ROW, MARGIN, HEAD = 1200.0, 17.0, 10.0, 58.0
LETTER = 6.7  # width of one
NARROWEST = 0.4  # of a box that is drawn
COLOURS = {"phase": "#ffffff", "vit_hybrid": "#f5b971", "BLAS": "#7ba3d4", "oneDNN": "#2f5f9e", "LibTorch": "#dcedd3",
           "MPI and NCCL": "#a3262a", "OpenMP": "#7b2d8b", "HDF5 and zlib": "#e9dc8b", "CUDA": "#5f9ea0", "kernel": "#707070",
           "C library": "#cfcfcf", "others": "#efe3f2"}
DARK = {"oneDNN", "MPI and NCCL", "OpenMP", "kernel"}  # on which letters are white


class Box:
    """A function with those that it called; `count`: samples in it and in them. `kind`: a key of COLOURS."""

    def __init__(self, name, kind="phase"):
        self.name, self.kind, self.count, self.parts = name, kind, 0, {}

    def add(self, frames, count):
        """`frames`: (name, kind) from the caller to the called."""
        box = self
        box.count += count
        for frame in frames:
            box = box.parts.setdefault(frame, Box(*frame))
            box.count += count

    def depth(self, scale):
        return 1 + max((part.depth(scale) for part in self.parts.values() if part.count * scale >= NARROWEST), default=0)


def drawn(box, left, row, height, scale, total, lines):
    """Adds the box, at `left`, and those upon it."""
    width = box.count * scale
    if width < NARROWEST:
        return
    top = height - MARGIN - (row + 1) * ROW
    name, kind = html.escape(shown(box.name)), html.escape(box.kind)
    where = "" if box.kind == "phase" else f" ({kind})"
    letters = int((width - 6) / LETTER)
    text = shown(box.name).removeprefix("vit_hybrid::")
    text = text if len(text) <= letters else text[:letters - 1] + "\u2026" if letters > 3 else ""
    colour = ' fill="#fff"' if box.kind in DARK else ""
    lines.append(f'<g><title>{name}{where}: {box.count} samples, {100 * box.count / total:.2f} %</title>'
                 f'<rect x="{left:.2f}" y="{top:.1f}" width="{max(width - 0.3, 0.2):.2f}" height="{ROW - 1:.1f}" '
                 f'fill="{COLOURS[box.kind]}"/>'
                 + (f'<text x="{left + 3:.2f}" y="{top + 12:.1f}"{colour}>{html.escape(text)}</text>' if text else "") + "</g>")
    for part in sorted(box.parts.values(), key=lambda part: (-part.count, part.name)):
        drawn(part, left, row + 1, height, scale, total, lines)
        left += part.count * scale


def kinds_in(box):
    return {box.kind}.union(*map(kinds_in, box.parts.values()))


def write_svg(path, root, title):
    """Of a root with one sample or more. Raises OSError."""
    scale = (WIDTH - 2 * MARGIN) / root.count
    height = HEAD + root.depth(scale) * ROW + 2 * MARGIN
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" role="img" '
             f'aria-label="{html.escape(shown(title))}">',
             "<style>rect { stroke: #555; stroke-width: .4 } text { font: 11px monospace } "
             "g:hover > rect { stroke-width: 2 }</style>",
             f'<rect width="{WIDTH:.0f}" height="{height:.0f}" fill="#fff"/>',
             f'<text x="{MARGIN}" y="22" style="font: bold 15px sans-serif">{html.escape(shown(title))}</text>']
    left, kinds = MARGIN, kinds_in(root)
    for kind in filter(kinds.__contains__, COLOURS):
        lines.append(f'<rect x="{left:.1f}" y="36" width="13" height="13" fill="{COLOURS[kind]}"/>'
                     f'<text x="{left + 18:.1f}" y="47">{html.escape(kind)}</text>')
        left += 18 + len(kind) * LETTER + 16
    drawn(root, MARGIN, 0, height, scale, root.count, lines)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n</svg>\n")
