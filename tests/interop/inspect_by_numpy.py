#!/usr/bin/env python3
"""Checks what `data inspect` tells of Zarr stores and of NetCDF-4 files of variables, against NumPy and h5py.

usage: inspect_by_numpy.py VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

A generated store holds the weather of NetCDF-4 files of the same seed, whose values h5py reads; what the generator does
not write (packed integers, shards, gaps, missing values) comes as stores without codecs, written here.
"""
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy

HEIGHT, WIDTH, STEPS = 9, 16, 20
NAMES = ["q700", "t2m", "u10", "z500", "z850"]  # as the arrays q, t2m, u10, z give them
TIMES, SCALE, OFFSET, MISSING = 10, 0.5, 270.0, -99


def bytes_text(count):
    """Three digits in the unit that suits."""
    units = ["bytes", "KiB", "MiB"]
    while count >= 1000 and len(units) > 1:
        count, units = count / 1024, units[1:]
    return f"{count} bytes" if units[0] == "bytes" else f"{count:.{2 if count < 10 else 1 if count < 100 else 0}f} {units[0]}"


def plane(file, name):
    level = name.lstrip("uqtz")
    if name in file:
        return file[name][:]
    values = file[name[0]]
    return values[:, values.dims[1][0][:].tolist().index(float(level))]


def write_array(store, name, values, chunk, dims, attributes):
    """Of Zarr v2, without codecs; chunks at the edges are whole."""
    folder = store / name
    folder.mkdir()
    (folder / ".zarray").write_text(json.dumps({"zarr_format": 2, "shape": values.shape, "chunks": chunk, "dtype": values.dtype.str,
                                                "compressor": None, "filters": None, "fill_value": None, "order": "C"}))
    (folder / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dims, **attributes}))
    grid = [-(-size // part) for size, part in zip(values.shape, chunk)]
    for index in numpy.ndindex(*grid):
        whole = numpy.zeros(chunk, values.dtype)
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunk))]
        whole[tuple(slice(0, size) for size in part.shape)] = part
        (folder / ".".join(map(str, index))).write_bytes(whole.tobytes())


