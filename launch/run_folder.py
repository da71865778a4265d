"""What a run has left in its folder: records (metrics.jsonl), summary, configuration; docs/running.md has their keys.

    from run_folder import Run, RunError, records_of
    run = Run("runs/a")                 # raises RunError where that is no run
    run.state, run.steps[-1]["loss"], figure(run.summary, "speed", "percent_of_roof")

Runs of any version: what is not there is None, an empty list or an empty object, never a guess.
"""
import errno
import functools
import json
import os
import re
import stat

from messages import shown

COMING_AGAIN = ("step", "epoch", "valid", "checkpoint", "histograms")  # what a run that goes on after an earlier step writes anew
RANKS_FILE, MANY_RANKS = "ranks.h5", 64  # of a run of more ranks than that
OF_ALL_SUMMARIES = ("steps", "interrupted", "communication", "ranks")  # whatever the run
CLOCK_SLACK = 1  # s that a file's time may be behind the program's: it is the file system's
LARGEST = 1e200  # of figures; with larger ones the scales of matplotlib overflow


class RunError(Exception):
    """One line for the user."""


def figure(record, *keys):
    """The number at keys below each other; None where there is none that is finite as a double and can be drawn."""
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    is_number = isinstance(record, (int, float)) and not isinstance(record, bool)
    return record if is_number and abs(record) <= LARGEST else None  # an integer may be larger than any double


def part(record, *keys):
    """The object at keys below each other; an empty one where there is none."""
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record if isinstance(record, dict) else {}


def mean_over_channels(figures):
    """Of an object with a number by channel; None where one is missing."""
    values = [figure(figures, name) for name in figures] if isinstance(figures, dict) else []
    return sum(values) / len(values) if values and None not in values else None


def opened(path):
    """A file of a run for reading, as text. Raises OSError, also for one that would be waited for, such as a FIFO."""
    def open_at_once(name, flags):
        descriptor = os.open(name, flags | os.O_NONBLOCK)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # open() itself says what a folder is
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return descriptor
    return open(path, encoding="utf-8", errors="replace", opener=open_at_once)


def rank_rows(path, table="ranks"):
    """The objects of a table of ranks.h5, as summary.json has them of fewer ranks. Raises ImportError, OSError, KeyError,
    ValueError."""
    import h5py
    rows = []

    def add(name, column):
        if not isinstance(column, h5py.Dataset):
            return
        values = column[()].tolist()
        if "texts" in column.attrs:
            names = sorted((key for key in column.attrs if key.split(".")[0] == "texts"), key=lambda key: int(key[6:] or 0))
            texts = b"".join(bytes(column.attrs[key]) for key in names).decode().split("\n")
            values = [json.loads(text) if text.startswith(("[", "{")) else text for text in map(texts.__getitem__, values)]
        rows.extend({} for _ in range(len(values) - len(rows)))
        *groups, key = name.split("/")
        for row, value in zip(rows, values):
            for group in groups:
                row = row.setdefault(group, {})
            row[key] = value
    opened(path).close()  # h5py would wait for a FIFO
    try:
        with h5py.File(path, "r") as file:
            file[table].visititems(add)
    except (AttributeError, IndexError, RecursionError, TypeError) as error:
        raise ValueError(f"its '{table}' are no tables of ranks ({error})") from error
    return rows


def lines_of(path, is_record, say):
    """The objects of a file with one a line that is_record() takes; `say` is given one line on those that are none. Raises OSError."""
    others = []
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict) and is_record(record):
                yield record
            else:
                others.append(number)
    if len(others) == 1:
        say(f"{shown(path)}, line {others[0]} is no record (half a line of a run that was killed?): left out")
    elif others:
        say(f"{shown(path)}: {len(others)} lines are no records, the first is line {others[0]}: left out")


def records_of(path, say):
    """All records of a metrics.jsonl in the order of the file, each step, epoch and validation once: of those that are there
    twice the last, and nothing that a part of the run had done after the step that a later part went on from. `say` is given
    one line on lines that are no records. Raises OSError."""
    records, is_new = [], False
    for record in lines_of(path, lambda record: isinstance(record.get("kind"), str), say):
        # A part of the run begins with "start", and where it goes on "resume" is next.
        if is_new or record["kind"] == "resume":
            last_step = figure(record, "step") if record["kind"] == "resume" else None
            records = [r for r in records if r["kind"] not in COMING_AGAIN or
                       last_step is not None and (figure(r, "step") or 0) <= last_step]
        is_new = record["kind"] == "start"
        records.append(record)
    last = {(record["kind"], str(record.get("step"))): i for i, record in enumerate(records)}
    return [r for i, r in enumerate(records) if r["kind"] not in COMING_AGAIN or last[r["kind"], str(r.get("step"))] == i]


