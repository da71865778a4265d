"""Tables of a terminal, and numbers as people read them; launch/html_page.py shows the same cells on a page.

    for line in table_lines(["run", "samples/s"], [["a", 109.98361], ["b", None]]):
        print(line)

A cell is a number, a text, or None for what is not known.
"""
import math

from messages import shown


def is_number(cell):
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def number_text(value, digits=5, is_padded=False):
    """A number with so many significant digits, without an exponent between 1e-4 and 1e9, and without zeros at its end unless
    `is_padded`; integers have all of theirs."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    size = math.floor(math.log10(abs(value))) if value else 0
    if not -5 < size < 9:
        return f"{value:.{digits - 1}e}"
    text = f"{value:.{max(digits - 1 - size, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text and not is_padded else text


def bytes_text(count, digits=3):
    """A number of bytes in the largest unit of which it has one: "9.64 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{number_text(float(count), digits)} {unit}"
        count /= 1024
    return ""


def cell_text(cell):
    """As it is shown; what is not known is a dash."""
    if cell is None:
        return "-"
    return number_text(cell) if is_number(cell) else shown(cell)


def is_right(column):
    """Whether a column stands to the right: it has numbers, and beside them nothing but what is not known."""
    return any(map(is_number, column)) and all(cell is None or is_number(cell) for cell in column)


def with_figures(columns):
    """(header, rows) of {name: cells}, without the columns in which nothing is known."""
    known = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    return list(known), [list(row) for row in zip(*known.values())]


def table_lines(header, rows):
    """Lines of columns as wide as they need to be: numbers to the right, texts to the left."""
    columns = list(zip(header, *rows))
    texts = [[cell_text(cell) for cell in column] for column in columns]
    widths = [max(map(len, column)) for column in texts]
    rights = [is_right(column[1:]) for column in columns]
    return ["  ".join(text.rjust(width) if right else text.ljust(width)
                      for text, width, right in zip(line, widths, rights)).rstrip() for line in zip(*texts)]
