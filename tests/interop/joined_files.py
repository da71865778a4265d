#!/usr/bin/env python3
"""Checks that files beside each other and behind each other are as one: joined by dates, cut anywhere, dealt to tensor ranks.

usage: joined_files.py VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

The same weather is written as one NetCDF-4 file and in pieces: cut in time (files of one row among them), cut by variable, both,
and as Zarr stores of one chunk a field. Statistics must agree to the last bit, losses of every layout and way of reading too
(those of other numbers of ranks to 1e-6), forecasts and their times. What cannot be joined is refused with one line.
All checks run; those that fail are listed at the end.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

import h5py
import numpy

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
    def __init__(self, program, launcher, folder):
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

        def folder(name, *files, code, says=()):
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

    def end(self):
        print(f"{self.count} checks, {len(self.failures)} fail", *self.failures, sep="\n  ")
        assert not self.failures


def main():
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(sys.argv[1], sys.argv[2:], folder)
        trial.data()
        trial.check_statistics()
        trial.check_joins()
        trial.check_layouts()
        trial.check_forecasts()
        trial.end()


main()
