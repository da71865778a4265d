"""Runs with known figures, a page that keeps what is added, a reader of pages, and a stand-in for wandb, for
tests/program/report.py."""
import html.parser
import re
import sys
import unittest

IS_LONG = "--long" in sys.argv
long_test = unittest.skipUnless(IS_LONG, "with --long")
CLASSES = ["parameters", "gradients", "optimizer", "activations", "data"]
MiB = 1 << 20


def start_of(dp=2, tp=1, pp=1, **changes):
    record = {"kind": "start", "time": 1.0, "name": "made", "version": "0.1.0", "git_commit": "0123456789abcdef",
              "layout": {"ranks": dp * tp * pp, "nodes": 1, "dp": dp, "tp": tp, "pp": pp, "global_batch_size": 16,
                         "micro_batch_size": 8},
              "model": {"preset": "", "task": "forecast", "image_size": [8, 16], "patch_size": 4, "tokens": 8, "embed_dim": 32,
                        "depth": 2, "num_heads": 2, "mlp_hidden": 64, "parameters": 1000},
              "machine": {"cpu": "A"}, "precision": "fp32"}
    for key, value in changes.items():
        record[key] = {**record.get(key, {}), **value} if isinstance(value, dict) else value
    return record


def step_of(step, **changes):
    return {"kind": "step", "step": step, "epoch": 1, "loss": 1 / step, "lr": 0.01 * step, "samples": 16,
            "samples_per_s": 32.0 + step, "skipped": False, "seconds": {"step": 0.5, "forward": 0.1, "backward": 0.2}, **changes}


def valid_of(step, epoch, **changes):
    return {"kind": "valid", "step": step, "epoch": epoch, "loss": 0.5 / (epoch + 1), "samples": 4,
            "rmse": {"u": 0.2, "v": 0.4}, "acc": {"u": 0.9, "v": 0.8}, "persistence_rmse": {"u": 0.5, "v": 0.7},
            "persistence_acc": {"u": 0.5, "v": 0.5}, **changes}


def rank_of(rank, steps, largest=10):
    """Bytes and seconds that tell of which rank they are."""
    peak = {name: (i + 1) * MiB + rank * 1024 for i, name in enumerate(CLASSES)}
    return {"rank": rank,
            "seconds": {"step": (1.0 + rank / 100) * steps, "data_wait": 0.1 * steps, "forward": 0.2 * steps,
                        "backward": 0.3 * steps, "reduce": 0.05 * steps, "optimizer": 0.05 * steps, "communication": 0.4 * steps},
            "memory": {"predicted": {name: value + MiB for name, value in peak.items()}, "predicted_total": 19 * MiB,
                       "peak": peak, "total_peak": largest * MiB + rank * 1024, "predicted_process": 49 * MiB,
                       "process_start": 50 * MiB, "process_peak": 100 * MiB, "allocator_peak": 0}}


def summary_of(steps, ranks=2, **changes):
    return {"steps": steps, "samples_per_s": 40.0, "interrupted": False, "seconds_to_first_step": 1.5,
            "communication": [{"axis": "data", "ranks": ranks, "blocked_seconds": 2.0 * steps, "rank_0": {
                "reduce_scatter": {"operations": 2, "bytes": 3 * MiB * steps},
                "all_gather": {"operations": 2, "bytes": MiB * steps}},
                "predicted_per_step": {"bytes": 4 * MiB, "operations": 2}},
                {"axis": "tensor", "ranks": 1, "blocked_seconds": 0.0, "rank_0": {
                    "all_reduce": {"operations": 4, "bytes": 8 * MiB * steps}}}],
            "ranks": [rank_of(rank, steps) for rank in range(ranks)], **changes}


def bare_of(steps):
    """The summary of a run that has figures of nothing."""
    return {"steps": steps, "interrupted": False, "communication": [], "ranks": []}


class PlotCollector:
    """In the place of a page: keeps figures and words."""

    def __init__(self):
        self.figures, self.captions = {}, {}

    def heading(self, *words):
        pass

    paragraph = heading

    def plot(self, figure, caption=""):
        self.figures[figure.axes[0].get_title()] = figure
        self.captions[figure.axes[0].get_title()] = caption


class PageReader(html.parser.HTMLParser):
    """Tags, texts and attributes; the cells of each table."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.tables, self.texts, self.is_in_cell = [], [], [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            self.ids += [value] if name == "id" else []
            self.links += [value] if name in ("src", "href", "xlink:href", "action", "data") else []
            self.links += re.findall(r"url\(([^)]*)\)", value or "")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.is_in_cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.is_in_cell = False

    def handle_data(self, data):
        self.texts.append(data)
        if self.is_in_cell:
            self.tables[-1][-1][-1] += data


STAND_IN_FOR_WANDB = """
import contextlib, json

class Settings(dict):
    pass

class Run:
    dir, summary = "wandb/offline-run/files", {}
    def log(self, points, step):
        pass

@contextlib.contextmanager
def init(**_):
    yield Run()
    json.dump(Run.summary, open("written.json", "w"))
"""


def values_of(bars):
    return [patch.get_height() for patch in bars]
