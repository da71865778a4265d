#!/usr/bin/env python3
"""Checks that scores by lead, climatologies and anemoi's stores that are damaged, hostile or not to be written end with one clear line.

usage: hostile_scores.py [--long] VIT_HYBRID [LAUNCHER...]

LAUNCHER's last word takes the number of ranks (default: mpirun -q --oversubscribe --bind-to none -n). Each case spoils a small
store, climatology or output: no signal, no exit code 70, one line on stderr with the code that is due, no file under a final
or temporary name where nothing was finished, and inputs as they were. All cases run; those that fail are listed at the end.
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy

sys.dont_write_bytecode = True  # the tests leave nothing in the sources
import hostile_trial

HEIGHT, WIDTH, DAYS = 6, 8, 730
CELLS = HEIGHT * WIDTH
NAMES = ["t2m", "u10", "z500"]
SMALL = "--patch-size 2 --embed-dim 16 --depth 2 --num-heads 2 --global-batch-size 8 --device cpu --io-threads 1 --epochs 1".split()
HOURS_OF_2000 = 876576  # from 1900-01-01


def values(rows):
    return numpy.random.default_rng(1).standard_normal((rows, len(NAMES), HEIGHT, WIDTH)).astype("f4") + 3


def write_json(path, value):
    path.write_text(json.dumps(value))


def weather(path, rows=DAYS, first=1007616, names=NAMES, dates=True, dtype="f4", hours=None):
    """A day a row, from 2014-12-13 on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        fields = file.create_dataset("fields", data=values(rows).astype(dtype))
        fields.attrs["channels"] = ",".join(names)
        scales = [(0, "time", first + numpy.arange(rows) * 24 if hours is None else hours, "hours since 1900-01-01")] if dates else []
        scales += [(2, "latitude", numpy.linspace(90, -90, HEIGHT), "degrees_north"), (3, "longitude", numpy.arange(WIDTH) * 45.0, "degrees_east")]
        for dim, name, points, units in scales:
            file[name] = points
            file[name].attrs["units"] = units
            file[name].make_scale(name)
            fields.dims[dim].attach_scale(file[name])


class Anemoi:
    """A store of version 2 with a date a chunk."""

    def __init__(self, folder, rows=20, height=HEIGHT, width=WIDTH):
        self.folder, self.cells = folder, height * width
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_json(folder / ".zgroup", {"zarr_format": 2})
        write_json(folder / ".zattrs", {"variables": NAMES, "field_shape": [height, width]})
        self.dates = numpy.datetime64("2015-01-01", "s").astype("i8") + numpy.arange(rows) * 86400
        data = numpy.random.default_rng(2).standard_normal((rows, len(NAMES), 1, self.cells)).astype("f4")
        latitudes, longitudes = numpy.meshgrid(numpy.linspace(90, -90, height), numpy.arange(width) * 360.0 / width, indexing="ij")
        self.array("data", data, ["time", "variable", "ensemble", "cell"], [1, len(NAMES), 1, self.cells])
        self.array("dates", self.dates, ["time"], dtype="<M8[s]")
        self.array("latitudes", latitudes.ravel(), ["cell"])
        self.array("longitudes", longitudes.ravel(), ["cell"])

    def array(self, name, points, dims, chunk=None, dtype=None):
        folder = self.folder / name
        folder.mkdir()
        write_json(folder / ".zarray", {"zarr_format": 2, "shape": points.shape, "chunks": chunk or points.shape, "order": "C",
                                        "dtype": dtype or points.dtype.str, "compressor": None, "filters": None, "fill_value": None})
        write_json(folder / ".zattrs", {"_ARRAY_DIMENSIONS": dims})
        parts = [points] if chunk is None else list(points)
        for i, part in enumerate(parts):
            (folder / ".".join([str(i)] + ["0"] * (points.ndim - 1))).write_bytes(numpy.ascontiguousarray(part).tobytes())

    def change(self, name, **changes):
        path = self.folder / name / ".zarray" if name else self.folder / ".zattrs"
        write_json(path, {**json.loads(path.read_text()), **changes})

    def put(self, name, points):
        (self.folder / name / "0").write_bytes(numpy.asarray(points).tobytes())