def of_kind(records, kind):
    """In the order of their steps; those without a step are left out."""
    return sorted((r for r in records if r["kind"] == kind and figure(r, "step") is not None), key=lambda r: r["step"])


def options_of(text):
    """The options of a config.yaml, as texts. The program writes one a line: name, value, and where it is from."""
    options = {}
    for line in text.split("\n"):
        found = re.fullmatch(r"([a-z0-9_]+): *(\"(?:[^\"\\]|\\.)*\"|[^#]*?)(?: +#.*)?", line)
        if found:
            options[found[1]] = found[2].strip('"')
    return options


def scalars(record, steps):
    """The points that a record is on TensorBoard, {tag: value}, as scalars_of() of src/report/metrics_log.h has them; `steps`:
    of the epoch."""
    names = {"step": {"Loss/step": "loss", "Learning Rate": "lr", "Gradient norm": "grad_norm",
                      "Samples per sec": "samples_per_s"},
             "epoch": {"Loss/train": "loss", "Avg samples per sec": "samples_per_s"},
             "valid": {"Loss/valid": "loss", "Top-1/valid": "top1", "Top-5/valid": "top5"}}.get(record["kind"], {})
    points = {tag: figure(record, key) for tag, key in names.items()}
    if record["kind"] == "epoch" and figure(record, "duration"):
        points["Avg iters per sec"] = steps / record["duration"]
    if record["kind"] == "valid":
        for name, key in (("RMSE", "rmse"), ("ACC", "acc")):
            points.update({f"{name}({channel})/valid": figure(record, key, channel) for channel in part(record, key)})
    return {tag: value for tag, value in points.items() if value is not None}


def curves(records):
    """(step, time, {tag: value}) of each step in order, with its epoch and validation: what the event files for TensorBoard
    have, and when in seconds since 1970-01-01 UTC, None where that is not known."""
    by_step, end_of_last_epoch = {}, 0
    for record in records:
        step = figure(record, "step")
        if step is None:
            continue
        points = scalars(record, step - end_of_last_epoch)
        if record["kind"] in ("epoch", "resume"):
            end_of_last_epoch = step
        if points:
            time, earlier = by_step.get(step, (None, {}))
            by_step[step] = (figure(record, "time") or time, {**earlier, **points})
    return [(step, *by_step[step]) for step in sorted(by_step)]


