"""What Nsight Systems recorded of each rank: how much of the GPU's time goes into kernels, and into copies from and to the host.

    lines = summary({0: "out/rank_0.nsys-rep"}, "out")
"""
import collections
import csv
import io
import re

from messages import shown
from perf_report import Unreadable, printed
from tables import table_lines

ENDING = "nsys-rep"
MOST_KERNELS = 15
LONGEST_NAME = 70


def table_of(text):
    """Rows of the CSV table in what nsys stats prints, as dictionaries, with notes before and behind it left out; none where it
    says that there is nothing of the kind."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith(("Time (%)", '"Time (%)"', "Total (", '"Total ('))), None)
    if first is None:
        return []
    last = next((i for i in range(first, len(lines)) if not lines[i].strip()), len(lines))
    return list(csv.DictReader(io.StringIO("\n".join(lines[first:last]))))


def column(row, beginning):
    """The number in the column whose heading begins so, with its unit in brackets behind: (number, unit)."""
    for heading, value in row.items():
        found = re.fullmatch(re.escape(beginning) + r" \((.*)\)", heading or "")
        if found:
            return float(value.replace(",", "")), found[1]
    raise Unreadable(f"a table of nsys stats has no column '{beginning} (...)': {shown(', '.join(map(str, row)))}")


def stats(path, report):
    return table_of(printed("nsys", "stats", "--force-export=true", "--format=csv", f"--report={report}", path))


MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "\u03bcs": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}


def milliseconds(row):
    value, unit = column(row, "Total Time")
    if unit not in MILLISECONDS:
        raise Unreadable(f"a table of nsys stats has times in '{shown(unit)}', not in one of {', '.join(MILLISECONDS)}")
    return value * MILLISECONDS[unit]


DIRECTIONS = [("host to device", r"Host-to-Device|HtoD"), ("device to host", r"Device-to-Host|DtoH"), ("others", r"")]


def copies_by_direction(rows, value):
    sums = {direction: 0.0 for direction, _ in DIRECTIONS}
    for row in rows:
        direction = next(name for name, pattern in DIRECTIONS if re.search(pattern, row["Operation"]))
        sums[direction] += value(row)
    return sums


def read_rank(path):
    """(the cells of its row, {kernel: milliseconds}). Raises Unreadable."""
    kernels = collections.Counter()
    for row in stats(path, "cuda_gpu_kern_sum"):
        kernels[row["Name"]] += milliseconds(row)
    copies = copies_by_direction(stats(path, "cuda_gpu_mem_time_sum"), milliseconds)
    sizes = copies_by_direction(stats(path, "cuda_gpu_mem_size_sum"), lambda row: column(row, "Total")[0])
    in_kernels = sum(kernels.values())
    total = in_kernels + sum(copies.values())
    share = [round(100 * value / total, 2) if total else None for value in copies.values()]
    return [in_kernels, *copies.values(), share[0], share[1], sizes["host to device"]], kernels


def summary(reports, _folder):
    """The tables; `reports`: {rank: path} of nsys-rep. Raises Unreadable."""
    if not reports:
        raise Unreadable("nsys wrote no report", is_empty=True)
    rows, kernels, unreadable = [], collections.Counter(), []
    for rank, path in reports.items():
        try:
            cells, of_rank = read_rank(path)
        except Unreadable as error:
            unreadable.append(error)
            continue
        rows.append([rank, *cells])
        kernels.update(of_rank)
    if not any(sum(row[1:5]) for row in rows):
        raise unreadable[0] if unreadable else Unreadable("nsys saw no work on a GPU", is_empty=True)
    all_kernels = sum(kernels.values())
    lines = ["Milliseconds of the GPUs' work, which may overlap:", "",
             *table_lines(["rank", "kernels", "host to device", "device to host", "other copies, memset", "% host to device",
                           "% device to host", "MB host to device"], rows)]
    if all_kernels:
        lines += ["", *table_lines(["kernel, all ranks", "ms", "% of kernels"],
                                   [[name[:LONGEST_NAME], time, round(100 * time / all_kernels, 1)] for name, time in
                                    kernels.most_common(MOST_KERNELS)])]
    return lines + [line for error in unreadable for line in ("", str(error))]
