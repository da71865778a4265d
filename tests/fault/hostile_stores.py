#!/usr/bin/env python3
"""Checks that Zarr stores and NetCDF-4 files that are damaged, hostile or taken away end with one clear line.

usage: hostile_stores.py [--long] VIT_HYBRID [LAUNCHER...]

Each case makes a small store (or file), spoils it, and asks for statistics or a training: whatever is bad ends with exit code
65 (66, 74, or 64 where the command line is at fault) and one line on stderr, in seconds and in little memory, without bytes
that a terminal obeys; and what ends with 0 has the right numbers. All cases run; those that fail are listed at the end.
"""
import json
import os
import pathlib
import random
import shutil
import struct
import sys
import time
import zlib

import h5py
import numpy

sys.dont_write_bytecode = True  # the tests leave nothing in the sources
import hostile_trial

HEIGHT, WIDTH, TIMES = 7, 12, 9
LEVELS = [50, 500, 850]
HOURS = (numpy.arange(TIMES) * 6 + 788940).astype("i4")  # from 1990-01-01 12:00
LATITUDES, LONGITUDES = numpy.linspace(90, -90, HEIGHT), numpy.arange(WIDTH) * 30.0
SMALL = ("--patch-size 1 --embed-dim 16 --depth 2 --num-heads 2 --global-batch-size 4 --device cpu --io-threads 1").split()


def weather():
    random = numpy.random.default_rng(1990)
    return {"u10": random.standard_normal((TIMES, HEIGHT, WIDTH)).astype("f4") + 3,
            "z": random.standard_normal((TIMES, len(LEVELS), HEIGHT, WIDTH)).astype("f4") + 3}


class Array:
    """One of a v2 store: raw or zlib, chunks of whole rows."""

    def __init__(self, folder, values, dims, units, rows=None, codec=None, fill=None):
        self.folder, self.values = folder, values
        folder.mkdir(parents=True)
        chunk = [rows or values.shape[0], *values.shape[1:]]
        self.write(".zarray", {"zarr_format": 2, "shape": values.shape, "chunks": chunk, "order": "C", "dtype": "<" + values.dtype.str[1:],
                               "compressor": {"id": codec} if codec else None, "filters": None, "fill_value": fill})
        self.write(".zattrs", {"_ARRAY_DIMENSIONS": dims, "units": units})
        for i, begin in enumerate(range(0, values.shape[0], chunk[0])):
            data = values[begin:begin + chunk[0]].tobytes()
            self.chunk(i).write_bytes(zlib.compress(data) if codec else data)

    def write(self, name, json_value):
        (self.folder / name).write_text(json.dumps(json_value))

    def change(self, **changes):
        self.write(".zarray", {**json.loads((self.folder / ".zarray").read_text()), **changes})

    def attribute(self, **changes):
        self.write(".zattrs", {**json.loads((self.folder / ".zattrs").read_text()), **changes})

    def chunk(self, row):
        return self.folder / ".".join([str(row)] + ["0"] * (self.values.ndim - 1))


class Store:
    def __init__(self, folder, rows=None, codec=None, fill=None):
        values = weather()
        self.folder = folder
        self.make = lambda name, points, dims, units: Array(folder / name, points, dims, units, rows, codec, fill)
        self.u10 = self.make("u10", values["u10"], ["time", "latitude", "longitude"], "m s**-1")
        self.z = self.make("z", values["z"], ["time", "level", "latitude", "longitude"], "m**2 s**-2")
        for name, points, units in (("time", HOURS, "hours since 1900-01-01"), ("level", numpy.array(LEVELS, "f8"), "hPa"),
                                    ("latitude", LATITUDES, "degrees_north"), ("longitude", LONGITUDES, "degrees_east")):
            setattr(self, name, Array(folder / name, points, [name], units))
        (folder / ".zgroup").write_text('{"zarr_format": 2}')

    def points(self, name, values):
        """Other values of a coordinate."""
        values = numpy.asarray(values)
        getattr(self, name).change(shape=values.shape, chunks=values.shape, dtype=values.dtype.str)
        (self.folder / name / "0").write_bytes(values.tobytes())


