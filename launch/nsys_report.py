"""What Nsight Systems recorded of each rank: how much of the GPU's time goes into kernels, and into copies from and to the host.

    lines = summary({0: "out/rank_0.nsys-rep"}, "out")
"""
import csv
import io
import re
import subprocess

from messages import shown
from tables import table_lines

ENDING = "nsys-rep"
MOST_KERNELS = 15
LONGEST_NAME = 70


class Unreadable(Exception):
    """One line for the user; `is_empty`: nothing was captured."""

    def __init__(self, text, is_empty=False):
        super().__init__(text)
        self.is_empty = is_empty


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
    command = ["nsys", "stats", "--force-export=true", "--format=csv", f"--report={report}", path]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise Unreadable(f"nsys cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        said = said or [f"exit code {done.returncode}"]
        raise Unreadable(f"nsys stats --report={report} cannot read {shown(path)}: {shown(said[-1])}")
    return table_of(done.stdout)


MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "\u03bcs": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}


def milliseconds(row):
    value, unit = column(row, "Total Time")
    return value * MILLISECONDS[unit]


DIRECTIONS = [("host to device", r"Host-to-Device|HtoD"), ("device to host", r"Device-to-Host|DtoH"), ("others", r"")]


def copies_by_direction(rows, value):
    sums = {direction: 0.0 for direction, _ in DIRECTIONS}
    for row in rows:
        direction = next(name for name, pattern in DIRECTIONS if re.search(pattern, row["Operation"]))
        sums[direction] += value(row)
    return sums


def summary(reports, _folder):
    """The tables; `reports`: {rank: path} of nsys-rep. Raises Unreadable."""
    if not reports:
        raise Unreadable("nsys wrote no report", is_empty=True)
    rows, kernels = [], {}
    for rank, path in reports.items():
        of_rank = stats(path, "cuda_gpu_kern_sum")
        in_kernels = sum(map(milliseconds, of_rank))
        copies = copies_by_direction(stats(path, "cuda_gpu_mem_time_sum"), milliseconds)
        sizes = copies_by_direction(stats(path, "cuda_gpu_mem_size_sum"), lambda row: column(row, "Total")[0])
        total = in_kernels + sum(copies.values())
        share = [round(100 * value / total, 2) if total else None for value in copies.values()]
        rows.append([rank, in_kernels, *copies.values(), share[0], share[1], sizes["host to device"]])
        for kernel in of_rank:
            kernels[kernel["Name"]] = kernels.get(kernel["Name"], 0.0) + milliseconds(kernel)
    if not any(sum(row[1:5]) for row in rows):
        raise Unreadable("nsys saw no work on a GPU", is_empty=True)
    all_kernels = sum(kernels.values())
    lines = ["Milliseconds of the GPUs' work, which may overlap:", "",
             *table_lines(["rank", "kernels", "host to device", "device to host", "other copies, memset", "% host to device",
                           "% device to host", "MB host to device"], rows)]
    if all_kernels:
        longest = sorted(kernels.items(), key=lambda item: -item[1])[:MOST_KERNELS]
        lines += ["", *table_lines(["kernel, all ranks", "ms", "% of kernels"],
                                   [[name[:LONGEST_NAME], time, round(100 * time / all_kernels, 1)] for name, time in longest])]
    return lines