class Run:
    """A run: `records`; of these `steps`, `epochs`, `valids`, and `start`, which tells of the last part of a run that went
    on, as `summary` does (empty where the part has none yet); `options` of its configuration; `state`: finished, interrupted
    (stopped at a step border), unfinished (still going on, or killed); `notes`: lines that say what is missing."""

    def __init__(self, path):
        self.path, self.label, self.notes = path, os.path.basename(os.path.realpath(path)), []
        if not os.path.isdir(path):
            raise RunError(f"'{shown(path)}' is no run: " + ("it is no folder" if os.path.exists(path) else "it is not there"))
        metrics = os.path.join(path, "metrics.jsonl")
        if not os.path.exists(metrics) and not os.path.exists(os.path.join(path, "summary.json")):
            inside = [entry.name for entry in sorted(os.scandir(path), key=lambda entry: entry.name)
                      if os.path.exists(os.path.join(entry.path, "metrics.jsonl"))]
            raise RunError(f"'{shown(path)}' is no run: it has no metrics.jsonl and no summary.json" +
                           (f"; it holds runs: {shown(os.path.join(path, inside[0]))}, ..." if inside else ""))
        try:
            self.records = records_of(metrics, self.notes.append)
        except OSError as error:
            self.records = []
            self.notes.append(f"{shown(metrics)}: {error.strerror}: no losses and no times of steps")
        self.steps, self.epochs, self.valids = (of_kind(self.records, kind) for kind in ("step", "epoch", "valid"))
        starts = [i for i, record in enumerate(self.records) if record["kind"] == "start"]
        self.start = self.records[starts[-1]] if starts else {}
        resumed = [r for r in self.records[starts[-1] if starts else 0:] if r["kind"] == "resume"]
        self.first_step = (figure(resumed[-1], "step") or 0) if resumed else 0
        self.summary = self.current_summary(parts=len(starts))
        due = (figure(self.summary, "steps") or 0) - self.first_step
        if len(self.new_steps) < due and os.path.exists(metrics):
            self.notes.append(f"{shown(metrics)} has {len(self.new_steps)} of {due} steps: the others were not written, or are lost")
        self.options = self.read_options()
        self.state = ("unfinished" if not self.summary else
                      "interrupted" if self.summary.get("interrupted") is True else "finished")

    def current_summary(self, parts):
        path = os.path.join(self.path, "summary.json")
        try:
            with opened(path) as file:
                summary, written = json.load(file), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            self.notes.append(f"{shown(self.path)} has no summary.json: it is going on or was killed, so nothing is known of "
                              "memory, communication and the ranks' times")
            return {}
        except OSError as error:
            self.notes.append(f"{shown(path)}: {error.strerror}")
            return {}
        except (ValueError, RecursionError):
            self.notes.append(f"{shown(path)} is no JSON, perhaps half of it: left out")
            return {}
        if not isinstance(summary, dict):
            self.notes.append(f"{shown(path)} holds no object: left out")
            return {}
        last = self.steps[-1]["step"] if self.steps else None
        began = (figure(self.start, "time") or 0) - CLOCK_SLACK
        is_of_earlier_part = parts > 1 and (not self.new_steps or written < began)
        if last is not None and (figure(summary, "steps") != last or is_of_earlier_part):
            self.notes.append(f"{shown(path)} is of an earlier part of the run, which has gone on: left out")
            return {}
        missing = [key for key in OF_ALL_SUMMARIES if key not in summary and not (key == "ranks" and "ranks_file" in summary)]
        if missing:
            self.notes.append(f"{shown(path)} is not whole: it has no {', '.join(missing)}; what is left of it is taken")
        return summary

    def read_options(self):
        """Of the last part's configuration: config.yaml, or the one with the highest number."""
        numbers = [int(found[1] or 1) for found in (re.fullmatch(r"config(?:-(\d+))?\.yaml", name)
                                                   for name in os.listdir(self.path)) if found]
        if not numbers:
            self.notes.append(f"{shown(self.path)} has no config.yaml: its options are not known")
            return {}
        path = os.path.join(self.path, f"config-{max(numbers)}.yaml" if max(numbers) > 1 else "config.yaml")
        try:
            with opened(path) as file:
                text = file.read()
        except OSError as error:
            self.notes.append(f"{shown(path)}: {error.strerror}")
            return {}
        options = options_of(text)
        if not options or len(options) < sum(line != "" and line[0] != "#" for line in text.split("\n")):
            self.notes.append(f"{shown(path)} is damaged: {'some of ' if options else ''}its options are not known")
        return options

    @functools.cached_property
    def usage(self):
        """The samples of usage.jsonl; an empty list without any."""
        path = os.path.join(self.path, "usage.jsonl")
        try:
            return list(lines_of(path, lambda sample: figure(sample, "time") is not None, self.notes.append))
        except FileNotFoundError:
            return []
        except OSError as error:
            self.notes.append(f"{shown(path)}: {error.strerror}")
            return []

    @property
    def new_steps(self):
        """Those of the last part, which `start` and `summary` tell of."""
        return [step for step in self.steps if step["step"] > self.first_step]

    @property
    def counted_steps(self):
        """Of `new_steps` those after the ones that warm up: as many as a test says, else the first one."""
        warming = figure(self.summary, "test", "warm_up_steps")
        return self.new_steps[1 if warming is None else warming:] or self.new_steps

    @functools.cached_property
    def ranks(self):
        """Those of the summary, or of the file that it names, with their rank, in order."""
        ranks = self.summary.get("ranks")
        if self.summary.get("ranks_file") == RANKS_FILE:
            ranks = self.rows_of_ranks()
        return sorted((r for r in ranks if figure(r, "rank") is not None), key=lambda r: r["rank"]) if isinstance(
            ranks, list) else []

    def all_notes(self):
        """`notes`, and why figures of the ranks and of the machine's use are not read, which is found when they are asked for."""
        _ = self.ranks, self.usage
        return self.notes

    def rows_of_ranks(self):
        path = os.path.join(self.path, RANKS_FILE)
        try:
            return rank_rows(path)
        except ImportError:
            self.notes.append(f"{shown(path)} is not read: it needs Python's module h5py")
        except (OSError, KeyError, ValueError) as error:
            self.notes.append(f"{shown(path)} is not read: {error}")
        return []

    @property
    def kind(self):
        """training, or by its options test (--test) or range test (--find-lr)."""
        kinds = {"find_lr": "range test", "test_steps": "test"}
        return next((kind for name, kind in kinds.items() if self.options.get(name, "none") != "none"), "training")

    def layout_text(self):
        degrees = [figure(self.start, "layout", axis) for axis in ("dp", "tp", "pp")]
        return " x ".join(map(str, degrees)) if None not in degrees else None


def name_apart(runs):
    """Labels: the end of each path that no other run's path has."""
    parts = {run: os.path.realpath(run.path).split(os.sep) for run in runs}
    lengths = dict.fromkeys(runs, 1)
    while True:
        for run in runs:
            run.label = os.sep.join(parts[run][-lengths[run]:])
        counts = {}
        for run in runs:
            counts.setdefault(run.label, []).append(run)
        same = [run for group in counts.values() if len(group) > 1 for run in group if lengths[run] < len(parts[run])]
        if not same:
            return
        for run in same:
            lengths[run] += 1