def write_sharded(store, name, values, dims):
    """Of Zarr v3: a shard is four times, its chunks one, in one file with an index at its end."""
    folder = store / name
    inner = [1, *values.shape[1:]]
    plain = {"name": "bytes", "configuration": {"endian": "little"}}
    sharding = {"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": [plain], "index_codecs": [plain]}}
    shard = [4, *values.shape[1:]]
    for number in range(0, len(values), 4):
        parts = [row.tobytes() for row in values[number:number + 4]]
        index = [(len(parts[0]) * i, len(part)) for i, part in enumerate(parts)] + [(2**64 - 1, 2**64 - 1)] * (4 - len(parts))
        path = folder / "c" / "/".join([str(number // 4)] + ["0"] * (values.ndim - 1))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(parts) + b"".join(struct.pack("<QQ", *entry) for entry in index))
    (folder / "zarr.json").write_text(json.dumps({
        "zarr_format": 3, "node_type": "array", "shape": values.shape, "data_type": "float32", "fill_value": "NaN", "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shard}}, "codecs": [sharding], "dimension_names": dims,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}}))


class Trial:
    def __init__(self, program, launcher, folder):
        self.program, self.launcher, self.folder = program, launcher, pathlib.Path(folder)

    def run(self, *words, code=0, ranks=1):
        launcher = [*self.launcher, str(ranks)] if self.launcher and ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == code, f"{words} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}"
        self.stdout = done.stdout
        return done.stdout if code == 0 else done.stderr

    def inspected(self, *words, **outcome):
        """What follows the name of each array, and the last part."""
        parts, name = {}, ""
        for line in self.run("data", "inspect", *words, **outcome).splitlines():
            if not line.startswith(" "):
                name = line.split(" (")[0].split(":")[0]
            parts[name] = parts.get(name, "") + line + "\n"
        return parts

    def expect_values(self, text, values):
        """The lines of a table: the least and largest value, mean and deviation of the finite ones, and what is none."""
        for name, all_of_it in values.items():
            line = next(line for line in text.splitlines() if line.startswith(f"    {name} "))
            told = list(map(float, line.split()[1:]))
            finite = all_of_it[numpy.isfinite(all_of_it)].astype("f8")
            expected = [finite.min(), finite.max(), finite.mean(), finite.std(), numpy.isnan(all_of_it).sum(), numpy.isinf(all_of_it).sum()]
            assert numpy.allclose(told, expected, rtol=2e-6, atol=1e-9), f"{name}: {told}, not {expected}"

    def data(self):
        for way in ("netcdf", "zarr"):
            self.run("data", "generate", "--out", way, "--weather", "waves", "--format", way, "--channels", "u10,t2m,z:500:850,q700",
                     "--height", HEIGHT, "--width", WIDTH, "--train-years", 1, "--valid-years", 1, "--steps-per-year", STEPS,
                     "--sample-interval-hours", 6, "--seed", 5)
        self.files = [self.folder / "netcdf/train/1990.nc", self.folder / "netcdf/valid/1991.nc"]
        self.values = {}
        for name in NAMES:
            self.values[name] = numpy.concatenate([plane(h5py.File(path), name) for path in self.files])
        with h5py.File(self.files[0]) as file:
            self.statics = {"orography": file["geopotential_at_surface"][:], "lsm": file["land_sea_mask"][:]}

    def check_generated(self):
        store = self.folder / "zarr/weather.zarr"
        texts = [self.inspected("zarr/weather.zarr", "--all", ranks=ranks) for ranks in (1, 2)]
        assert texts[0] == texts[1]
        parts = texts[0]
        for name, planes in (("q", 1), ("t2m", 1), ("u10", 1), ("z", 2)):
            files = [path.stat().st_size for path in (store / name / "c").rglob("*") if path.is_file()]
            row = planes * HEIGHT * WIDTH * 4
            shape = [2 * STEPS, *([planes] if name in "qz" else []), HEIGHT, WIDTH]
            chunk = ", ".join(map(str, [1, *shape[1:]]))
            for line in (f"{name} ({', '.join(map(str, shape))}), 32-bit float, little-endian\n",
                         f"  storage:    chunks ({chunk}), codecs zstd, {bytes_text(sum(files))}\n",
                         f"  files:      {2 * STEPS} chunks, all there, fill value nan\n",
                         f"one row of {bytes_text(row)} = 1 read, 1.00 x the bytes wanted ({bytes_text(round(sum(files) / len(files)))} "
                         f"in files, inflated to {bytes_text(row)})\n",
                         f"  times:      {2 * STEPS} from 1990-01-01 00:00:00 to 1991-01-05 18:00:00, 6 hours apart, 1 gap (before row {STEPS})\n",
                         f"  grid:       {HEIGHT} latitudes from 90 to -90, {WIDTH} longitudes from 0 to 337.5\n",
                         f"  values:     all {2 * STEPS} rows\n"):
                assert line in parts[name], f"no {line} in\n{parts[name]}"
        assert "  dims:       time, level, latitude, longitude\n" in parts["z"] and "  levels:     500, 850 hPa\n" in parts["z"], parts["z"]
        self.expect_values("".join(parts.values()), {**self.values, **self.statics})
        last = parts["all of it"]
        assert "5 channels of 4 arrays" in last and f"one row of {bytes_text(5 * HEIGHT * WIDTH * 4)} = 4 reads, 1.00 x" in last, last
        assert f"  --channels {','.join(NAMES)}\n  --static orography,lsm\n" in last, last
        some = self.inspected("zarr/weather.zarr", "--sample", 3)["t2m"]
        assert f"  values:     3 of {2 * STEPS} rows\n" in some, some
        self.expect_values(some, {"t2m": self.values["t2m"][[6, 20, 33]]})

    def check_netcdf(self):
        """A folder stands for its files, here with the same weather in them; NaN and infinities are counted."""
        (self.folder / "both").mkdir()
        for path in self.files:
            shutil.copy(path, self.folder / "both")
        shutil.copytree(self.folder / "zarr/weather.zarr", self.folder / "both/weather.zarr")
        with h5py.File(self.folder / "both/1991.nc", "r+") as file:
            file["u10"][3, 2, :5], file["u10"][4, 0, 0] = numpy.nan, numpy.inf
            holed = file["u10"][:]
        text = self.run("data", "inspect", "both")
        begins = [text.index(f"both/{name}: ") for name in ("1990.nc", "1991.nc", "weather.zarr")]
        assert begins == sorted(begins) and text.count(f"  --channels {','.join(NAMES)}\n") == 3, text
        assert "\nboth: 3 files together\n  refused:    " in text and "1990-01-01" in text.split("refused:")[-1], text
        shutil.rmtree(self.folder / "both/weather.zarr")
        text = self.run("data", "inspect", "both", ranks=2)
        assert text.endswith(f"both: 2 files together\n  times:      {2 * STEPS} from 1990-01-01 00:00:00 to 1991-01-05 18:00:00, 6 hours apart, "
                             f"1 gap (before row {STEPS})\n  --channels {','.join(NAMES)}\n"), text
        parts = self.inspected("both/1991.nc", "--all")
        self.expect_values("".join(parts.values()), {**{name: self.values[name][STEPS:] for name in NAMES}, **self.statics, "u10": holed})
        assert f"  times:      {STEPS} from 1991-01-01 00:00:00 to 1991-01-05 18:00:00, 6 hours apart\n" in parts["z"], parts["z"]
        assert "  levels:     500, 850 hPa\n" in parts["z"] and "5 channels of 4 arrays" in parts["all of it"], parts

    def check_words(self):
        """What the last part says is what training takes."""
        words = [line.split() for line in self.run("data", "inspect", "zarr/weather.zarr").splitlines() if line.startswith("  --")]
        text = self.run("train", "--train-data", "zarr/weather.zarr", *sum(words, []), "--stats", "zarr/stats2", "--patch-size", 4,
                        "--embed-dim", 8, "--depth", 1, "--num-heads", 1, "--steps", 1, "--global-batch-size", 2, "--device", "cpu")
        assert "5 output" in text or "out-channels 5" in text, text

    def own_store(self):
        """Packed integers in chunks of four times, without a fill value; times with a gap; other points."""
        store = self.folder / "own.zarr"
        store.mkdir()
        (store / ".zgroup").write_text('{"zarr_format": 2}')
        random = numpy.random.default_rng(3)
        hours = numpy.array([0, 6, 12, 18, 24, 36, 42, 48, 54, 60])
        latitudes, longitudes = numpy.linspace(60, -60, 5), numpy.arange(8) * 45.0
        write_array(store, "time", hours, [TIMES], ["time"], {"units": "hours since 2001-01-01"})
        for dim, points, units in (("lat", latitudes, "degrees_north"), ("lon", longitudes, "degrees_east"), ("plev", numpy.array([5e4, 1e4]), "Pa")):
            write_array(store, dim, points, points.shape, [dim], {"units": units})
        packed = random.integers(-50, 50, (TIMES, 5, 8)).astype("<i2")
        packed[2, 1, 3] = packed[9, 4, 7] = MISSING
        write_array(store, "2m_temperature", packed, [4, 5, 8], ["time", "lat", "lon"],
                    {"scale_factor": SCALE, "add_offset": OFFSET, "_FillValue": MISSING})
        levels = random.standard_normal((TIMES, 2, 5, 8)).astype("<f4")
        write_array(store, "temperature", levels, [1, 1, 5, 8], ["time", "plev", "lat", "lon"], {})
        write_array(store, "coarse", levels[:, 0, :3].copy(), [1, 3, 8], ["time", "coarse_lat", "lon"], {})
        write_array(store, "coarse_lat", numpy.array([30.0, 0, -30]), [3], ["coarse_lat"], {"units": "degrees_north"})
        write_array(store, "odd", levels[:, :, :, :3].copy(), [1, 2, 5, 3], ["time", "plev", "lat", "member"], {})
        sharded = random.standard_normal((TIMES, 5, 8)).astype("<f4")
        write_sharded(store, "foo", sharded, ["time", "lat", "lon"])
        return store, numpy.where(packed == MISSING, numpy.nan, packed * SCALE + OFFSET).astype("f4"), levels, sharded

    def check_own_store(self):
        store, unpacked, levels, sharded = self.own_store()
        parts = self.inspected(store, "--all")
        self.expect_values("".join(parts.values()), {"t2m": unpacked, "t500": levels[:, 0], "t100": levels[:, 1], "foo": sharded})
        row = 5 * 8
        for name, line in (("2m_temperature", "2m_temperature (10, 5, 8), 16-bit integer, little-endian\n"),
                           ("2m_temperature", f"  storage:    chunks (4, 5, 8), {3 * 4 * row * 2} bytes\n"),
                           ("2m_temperature", f"  packing:    stored x {SCALE} + {OFFSET:g}; stored {MISSING} is missing\n"),
                           ("2m_temperature", f"one row of {2 * row} bytes = 1 read, 4.00 x the bytes wanted\n"),
                           ("2m_temperature", "  slow:       a sample needs 4.00 times its bytes"),
                           ("temperature", "  files:      20 chunks, all there"),
                           ("temperature", "  levels:     500, 100 hPa\n"),
                           ("temperature", f"one row of {2 * row * 4} bytes = 2 reads, 1.00 x"),
                           ("temperature", "  times:      10 from 2001-01-01 00:00:00 to 2001-01-03 12:00:00, 6 hours apart, 1 gap (before row 5)\n"),
                           ("foo", "  storage:    chunks (1, 5, 8) in shards (4, 5, 8), "), ("foo", "  files:      3 shards, all there"),
                           ("foo", f"one row of {row * 4} bytes = 1 read, 1.00 x the bytes wanted ({round(row * 4 + 3 * 4 * 16 / TIMES)} "
                            f"bytes in files, inflated to {row * 4} bytes)\n"),
                           ("all of it", "all of it: 4 channels of 3 arrays\n"), ("all of it", "  --channels t2m,foo,t500,t100\n"),
                           ("all of it", "  left out:   coarse, of other times or points\n")):
            assert line in parts[name], f"no {line} in\n{parts[name]}"
        assert "values:" not in parts["odd"] and "levels:" not in parts["odd"], parts["odd"]

    def check_refusals(self):
        """Half-written and damaged stores: in the words of a training."""
        broken = self.folder / "broken.zarr"
        def changed(change):
            shutil.rmtree(broken, ignore_errors=True)
            shutil.copytree(self.folder / "zarr/weather.zarr", broken)
            change()
        training = ["train", "--train-data", broken, "--channels", "t2m", "--stats", "zarr/stats2", "--patch-size", 4, "--device", "cpu"]
        changed(lambda: (broken / "t2m/c/7/0/0").unlink())
        parts = self.inspected(broken)
        assert f"  files:      {2 * STEPS} chunks, {2 * STEPS - 1} of them there" in parts["t2m"] and "values:" not in parts["t2m"], parts["t2m"]
        assert "  --channels q700,u10,z500,z850\n" in parts["all of it"], parts["all of it"]
        refused = next(line for line in parts["t2m"].splitlines() if line.startswith("  refused:"))
        said = self.run(*training, code=65)
        assert refused.split("'", 2)[2].strip() in said, f"{refused}\n{said}"
        for change, word in ((lambda: (broken / "zarr.json").write_text('{"zarr_format": 3,'), "is no JSON"),
                             (lambda: (broken / "t2m/c/0/0/0").write_bytes(b"x" * 40), "t2m")):
            changed(change)
            errors = [self.run(*words, code=65) for words in (["data", "inspect", broken, "--all"], training)]
            assert word in errors[0] and errors[0].count("\n") == 1, errors[0]
            assert errors[0].splitlines()[-1] in errors[1] or word != "is no JSON", errors
        # One damaged file of several.
        with open(self.folder / "both/1990.nc", "r+b") as file:
            file.truncate(1000)
        for ranks in (1, 2):
            error = self.run("data", "inspect", "both", code=65, ranks=ranks)
            assert "of 2 files 1 cannot be read: both/1990.nc" in error and error.count("\n") == 1, error
            lines = self.stdout.splitlines()
            assert lines[0].startswith("both/1990.nc: refused: both/1990.nc ") and lines[1].startswith("both/1991.nc: "), self.stdout
            assert f"  --channels {','.join(NAMES)}\n" in self.stdout and "both: 2 files together\n  refused:    both/1990.nc" in self.stdout, self.stdout
        (self.folder / "empty").mkdir()
        assert "holds no file *.h5" in self.run("data", "inspect", "empty", code=66)

    def check(self):
        self.data()
        self.run("data", "stats", "zarr/weather.zarr", "--channels", ",".join(NAMES), "--out", "zarr/stats2")
        self.check_generated()
        self.check_netcdf()
        self.check_words()
        self.check_own_store()
        self.check_refusals()


def main():
    with tempfile.TemporaryDirectory() as folder:
        Trial(sys.argv[1], sys.argv[2:], folder).check()


main()