def shard_store(folder, spoil):
    """v3: one array of two chunks in a shard, whose index is spoiled."""
    values = weather()["u10"]
    (folder / "u10/c/0/0").mkdir(parents=True)
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
    shape = [5, HEIGHT, WIDTH]
    (folder / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    (folder / "u10/zarr.json").write_text(json.dumps({
        "zarr_format": 3, "node_type": "array", "shape": values.shape, "data_type": "float32", "fill_value": "NaN",
        "dimension_names": ["time", "latitude", "longitude"], "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, HEIGHT, WIDTH]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": shape, "codecs": codecs, "index_codecs": codecs,
                                                                 "index_location": "end"}}]}))
    data = values.tobytes() + bytes(values[0].nbytes)
    half = len(data) // 2
    index = struct.pack("<4Q", *spoil([0, half, half, half]))
    (folder / "u10/c/0/0/0").write_bytes(data + index)


class StoreTrial(hostile_trial.Trial):
    def stats(self, name, data, *words, channels="u10", codes=(65,), says=()):
        out = self.folder / "out" / data.name
        words = ["data", "stats", data, "--channels", channels, "--out", out, "--overwrite", *words]
        self.judge(name, self.end(self.start(words)), codes, says)
        return out

    def zarr(self, name, spoil, *words, rows=None, codec=None, fill=None, **expected):
        store = Store(self.folder / name.replace(" ", "-") / "s.zarr", rows, codec, fill)
        spoil(store)
        self.stats(name, store.folder.parent, *words, **expected)

    def hdf5(self, name, spoil, *words, **expected):
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        values = weather()
        with h5py.File(folder / "1990.nc", "w") as file:
            for scale, points, units in (("time", HOURS, "hours since 1900-01-01"), ("level", numpy.array(LEVELS, "f8"), "hPa"),
                                         ("latitude", LATITUDES, "degrees_north"), ("longitude", LONGITUDES, "degrees_east")):
                file[scale] = points
                file[scale].attrs["units"] = units
                file[scale].make_scale(scale)
            for variable, dims in (("u10", ["time"]), ("z", ["time", "level"])):
                file[variable] = values[variable]
                for i, dim in enumerate([*dims, "latitude", "longitude"]):
                    file[variable].dims[i].attach_scale(file[dim])
            spoil(file, folder)
        self.stats(name, folder, *words, **expected)

    # Every function below that begins with check_ is a group of cases, which run beside each other.

    def check_attributes(self):
        for value in self.some(["0.01", [0.01, 0.02], {"a": 1}, 0, float("inf"), True, float("nan")]):
            self.zarr(f"scale_factor {value}", lambda s: s.u10.attribute(scale_factor=value), says=["scale_factor"])
        for value in ("-999", [1.0, 2.0]):
            self.zarr(f"_FillValue {value}", lambda s: s.u10.attribute(_FillValue=value), says=["_FillValue"])
        self.zarr("fill and missing differ", lambda s: s.u10.attribute(_FillValue=1.0, missing_value=2.0), says=["missing_value"])
        self.hdf5("h5 scale text", lambda f, _: f["u10"].attrs.update(scale_factor="0.01"), says=["scale_factor"])

    def check_coordinates(self):
        self.zarr("levels twice", lambda s: s.points("level", [500.0, 500.0, 850.0]), channels="z500")
        self.zarr("latitude nan", lambda s: s.points("latitude", [90, 60, numpy.nan, 0, -30, -60, -90.0]), says=["latitude 2 is nan"])
        self.zarr("times unsorted", lambda s: s.points("time", HOURS[::-1]), says=["do not ascend"])
        self.zarr("time nan", lambda s: s.points("time", [*HOURS[:4], numpy.nan, *HOURS[5:].astype("f8")]), says=["the time of row 4 is nan"])
        self.zarr("a time too many", lambda s: s.points("time", numpy.arange(TIMES + 1)), says=["time"])
        self.zarr("a latitude too many", lambda s: s.points("latitude", numpy.linspace(50, 40, HEIGHT + 1)), says=["latitude"])
        self.zarr("a level too many", lambda s: s.points("level", [50.0, 500.0, 850.0, 1000.0]), channels="z500", says=["level"])
        self.zarr("units nan", lambda s: s.time.attribute(units="hours since 1900-01-01 00:00:nan"), "--dates", 1990, says=["no dates"])
        self.zarr("year too large", lambda s: s.time.attribute(units="hours since 67526-01-01"), "--dates", 2080, says=["no dates"])

        def lose_time(store):
            store.time.change(chunks=[1], fill_value=0)
            for i, hour in enumerate(HOURS):
                (store.folder / f"time/{i}").write_bytes(hour.tobytes())
            (store.folder / "time/0").unlink()

        self.zarr("chunk of times lost", lose_time, says=["time"])

    def check_extents(self):
        for rows in (2 ** 62, 2 ** 40, 2 ** 32):
            self.zarr(f"{rows} rows", lambda s: s.u10.change(shape=[rows, HEIGHT, WIDTH], chunks=[1, HEIGHT, WIDTH], fill_value=0))
        self.zarr("bytes of 63 bits", lambda s: s.u10.change(shape=[2 ** 63 - 1, 1, 1], chunks=[2, 1, 1], dtype="|i1"))
        self.zarr("rows of a TiB", lambda s: s.u10.change(shape=[TIMES, 2 ** 20, 2 ** 18], fill_value=0))
        self.zarr("levels without end", lambda s: (s.z.change(shape=[TIMES, 2 ** 40, HEIGHT, WIDTH], chunks=[TIMES, 1, HEIGHT, WIDTH]),
                                                   s.level.change(shape=[2 ** 40], chunks=[1])), codes=(0, 65))
        self.zarr("chunks of nothing", lambda s: s.u10.change(chunks=[0, HEIGHT, WIDTH]), says=["'chunks'[0] is 0"])
        self.zarr("no latitudes", lambda s: s.u10.change(shape=[TIMES, 0, WIDTH]))
        for name, spoil in (("beyond", lambda i: [2 ** 63, 2 ** 63, *i[2:]]), ("all ones", lambda i: [2 ** 64 - 1, 1, *i[2:]]),
                            ("wraps", lambda i: [2 ** 64 - 8, 16, *i[2:]]), ("short", lambda i: [0, 8, *i[2:]])):
            folder = self.folder / f"shard-{name}"
            shard_store(folder / "s.zarr", spoil)
            self.stats(f"shard {name}", folder, says=["c/0/0/0"])

    def check_files(self):
        outside = self.folder / "outside"
        outside.write_bytes(b"x" * weather()["u10"].nbytes)

        def put(make):
            return lambda store: (store.u10.chunk(3).unlink(), make(store.u10.chunk(3)))

        self.zarr("chunk a fifo", put(os.mkfifo), rows=1, fill=0.0, says=["the first of row 3"])
        self.zarr("chunk a folder", put(pathlib.Path.mkdir), rows=1, fill=0.0, codes=(65, 66))
        self.zarr("chunk a device", put(lambda f: f.symlink_to("/dev/zero")), rows=1, fill=0.0, says=["the first of row 3"])
        self.zarr("chunk a link to nothing", put(lambda f: f.symlink_to("/nowhere/annex")), rows=1, fill=0.0, codes=(65, 66),
                  says=["the first of row 3"])
        self.zarr("stray file for a chunk", put(lambda f: f.with_name("3.9.9").write_bytes(b"x")), rows=1, fill=0.0,
                  says=["not wholly written"])
        for codec in (None, "zlib"):
            self.zarr(f"chunk of a TiB {codec}", put(lambda f: (f.touch(), os.truncate(f, 2 ** 40))), rows=1, codec=codec, says=["3.0.0"])
        self.zarr("latitudes of a TiB", lambda s: os.truncate(s.folder / "latitude/0", 2 ** 40), says=["latitude"])

        def consolidate(store, name):
            (store.folder / ".zmetadata").write_text(json.dumps({"metadata": {
                f"{key}/{part}": json.loads((store.u10.folder / part).read_text()) for key in ("u10", name) for part in (".zarray", ".zattrs")}}))

        self.zarr("array outside", lambda s: consolidate(s, "../x"), says=["no path in the store"])
        self.zarr("name of many folders", lambda s: consolidate(s, "/".join("a" * 60000)), codes=(0, 65))

        def many(store):
            array = json.loads((store.u10.folder / ".zarray").read_text())
            (store.folder / ".zmetadata").write_text(json.dumps({"metadata": {f"a{i}/.zarray": array for i in range(5000)}}))

        self.zarr("thousands of names", many)
        for name in ("q\x1b[31m", "q\n2", "\u202eq"):
            self.zarr(f"name {name!r}", lambda s: shutil.copytree(s.u10.folder, s.folder / name).joinpath("0.0.0").unlink(),
                      channels=name, says=["not wholly written"])

    def check_hdf5(self):
        def to_fifo(file, folder):
            os.mkfifo(folder / "fifo")
            file["other"] = h5py.ExternalLink("fifo", "/x")

        def cycles(file, _):
            file["a"], file["b"], file["c"] = h5py.SoftLink("/b"), h5py.SoftLink("/a"), h5py.ExternalLink("1990.nc", "/c")

        def own_scale(file, _):
            references = numpy.empty(3, object)
            for i in range(3):
                references[i] = numpy.array([file["u10"].ref], h5py.ref_dtype)
            del file["u10"].attrs["DIMENSION_LIST"]
            file["u10"].attrs.create("DIMENSION_LIST", references, dtype=h5py.vlen_dtype(h5py.ref_dtype))

        self.hdf5("h5 link to a fifo", to_fifo, codes=(0, 65, 66))
        self.hdf5("h5 links in circles", cycles, codes=(0,))
        self.hdf5("h5 scale of itself", own_scale, codes=(0, 65))
        self.hdf5("h5 levels twice", lambda f, _: f["level"].write_direct(numpy.array([500.0, 500.0, 850.0])), channels="z500")
        self.hdf5("h5 name with lines", lambda f, _: f.create_dataset("q\nx", data=numpy.full((TIMES, HEIGHT, WIDTH), numpy.nan)),
                  channels="q\nx", says=["not finite"])
        self.hdf5("h5 missing alias", lambda f, _: None, "--variables", "z=phi", channels="z500", says=["phi"], codes=(64, 65))

    def check_mutations(self):
        """Bits of metadata and chunks: no crash, whatever they are."""
        chance = random.Random(7)
        store = Store(self.folder / "mutated" / "s.zarr", codec="zlib")
        files = sorted(p for p in store.folder.rglob("*") if p.is_file())
        for i in self.some(range(12)):
            path = chance.choice(files)
            sound = path.read_bytes()
            broken = bytearray(sound)
            broken[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
            path.write_bytes(broken if i % 4 else sound[:chance.randrange(len(sound))])
            self.stats(f"mutation {i} of {path.relative_to(store.folder)}", store.folder.parent, channels="u10,z500", codes=(0, 65))
            path.write_bytes(sound)

    def train(self, data, *words):
        return [*SMALL, "--train-data", data, "--stats", "stats", "--channels", "u10,z500", "--run-dir", f"run-{data}", *words]

    def check_ranks(self):
        Store(self.folder / "sound" / "s.zarr")
        (self.folder / "stats").mkdir()
        for name, value in (("global_means", 3), ("global_stds", 1)):
            numpy.save(self.folder / f"stats/{name}.npy", numpy.full((1, 2, 1, 1), value, "f4"))
        # A point that is not finite, in fields turned and not, in the band of the second tensor rank.
        for turn in (False, True):
            name = f"point-{turn}"
            store = Store(self.folder / name / "s.zarr")
            values = weather()["z"]
            values[6, 1, 5, 3] = numpy.nan
            shutil.rmtree(store.z.folder)
            grid = ["longitude", "latitude"] if turn else ["latitude", "longitude"]
            store.make("z", numpy.ascontiguousarray(numpy.swapaxes(values, -1, -2)) if turn else values, ["time", "level", *grid], "")
            self.judge(name, self.end(self.start(self.train(name, "--epochs", 1, "--tp", 2), 2)), (65,),
                       ["'z' is not finite (nan) at time 6, channel 1 (z500), row 5, column 3"])
        # Chunks that go away while they are read, of an array with a fill value.
        store = Store(self.folder / "gone" / "s.zarr", rows=1, codec="zlib", fill=0.0)
        process = self.start(self.train("gone", "--epochs", 100000), 2)
        deadline = time.monotonic() + hostile_trial.MOST_SECONDS
        while not list(self.folder.glob("run-gone/checkpoints/*")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        assert process.poll() is None, "the training ended before its data could be taken away"
        shutil.rmtree(store.folder)
        self.judge("store gone", self.end(process), (65, 66, 74))
        # Ranks that see different stores: scale factors and coordinates are part of the data.
        for name, spoil in (("scale", lambda s: s.u10.attribute(scale_factor=2.0)), ("times", lambda s: s.points("time", HOURS + 8772))):
            for rank in (0, 1):
                folder = self.folder / name / str(rank)
                stores = [Store(folder / "d" / f"s{number}.zarr") for number in (0, 1)]
                stores[1].points("time", HOURS + 8766)
                if rank == 1:
                    spoil(stores[1])
            wrapper = self.folder / name / "run"
            wrapper.write_text(f'#!/bin/sh\ncd "{self.folder}/{name}/$OMPI_COMM_WORLD_RANK" && exec "{self.program}" "$@"\n')
            wrapper.chmod(0o755)
            words = ["data", "stats", "d", "--channels", "u10", "--out", "o"]
            self.judge(f"other {name} on rank 1", self.end(self.start(words, 2, program=wrapper)), (65,), ["other contents on rank 1"])


hostile_trial.main(StoreTrial)
