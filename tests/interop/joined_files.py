#!/usr/bin/env python3
"""Checks that files beside each other and behind each other are as one: joined by dates, cut anywhere, dealt to tensor ranks.

usage: joined_files.py [--long] VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

The same weather is written as one NetCDF-4 file and in pieces: cut in time (files of one row among them), cut by variable, both,
and as Zarr stores of one chunk a field. Statistics must agree to the last bit, losses of every layout and way of reading too
(those of other numbers of ranks to 1e-6), forecasts and their times. What cannot be joined is refused with one line.
All checks run; those that fail are listed at the end. Without --long, what is read in the same way in other checks is left out.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import zlib

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

HEIGHT, WIDTH, LEVELS = 7, 12, [50, 500, 850]
LATITUDES, LONGITUDES = numpy.linspace(90, -90, HEIGHT), numpy.arange(WIDTH) * 30.0
UNITS = {"u10": "m s**-1", "t2m": "K", "z": "m**2 s**-2", "sst": "K", "tp": "m"}
CHANNELS = "z50,u10,z850,t2m,z500"
SMALL = "--patch-size 4 --embed-dim 16 --depth 2 --num-heads 4 --epochs 1 --global-batch-size 4 --device cpu --deterministic".split()
STATISTICS = ("global_means", "global_stds", "time_means", "time_diff_means", "time_diff_stds")
ALONE = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_btl": "self", "OMPI_MCA_pml": "ob1"}  # starts twice as fast
TRAIN_HOURS = 788940 + 6 * numpy.arange(12) + 24 * (numpy.arange(12) > 8)  # from 1990-01-01 12:00, a gap behind row 8
VALID_HOURS = 1017384 + 6 * numpy.arange(8)
OROGRAPHY = numpy.random.default_rng(9).standard_normal((HEIGHT, WIDTH)).astype("f4")


def weather(times, seed):
    random = numpy.random.default_rng(seed)
    plane = lambda *levels: random.standard_normal((times, *levels, HEIGHT, WIDTH)).astype("f4")
    return {"u10": plane() + 3, "t2m": plane() + 280, "z": plane(3) + 3, "sst": plane() + 290, "tp": plane()}


def part(values, names=None, begin=0, end=None):
    return {name: values[name][begin:end] for name in names or values}


def netcdf(path, values, hours, latitudes=LATITUDES, longitudes=LONGITUDES, levels=LEVELS, calendar=None, units="hours since 1900-01-01"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        scales = {"time": (hours, units), "level": (numpy.array(levels, "f8"), "hPa"), "latitude": (latitudes, "degrees_north"),
                  "longitude": (longitudes, "degrees_east")}
        for name, (points, unit) in scales.items():
            if points is not None:
                file[name] = points
                file[name].attrs["units"] = unit
                file[name].make_scale(name)
        if calendar:
            file["time"].attrs["calendar"] = calendar
        file["orography"] = OROGRAPHY
        planes = {**{name: ["time", *["level"][:array.ndim - 3], "latitude", "longitude"] for name, array in values.items()},
                  "orography": ["latitude", "longitude"]}
        for name, dims in planes.items():
            made = file[name] if name in file else file.create_dataset(name, data=values[name])
            made.attrs["units"] = UNITS.get(name, "m")
            for i, dim in enumerate(dims):
                if dim in file:
                    made.dims[i].attach_scale(file[dim])


def zarr_store(store, values, hours, levels_of_chunk):
    store.mkdir(parents=True)
    (store / ".zgroup").write_text('{"zarr_format": 2}')

    def put(name, array, dims, units, chunk):
        (store / name).mkdir()
        (store / name / ".zarray").write_text(json.dumps({
            "zarr_format": 2, "shape": array.shape, "chunks": chunk, "order": "C", "dtype": array.dtype.str, "fill_value": None,
            "filters": None, "compressor": {"id": "zlib", "level": 1}}))
        (store / name / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dims, "units": units}))
        for index in numpy.ndindex(*[-(-n // c) for n, c in zip(array.shape, chunk)]):
            whole = numpy.zeros(chunk, array.dtype)
            piece = array[tuple(slice(i * c, i * c + c) for i, c in zip(index, chunk))]
            whole[tuple(slice(0, n) for n in piece.shape)] = piece
            (store / name / ".".join(map(str, index))).write_bytes(zlib.compress(whole.tobytes(), 1))

    for name, points, units in (("time", hours.astype("i4"), "hours since 1900-01-01"), ("level", numpy.array(LEVELS, "f8"), "hPa"),
                                ("latitude", LATITUDES, "degrees_north"), ("longitude", LONGITUDES, "degrees_east")):
        put(name, points, [name], units, list(points.shape))
    put("orography", OROGRAPHY, ["latitude", "longitude"], "m", [HEIGHT, WIDTH])
    for name, array in values.items():
        planes = [levels_of_chunk] if array.ndim == 4 else []
        put(name, array, ["time", *["level"][:len(planes)], "latitude", "longitude"], UNITS[name], [1, *planes, HEIGHT, WIDTH])


def cut(folder, values, hours, borders, groups=(None,), write=netcdf, suffix=".nc", **options):
    edges = [0, *borders, len(hours)]
    for i, (begin, end) in enumerate(zip(edges, edges[1:])):
        for j, names in enumerate(groups):
            write(folder / f"f{i:02d}_{j}{suffix}", part(values, names, begin, end), hours[begin:end], **options)


APART = (["u10", "sst"], ["t2m", "tp"], ["z"])
WAYS = {  # borders of the training's and the validation's files, and the variables of each file
    "merged": ([], [], (None,)),
    "cut": ([1, 2, 7, 9, 11], [1, 4], (None,)),
    "single": (range(1, 12), range(1, 8), (None,)),
    "apart": ([3, 4, 10], [5], APART),
}
ROLES = {"plain": [], "history": ["--history", 2], "lead": ["--dt", 2], "increment": ["--target", "increment"],
         "dates": ["--train-dates", "1990-01-01/1990-01-03"],
         "all": ["--history", 2, "--forcings", "sst,cos_zenith", "--diagnostics", "tp", "--static", "orography,cos_latitude"]}


class Trial:
    def __init__(self, program, launcher, folder, is_long):
        self.is_long = is_long
        self.program, self.launcher, self.folder = str(pathlib.Path(program).resolve()), launcher, pathlib.Path(folder)
        self.failures, self.count, self.runs = [], 0, 0

    def run(self, *words, ranks=1):
        launcher = [*self.launcher, str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "OMP_NUM_THREADS": "1", **(ALONE if ranks == 1 else {})})
        return done.returncode, done.stdout + done.stderr

    def check(self, name, is_right, what=""):
        self.count += 1
        if not is_right:
            self.failures.append(f"{name}: {what}")

    def data(self):
        for kind, hours, seed in (("train", TRAIN_HOURS, 3), ("valid", VALID_HOURS, 5)):
            values = weather(len(hours), seed)
            for way, (train, valid, groups) in WAYS.items():
                cut(self.folder / way / kind, values, hours, train if kind == "train" else valid, groups)
            for way, borders, groups, levels in (("one-chunk", [], (None,), 3), ("level-chunks", [], (None,), 1),
                                                 ("stores", [4], (None,), 2), ("stores-apart", [], APART, 3)):
                cut(self.folder / way / kind, values, hours, borders, groups, zarr_store, ".zarr", levels_of_chunk=levels)

    def statistics(self, folder, channels, out=None):
        return self.run("data", "stats", folder, "--out", out or f"{folder}-stats", "--channels", channels, "--time-means", "--increments",
                        "--overwrite")

    def bytes_of(self, folder):
        return [(self.folder / f"{folder}-stats" / f"{name}.npy").read_bytes() for name in STATISTICS]

    def check_statistics(self):
        for way in (*WAYS, "one-chunk", "level-chunks", "stores", "stores-apart"):
            code, text = self.statistics(f"{way}/train", CHANNELS + ",sst,tp")
            self.check(f"statistics of {way}", code == 0 and self.bytes_of(f"{way}/train") == self.bytes_of("merged/train"), text[-300:])

    def losses(self, way, *words, ranks=1):
        self.runs += 1
        code, text = self.run(*SMALL, "--train-data", f"{way}/train", "--valid-data", f"{way}/valid", "--stats", "merged/train-stats",
                              "--channels", CHANNELS, "--run-dir", f"run-{self.runs}", *words, ranks=ranks)
        losses = [line for line in text.splitlines() if " loss=" in line and "step" not in line]
        return losses if code == 0 and len(losses) > 2 else [f"ended with {code}: {text.strip()[-300:]}"]

    def check_layouts(self):
        numbers = lambda lines: [float(number) for line in lines for number in re.findall(r"loss=(\S+)", line)]
        modes = ("auto", "independent", "collective")
        for role, words in ROLES.items():
            one = self.losses("merged", *words)
            for way in ("cut", "single", "apart") if role in ("plain", "history", "dates") else ("single",):
                self.check(f"{role}, {way}", self.losses(way, *words) == one, f"not {one}")
            if not self.launcher:
                continue
            layouts = {"plain": (("--dp", 2), ("--tp", 2), ("--pp", 2), ("--dp", 2, "--tp", 2)), "all": (("--tp", 2), ("--tp", 4)), "dates": (("--dp", 2),)}
            for layout in layouts.get(role, (("--tp", 2),)):
                ranks = int(numpy.prod(layout[1::2]))
                merged = self.losses("merged", *words, *layout, ranks=ranks)
                near = len(numbers(merged)) == len(numbers(one)) > 2 and numpy.allclose(numbers(merged), numbers(one), rtol=1e-6, atol=2e-6)
                self.check(f"{role}, {layout}", near, f"{merged}, not {one}")
                stores = [(store, ()) for store in ("one-chunk", "stores", "stores-apart")] if "--tp" in layout else []
                cuts = [("cut", ("--io", modes[1 + len(layout) // 4])), ("apart", ("--io", modes[2])), ("cut", ("--stage-data", "node"))]
                if not self.is_long and (ranks == 4 or role in ("lead", "increment")):  # "plain", "history" and "all" have the others
                    cuts, stores = cuts[:2], stores[1:2]
                for way, more in (cuts[:2] if role == "all" else cuts if role == "plain" else cuts[1:2]) + stores:
                    got = self.losses(way, *words, *layout, *more, ranks=ranks)
                    self.check(f"{role}, {layout}, {way} {more}", got == merged, f"{got}, not {merged}")

    def check_forecasts(self):
        months = 788928 + 24 * numpy.array([0, 31, 59, 90, 120, 151, 181, 212])  # from 1990-01-01
        for way, borders in (("merged", []), ("cut", [4])):
            cut(self.folder / way / "monthly", weather(8, 5), months, borders)
        for data, hours, start, ways in (("valid", VALID_HOURS, 0, ("merged", "cut", "apart", "single")), ("monthly", months, 2, ("merged", "cut"))):
            _, said = self.run(*SMALL, "--train-data", f"merged/{data}", "--valid-data", f"merged/{data}", "--stats", "merged/train-stats",
                               "--channels", CHANNELS, "--run-dir", f"run-{data}")
            for way in ways:
                name = f"forecast of {way}/{data}"
                code, text = self.run("forecast", "--checkpoint", f"run-{data}", "--data", f"{way}/{data}", "--steps", 4, "--start", start,
                                      "--out", f"{way}-{data}.h5", "--device", "cpu")
                self.check(name, code == 0, (said + text)[-300:])
                if code != 0:
                    continue
                with h5py.File(self.folder / f"{way}-{data}.h5") as ours, h5py.File(self.folder / f"merged-{data}.h5") as merged:
                    for array in ("fields", "truth", "time"):
                        is_right = array in ours and numpy.array_equal(ours[array][()], merged[array][()], equal_nan=True)
                        self.check(f"{name}, {array}", is_right, "is another or not there")
                    times = list(ours["truth_time"][()]) if "truth_time" in ours else []
                    self.check(f"{name}, dates of the truth", times == list(hours[start:start + 5]), f"{times}, not {hours[start:start + 5]}")

    def check_joins(self):
        values, hours = weather(6, 1), 788940 + 6 * numpy.arange(6)
        more = weather(6, 2)
        names = "u10,t2m,z500"

        def folder(name, *files, code, says=(), names=names):
            for i, (of_file, times, options) in enumerate(files):
                netcdf(self.folder / name / f"p{i}.nc", of_file, times, **options)
            ended, text = self.statistics(name, names)
            lines = [line for line in text.splitlines() if line.strip()]
            self.check(name, ended == code and all(word in text for word in says) and (code == 0 or len(lines) == 1),
                       f"ended with {ended}, not {code}: {text.strip()[-300:]}")

        u, t, z = (part(values, [name]) for name in ("u10", "t2m", "z"))
        folder("beside", (u, hours, {}), (t, hours, {"calendar": "gregorian"}), ({"z": values["z"][:, ::-1]}, hours, {"levels": LEVELS[::-1]}),
               code=0)
        folder("whole", (values, hours, {}), code=0)
        self.check("beside is whole", self.bytes_of("beside") == self.bytes_of("whole"), "other statistics")
        folder("a level that is nowhere", (u, hours, {}), ({**t, **z}, hours, {}), code=65, names="u10,z700",
               says=["p1.nc has no channel 'z700', and no other file of its times has it; z has the levels"])
        folder("a channel that is nowhere", (u, hours, {}), ({**t, **z}, hours, {}), code=65, names="u10,z500,v10",
               says=["p0.nc has no channel 'v10', and no other file of its times has it; nearest is 'u10'"])
        gap, other_gap = 788940 + numpy.array([[0, 6, 30, 36, 48, 54], [0, 6, 24, 30, 48, 54]])
        folder("gaps of other lengths", (u, gap, {}), ({**t, **z}, other_gap, {}), code=65, says=["dates"])
        folder("other minutes", (u, hours, {}), ({**t, **z}, hours + numpy.array([0, .4, .4, -.4, .4, 0]), {}), code=65, says=["dates"])
        untold = {"latitudes": None, "longitudes": None}
        folder("turned behind untold", (u, hours, untold), (t, hours, {}), (z, hours, {"latitudes": LATITUDES[::-1].copy()}), code=65,
               says=["latitudes"])
        folder("turned", (u, hours, {}), ({**t, **z}, hours, {"latitudes": LATITUDES[::-1].copy()}), code=65, says=["latitudes"])
        folder("untold", (u, hours, untold), (t, hours, {}), (z, hours, untold), code=0)
        folder("channels dealt anew", (values, hours, {}), (part(more, ["u10", "z"]), hours + 36, {}), (part(more, ["t2m"]), hours + 36, {}),
               code=0)
        folder("twice", ({**u, **t}, hours, {}), ({**t, **z}, hours, {}), code=65, says=["both have the channel t2m"])
        folder("other calendar", (u, hours, {}), ({**t, **z}, hours, {"calendar": "noleap"}), code=65, says=["dates are the same"])
        folder("no dates", (u, hours, {}), ({**t, **z}, None, {}), code=65, says=["dates are the same"])
        folder("no rows", (u, hours, {}), ({**t, "z": values["z"][:0]}, None, {}), code=65)
        folder("later", (u, hours, {}), ({**t, **z}, hours + 6, {}), code=65, says=["dates are the same"])
        os.symlink("p0.nc", self.folder / "beside/link.nc")
        code, text = self.statistics("beside", names)
        self.check("a link", code == 65 and "both have the channel u10" in text, text[-300:])
        (self.folder / "beside/link.nc").unlink()
        for old, new in (("p0", "a,b '\u00fc"), ("p1", "% \"c")):
            (self.folder / f"beside/{old}.nc").rename(self.folder / f"beside/{new}.nc")
        code, text = self.statistics("beside", names)
        self.check("names", code == 0 and self.bytes_of("beside") == self.bytes_of("whole"), text[-300:])
        damaged = self.folder / "whole/damaged.nc"
        damaged.write_bytes((self.folder / "whole/p0.nc").read_bytes()[:3000])
        code, text = self.statistics("whole", names)
        self.check("a damaged one beside", code == 65 and "damaged.nc" in text, text[-300:])

    def check_other_dates(self):
        """Files beyond the dates may be anything whose times can be read; before and behind the dates there are states and truths."""
        values, hours = weather(6, 1), 788940 + 6 * numpy.arange(6)  # from 1990-01-01 12:00
        names = "u10,t2m,z500"
        bad = {"units": lambda file: file["u10"].attrs.update(units="km h-1"), "channel": lambda file: file.pop("t2m"),
               "grid": lambda file: file["longitude"].__setitem__(..., LONGITUDES + 10),
               "levels": lambda file: file["level"].__setitem__(..., [1, 2, 3]),
               "interval": lambda file: file["time"].__setitem__(..., file["time"][0] + numpy.arange(6)),
               "dims": lambda file: (file.pop("u10"), file.create_dataset("u10", data=numpy.zeros((4, 4, 4, 4, 4)))),
               "unwritten": lambda file: (file.pop("t2m"), file.create_dataset("t2m", (6, HEIGHT, WIDTH), "f4", chunks=(1, HEIGHT, WIDTH)),
                                          file["t2m"].dims[0].attach_scale(file["time"]))}
        alone = self.folder / "alone"
        netcdf(alone / "m1990.nc", values, hours)
        code, text = self.run("data", "stats", "alone", "--out", "alone-stats", "--channels", names, "--time-means", "--increments")
        self.check("a year alone", code == 0, text[-300:])
        train = (*SMALL, "--stats", "alone-stats", "--channels", names, "--train-dates", "1990")
        losses = lambda text: [line for line in text.splitlines() if " loss=" in line and "step" not in line]
        _, expected = self.run(*train, "--train-data", "alone", "--run-dir", "alone-run")
        for number, (name, spoil) in enumerate(bad.items()):
            for before, year in (("a", 1), ("z", -1))[:2 if self.is_long or number % 3 == 0 else 1]:
                other = self.folder / f"other-{name}-{before}"
                netcdf(other / "m1990.nc", values, hours)
                netcdf(other / f"{before}.nc", weather(6, 2), hours - year * 8766)
                with h5py.File(other / f"{before}.nc", "r+") as file:
                    spoil(file)
                code, text = self.run("data", "stats", other.name, "--out", f"{other.name}-stats", "--channels", names, "--dates", 1990,
                                      "--time-means", "--increments")
                self.check(f"another year's {name}", code == 0 and self.bytes_of(other.name) == self.bytes_of("alone"), text[-300:])
                if before == "a" and (self.is_long or number % 2 == 0):
                    code, text = self.run(*train, "--train-data", other.name, "--run-dir", f"{other.name}-run")
                    self.check(f"training, another year's {name}", code == 0 and losses(text) == losses(expected) != [], text[-300:])
        torn = self.folder / "torn"
        netcdf(torn / "m1990.nc", values, hours)
        (torn / "a.nc").write_bytes((torn / "m1990.nc").read_bytes()[:3000])
        code, text = self.run("data", "stats", "torn", "--out", "x", "--channels", names, "--dates", 1990)
        self.check("times that cannot be read", code == 65 and "a.nc" in text and "so it is not known whether it has times of --dates 1990" in text, text)
        # A store whose rows beyond the dates are not written yet: they are not there.
        zarr_store(self.folder / "growing/s.zarr", weather(8, 5), VALID_HOURS, levels_of_chunk=3)
        for name in ("u10", "t2m"):
            (self.folder / f"growing/s.zarr/{name}/6.0.0").unlink()
        # States before the dates are those of the rows before; targets are of the dates.
        reference = part(weather(8, 5), begin=3)
        netcdf(self.folder / "reference/valid.nc", reference, VALID_HOURS[3:])
        for words, own in ((("--history", 2), "reference"), ((), None)):
            if own is None:
                netcdf(self.folder / "exact/valid.nc", part(weather(8, 5), begin=4), VALID_HOURS[4:])
            expected = self.losses("merged", *words, "--valid-data", own or "exact")
            for way in ("cut", "stores-apart", "merged", "single", "apart", "one-chunk")[:6 if self.is_long or words else 2]:
                got = self.losses("merged", *words, "--valid-data", f"{way}/valid", "--valid-dates", "2016-01-25")
                self.check(f"validation of {way} by dates, {words}", got == expected, f"{got}, not {expected}")
        # Forecasts start in the dates, and truths may lie behind them.
        whole = None
        for way in ("cut", "single", "stores", "merged", "one-chunk")[:5 if self.is_long else 3]:
            name = f"beyond the dates of {way}"
            use = ("--checkpoint", "run-valid", "--data", f"{way}/valid", "--device", "cpu", "--overwrite", "--out")
            code, text = self.run("forecast", *use, "beyond.h5", "--valid-dates", "2016-01-24", "--start", 3, "--steps", 4)
            with h5py.File(self.folder / "beyond.h5") as file:
                self.check(name, code == 0 and list(file["truth_time"][()]) == list(VALID_HOURS[3:]), text[-300:])
            scores = {}
            for words in (("--valid-dates", "2016-01-24"), ("--limit-nsamples", 4)):
                code, text = self.run("evaluate", *use, "beyond.json", "--lead-hours", "6,24", *words)
                scores[words[0]] = json.loads((self.folder / "beyond.json").read_text())["leads"] if code == 0 else text[-300:]
            self.check(f"scores {name}", scores["--valid-dates"] == scores["--limit-nsamples"] and "4 starts" in text, scores)
            code, text = self.run("forecast", *use, "beyond.h5", "--valid-dates", "2016-01-25", "--start", 3, "--steps", 2)
            self.check(f"the last of {way}", code == 0 and "with this time: none of the lead times has truth" in text, text[-600:])
        code, text = self.run("forecast", "--checkpoint", "run-valid", "--data", "growing", "--device", "cpu", "--out", "growing.h5",
                              "--valid-dates", "2016-01-24", "--steps", 8)
        self.check("a store that grows", code == 0 and "with lead time 5: those from 6 to 8 have no truth" in text, text[-600:])

    def check_messages(self):
        hours = 788928 + 6 * numpy.arange(4)
        groups = {"t": ["t2m"], "z": ["z"], "u": ["u10"]}
        for month in range(4):
            for name, of_file in groups.items():
                netcdf(self.folder / f"months/{name}_{month}.nc", part(weather(4, month), of_file), hours + 744 * month)
        use = ("months", "t2m,z500,u10")
        for lost, says in ((2, ["t_2.nc has no channel 'z500'", "z_1.nc has it for others", "the next one that has it is months/z_3.nc"]),
                           (0, ["t_0.nc has no channel 'z500'", "z_1.nc has it for others"]), (3, ["z_2.nc has it for others"])):
            (self.folder / f"months/z_{lost}.nc").rename(self.folder / "lost.nc")
            ways = [self.statistics(*use), self.run(*SMALL, "--train-data", "months", "--channels", use[1], "--run-dir", "lost", "--stats", "x")]
            (self.folder / "lost.nc").rename(self.folder / f"months/z_{lost}.nc")
            for code, text in ways[:2 if lost == 0 else 1]:
                self.check(f"month {lost} without z", code == 65 and all(word in text for word in says), text[-500:])
        for names, code, says in (("z=zz", 65, ["each of ", "has no variable 'zz', which --variables calls z", "nearest is 'z'"]),
                                  ("t2m=t2n", 65, ["has no variable 't2n', which --variables calls t2m", "nearest is 't2m'"]),
                                  ("foo=z,t2m=t2m", 0, [])):
            ended, text = self.run("data", "stats", "months", "--out", "own", "--overwrite", "--channels", use[1], "--variables", names)
            self.check(f"own names {names}", ended == code and all(word in text for word in says), text[-500:])
        # A static field that only the second file of a time has.
        for path in (self.folder / "months").glob("[tu]_*.nc"):
            with h5py.File(path, "r+") as file:
                del file["orography"]
        self.statistics("months", use[1], "months-stats")
        static = (*SMALL, "--train-data", "months", "--channels", use[1], "--stats", "months-stats", "--run-dir")
        _, text = self.run(*static, "static", "--static", "orography")
        _, other = self.run(*static, "static-apart", "--static", "orography", "--static-data", "months/z_0.nc")
        losses = lambda text: [line for line in text.splitlines() if " loss=" in line and "step" not in line]
        self.check("a static field of another file", losses(text) == losses(other) != [], text[-500:])
        code, text = self.run(*static, "static-none", "--static", "orografy")
        says = ["each of ", "t_0.nc", "z_0.nc", "u_0.nc", "has no static field 'orografy'", "nearest is 'orography'", "--static-data"]
        self.check("a static field of no file", code == 65 and all(word in text for word in says), text[-500:])

    def end(self):
        print(f"{self.count} checks, {len(self.failures)} fail", *self.failures, sep="\n  ")
        assert not self.failures


def main():
    with CheckedFolder() as folder:
        words = [word for word in sys.argv[1:] if word != "--long"]
        trial = Trial(words[0], words[1:], folder, is_long="--long" in sys.argv)
        trial.data()
        trial.check_statistics()
        trial.check_joins()
        trial.check_layouts()
        trial.check_forecasts()
        trial.check_other_dates()
        trial.check_messages()
        trial.end()


main()