class ScoreTrial(hostile_trial.Trial):
    def run(self, name, words, codes, says=(), most_file=None):
        self.judge(name, self.end(self.start(words, most_file=most_file)), codes, says)

    def prepare(self):
        weather(self.folder / "wx" / "2014.h5")
        for words in (["data", "stats", "wx", "--out", "st", "--time-means", "--climatology"], ["data", "stats", "wx", "--out", "plain"],
                      [*SMALL, "--train-data", "wx", "--stats", "plain", "--run-dir", "run", "--limit-nsamples", 16]):
            code, _, err = self.end(self.start(words))
            assert code == 0, err

    def scores(self, *words, data="wx"):
        return ["evaluate", "--checkpoint", "run", "--data", data, "--limit-nsamples", 4, *words]

    def anemoi(self, name, spoil, codes=(65,), says=(), **grid):
        store = Anemoi(self.folder / ("a-" + re.sub(r"\W+", "-", name)) / "s.zarr", **grid)
        spoil(store)
        if self.is_long or says:
            self.run(name + ": inspect", ["data", "inspect", store.folder], (0, *codes), says if 0 not in codes else ())
        words = ["data", "stats", store.folder, "--channels", "t2m,u10,z500", "--out", store.folder.parent / "out"]
        self.run(name + ": stats", words, codes, says)

    def climatology(self, name, spoil, codes=(65,), says=()):
        path, out = (self.folder / f"{re.sub(r'[^a-z0-9]+', '-', name)}{end}" for end in (".nc", ".out.nc"))
        shutil.copy(self.folder / "st/climatology.nc", path)
        spoil(path)
        result = self.end(self.start(self.scores("--lead-steps", "1,2", "--climatology", path, "--out", out)))
        left = [p.name for p in self.folder.glob(out.name + "*")]
        self.judge(name, result, codes, says, [f"left {left}"] if left and result[0] != 0 else [])

    # Every function below that begins with check_ is a group of cases, which run beside each other.

    def check_anemoi_grids(self):
        for shape in self.some([[2 ** 40, 2 ** 40], [0, 0], [-6, -8], ["6", 8], [], {}, [48], [8, 6]]):
            self.anemoi(f"field_shape {shape}", lambda s: s.change("", field_shape=shape))
        self.anemoi("field_shape None", lambda s: s.change("", field_shape=None), codes=(0,))
        self.anemoi("field_shape None, latitude nan", lambda s: (s.change("", field_shape=None), s.put("latitudes", numpy.full(CELLS, numpy.nan))))

        def wrap(store):  # rows x columns is the number of cells in 64 bits
            store.change("", field_shape=[16, store.cells // 16 + 2 ** 60])
            store.put("latitudes", numpy.zeros(store.cells))

        self.anemoi("field_shape wraps", wrap, says=["no latitude-longitude grid", "of shape (16, "])
        self.anemoi("field_shape wraps far", wrap, says=["no latitude-longitude grid", "of shape (16, "], height=1024, width=128, rows=2)
        self.anemoi("latitude nan", lambda s: s.put("latitudes", numpy.full(CELLS, numpy.nan)), says=["latitudes"])
        self.anemoi("latitudes of two dims", lambda s: (s.change("latitudes", shape=[HEIGHT, WIDTH], chunks=[HEIGHT, WIDTH]),
                                                        (s.folder / "latitudes/0").rename(s.folder / "latitudes/0.0")), codes=(0, 65))
        self.anemoi("latitudes a number", lambda s: s.change("latitudes", shape=[], chunks=[]))
        for count in (2 ** 30, 2 ** 40):
            self.anemoi(f"{count} latitudes", lambda s: s.change("latitudes", shape=[count], fill_value=0), says=["latitudes"])
        for spoilt in self.some([{"filters": [{"id": "delta", "dtype": "<f8"}]}, {"compressor": {"id": "bz2", "level": 1}},
                                 {"dtype": "<U2"}, {"dtype": "|O"}, {"chunks": [2 ** 40]}]):  # arrays that are refused
            self.anemoi(f"latitudes {spoilt}", lambda s: s.change("latitudes", **spoilt), says=["latitudes", "cannot be read"])

    def check_anemoi_others(self):
        for names in self.some([1, None, ["t2m"], ["t2m"] * 10 ** 5, {}, ["", "", ""], ["a\x1b[31m", "b\n", "\u202e"], [1, 2, 3],
                                ["x" * 10 ** 5] * 3]):
            self.anemoi(f"variables {str(names)[:20]}", lambda s: s.change("", variables=names))
        self.anemoi("member 0", lambda s: s.change("data", shape=[20, 3, 0, CELLS]), says=["0 members"])
        self.anemoi("cells in two chunks", lambda s: s.change("data", chunks=[1, 3, 1, CELLS // 2]), says=["chunks of 24"])
        self.anemoi("chunk of three dims", lambda s: s.change("data", chunks=[1, 3, CELLS]))
        self.anemoi("dates twice", lambda s: s.put("dates", numpy.r_[s.dates[:10], s.dates[9:19]]), says=["do not ascend"])
        nat = numpy.iinfo("i8").min
        for row in (0, 10, 19):
            self.anemoi(f"NaT {row}", lambda s: s.put("dates", numpy.where(numpy.arange(20) == row, nat, s.dates)))
        self.anemoi("dates lost", lambda s: (s.folder / "dates/0").unlink())

    def check_climatologies(self):
        def edit(change):
            def spoil(path):
                with h5py.File(path, "a") as file:
                    change(file)
            return spoil

        def other(**changes):
            return lambda path: weather(path, **{"rows": 366, "first": HOURS_OF_2000, **changes})

        def set_point(file):
            file["fields"][350, 1, 2, 3] = numpy.nan

        self.climatology("whole", lambda p: None, (0,), ["day and hour"])
        for size in (0, 4096, 200000):
            self.climatology(f"cut at {size}", lambda p: os.truncate(p, size))
        self.climatology("a point nan", edit(set_point), says=["not finite (nan) at time 350"])
        self.climatology("days missing", other(rows=300), says=["has 300 days of the year at 0 hours, not all 366"])
        self.climatology("other hours", other(first=HOURS_OF_2000 + 6), says=["has no row for day"])
        self.climatology("other names", other(names=["a", "b", "c"]), says=["no channel 't2m'"])
        self.climatology("other order", other(names=NAMES[::-1]), (0,))
        self.climatology("other type", other(dtype="f8"), (0,))
        self.climatology("no dates", other(dates=False), says=["has no dates"])
        self.climatology("a fifo", lambda p: (p.unlink(), os.mkfifo(p)), (65, 66))
        weather(self.folder / "undated" / "2014.h5", rows=20, dates=False)
        self.run("undated data", self.scores("--lead-steps", 1, "--climatology", "st/climatology.nc", data="undated"), (65,), ["have no dates"])
        # What nobody asked for is not in the way: anomalies are then against the time means.
        self.run("undated data, climatology beside statistics", self.scores("--lead-steps", 1, "--stats", "st", data="undated"), (0,), ["time means"])

    def check_leads(self):
        for leads in self.some(["nan", "inf", "-24", "0", "1e300", ",", "24,24", "24,", "0x18", "25", "24 48", "1e-320", "24\n"]):
            self.run(f"hours {leads!r}", self.scores("--lead-hours", leads), (64,), ["--lead-hours has"])
        for leads in ("1.5", "999999999999999999999", "1,2,1"):
            self.run(f"steps {leads!r}", self.scores("--lead-steps", leads), (64,), ["--lead-steps has"])
        self.run("steps too far", self.scores("--lead-steps", "1e6"), (65,), ["no start has a truth"])
        weather(self.folder / "row" / "2014.h5", rows=1)
        self.run("one row", self.scores("--lead-steps", 1, data="row"), (65,), ["no start has a truth"])
        gaps = 1007616 + numpy.cumsum(numpy.where(numpy.arange(60) % 3 == 2, 48, 24))
        weather(self.folder / "gaps" / "2014.h5", rows=60, hours=gaps)
        self.run("gaps", self.scores("--lead-steps", "1,2", data="gaps"), (0,))
        self.run("beyond gaps", self.scores("--lead-steps", "1,2,3", data="gaps"), (65,), ["2 steps ahead at most"])

    def check_outputs(self):
        inputs = [self.folder / name for name in ("wx/2014.h5", "st/climatology.nc", "st/time_means.npy", "run/checkpoints/latest")]
        (self.folder / "link.nc").symlink_to("st/climatology.nc")
        (self.folder / "data.json").symlink_to("wx/2014.h5")
        os.link(self.folder / "st/climatology.nc", self.folder / "hard.nc")
        self.own = {path: path.read_bytes() for path in inputs}
        for out in ("data.json", "st/climatology.nc", "link.nc", "hard.nc"):
            words = self.scores("--lead-steps", 1, "--climatology", "st/climatology.nc", "--out", out, "--overwrite")
            self.run(f"out is the input {out}", words, (64,), ["which is what is read"])
        # That of --stats, where no --climatology is given.
        shutil.copytree(self.folder / "st", self.folder / "st2")
        self.run("out is the climatology of --stats", self.scores("--lead-steps", 1, "--stats", "st2", "--out", "st2/climatology.nc",
                                                                  "--overwrite"), (64,), ["which is what is read"])
        (self.folder / "folder.json").mkdir()
        (self.folder / "full.json").symlink_to("/dev/full")
        for out, code in (("none/x.nc", 73), ("folder.json", 73), ("full.json", 73), ("/proc/x.nc", 73), ("st", 64), ("wx/2014.h5", 64)):
            self.run(f"out {out}", self.scores("--lead-steps", 1, "--out", out, "--overwrite"), (code,))
        # A limit of file sizes is as a full disk, whether we write or HDF5.
        scores = self.scores("--lead-steps", "1,2,3,4,5,6,7,8")
        forecast = ["forecast", "--checkpoint", "run", "--data", "wx", "--steps", 4]
        waves = "data generate --weather waves --format netcdf --channels t2m --height 8 --width 8 --steps-per-year 100".split()
        for out, words, *limits in (("limit.json", scores, 500), ("limit.nc", scores, 500, 4096), ("limit.h5", forecast, 500, 4096),
                                    ("limit-st", ["data", "stats", "wx", "--climatology"], 500, 10 ** 5), ("limit-era", waves, 500, 20000)):
            for most in limits:
                result = self.end(self.start([*words, "--out", out], most_file=most))
                left = [str(path) for top in self.folder.glob(out + "*") for path in (top, *top.rglob("*")) if path.is_file()]
                self.judge(f"{most} bytes for {out}", result, (73, 74), ["File too large"], [f"left {left}"] if left else [])
        self.fill_disk(scores, forecast)
        changed = [str(path) for path, sound in self.own.items() if path.read_bytes() != sound]
        self.judge("inputs as they were", (0, "", ""), (0,), (), changed)

    def check_one_output(self):
        """Of jobs that write one file at once each writes its own, and the last name stays."""
        words = self.scores("--lead-steps", "1,2,3", "--overwrite", "--out")
        self.run("one job", [*words, "alone.nc"], (0,))
        for process in [self.start([*words, "shared.nc"]) for _ in range(4)]:
            self.judge("four jobs with one output", self.end(process), (0,))
        same = (self.folder / "shared.nc").read_bytes() == (self.folder / "alone.nc").read_bytes()
        left = [path.name for path in self.folder.glob("shared.nc?*")]
        self.judge("output of four jobs", (0, "", ""), (0,), (), [*left, *([] if same else ["other bytes"])])

    def fill_disk(self, scores, forecast):
        """On a disk of 64 KiB that only the program sees, where the system lets us make one."""
        (self.folder / "disk").mkdir(exist_ok=True)
        mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs disk && head -c "$0" /dev/zero > disk/fill && exec "$@"']
        if subprocess.run([*mount, "1", "true"], cwd=self.folder, capture_output=True).returncode != 0:
            print("skipped: no disk can be made here to be full")
            return
        for full in (61000, 52000):
            for out, words in (("o.nc", scores), ("o.json", scores), ("o.h5", forecast)):
                process = self.start([*words, "--out", f"disk/{out}"], before=[*mount, str(full)])
                self.judge(f"{out} on a disk with {65536 - full} bytes", self.end(process), (73, 74), ["No space left on device"])

    def check_mutations(self):
        """Bytes of metadata, dates and points: no crash, whatever they are."""
        chance = random.Random(7)
        store = Anemoi(self.folder / "mutated" / "s.zarr", rows=5)
        files = sorted(p for p in store.folder.rglob("*") if p.is_file() and not p.match("data/*.0"))
        for i in self.some(range(24)):
            path = chance.choice(files)
            sound = path.read_bytes()
            broken = bytearray(sound)
            broken[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
            path.write_bytes(broken)
            self.run(f"mutation {i} of {path.relative_to(store.folder)}", ["data", "inspect", store.folder], (0, 65))
            path.write_bytes(sound)
        sound = (self.folder / "st/climatology.nc").read_bytes()
        with h5py.File(self.folder / "st/climatology.nc") as file:
            begin, size = file["fields"].id.get_offset(), file["fields"].id.get_storage_size()
        for i in self.some(range(16)):
            def spoil(path):
                broken = bytearray(sound)
                for _ in range(4):
                    place = chance.randrange(len(sound) - size)
                    broken[place if place < begin else place + size] ^= 1 << chance.randrange(8)
                path.write_bytes(broken)
            self.climatology(f"climatology mutation {i}", spoil, (0, 64, 65))

    def children(self, process):
        ranks = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "stat").read_text() if entry.name.isdigit() else ""
            except OSError:
                continue
            if words and int(words.rsplit(")", 1)[1].split()[1]) == process.pid and pathlib.Path(self.program).name[:15] in words:
                ranks.append(int(entry.name))
        return sorted(ranks)

    def check_ranks(self):
        leads = ",".join(map(str, range(1, 200)))
        words = ["evaluate", "--checkpoint", "run", "--data", "wx", "--lead-steps", leads, "--out", "killed.nc", "--timeout", 5]
        for name, send, ranks, codes in (("killed", signal.SIGKILL, 3, (137,)), ("stopped", signal.SIGSTOP, 2, (74,))):
            process = self.start(words, ranks, before=["env", "VIT_HYBRID_TIMEOUT=5"])  # also before it reads its options
            deadline = time.monotonic() + 20
            while len(self.children(process)) < ranks and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(1.5)
            assert process.poll() is None, "the evaluation ended before a rank could be " + name
            victim = self.children(process)[-1]
            os.kill(victim, send)
            result = self.end(process)  # the others come to the end of their own part first
            try:
                os.kill(victim, signal.SIGKILL)
            except OSError:
                pass
            left = [p.name for p in self.folder.glob("killed.nc*")]
            self.judge(f"rank {name}", result, codes, ["stopped by a signal"] if send == signal.SIGSTOP else (), left)

    def check(self):
        self.prepare()
        return super().check()


hostile_trial.main(ScoreTrial)
