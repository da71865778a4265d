#!/usr/bin/env python3
"""Checks that channels are found by name, whatever the layout: NetCDF-4's variables and levels, Zarr v2 and v3.

usage: variables.py [--long] VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

The same weather is stored as one dataset `fields`, and as a variable a quantity in other ways, written with h5py, or
with NumPy alone where it is a Zarr store: statistics, training, evaluation and forecasts must not tell the difference,
to the last bit. Every refusal is asked for once. Without --long only one way of each kind (SPREAD) is read by more than two
ranks, and by `evaluate`.
"""
import gzip
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import zlib

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

HEIGHT, WIDTH, TIMES = 7, 12, 9
LEVELS = [50, 500, 850]
CHANNELS = ["u10", "t850", "z500", "z850", "t2m", "z50"]
LATITUDES, LONGITUDES = numpy.linspace(90, -90, HEIGHT), numpy.arange(WIDTH) * 30.0
SCALE, OFFSET, MISSING = 0.01, 280.0, -32767
UNITS = {"u10": "m s**-1", "t2m": "K", "t": "K", "z": "m**2 s**-2"}
LONG = {"u10": "10m_u_component_of_wind", "t2m": "2m_temperature", "t": "temperature", "z": "geopotential"}


def weather(seed):
    """Values by variable; t2m such that 16 bits hold it exactly."""
    random = numpy.random.default_rng(seed)
    values = {name: random.standard_normal((TIMES, *levels, HEIGHT, WIDTH)).astype("f4") + 3
              for name, levels in (("u10", []), ("t", [len(LEVELS)]), ("z", [len(LEVELS)]))}
    values["packed"] = random.integers(-900, 900, (TIMES, HEIGHT, WIDTH)).astype("i2")
    values["t2m"] = (values["packed"] * SCALE + OFFSET).astype("f4")
    return values


def channel(values, name):
    return values[name] if name in values else values[name[0]][:, LEVELS.index(int(name[1:]))]


def hours_of(year):
    return (numpy.arange(TIMES) * 6 + (year - 1900) * 8766).astype("i4")


def write_fields(path, values, year):
    with h5py.File(path, "w") as file:
        file["fields"] = numpy.stack([channel(values, name) for name in CHANNELS], 1)
        file["fields"].attrs["channels"] = ",".join(CHANNELS)
        file["time"] = hours_of(year)
        file["time"].attrs["units"] = "hours since 1900-01-01"
        file["time"].make_scale("time")
        file["fields"].dims[0].attach_scale(file["time"])
        file["latitude"], file["longitude"] = LATITUDES, LONGITUDES


def turned(values):
    return numpy.ascontiguousarray(numpy.swapaxes(values, -1, -2))


VARIABLES = ("u10", "t2m", "t", "z")


class Netcdf:
    """As netCDF-4 stores variables: HDF5 with dimension scales."""

    def __init__(self, turn=False, packed=False, levels=LEVELS, level_units="hPa", chunks=None, names=None, order="=",
                 variables=VARIABLES, **options):
        self.variables = variables
        self.turn, self.packed, self.levels, self.level_units = turn, packed, levels, level_units
        self.chunks, self.names, self.order, self.options = chunks or {}, names or {}, order, options

    def write(self, path, values, year):
        with h5py.File(path.with_suffix(".nc"), "w") as file:
            scales = {"time": (hours_of(year), "hours since 1900-01-01"), "latitude": (LATITUDES, "degrees_north"),
                      "longitude": (LONGITUDES, "degrees_east"),
                      "level": (numpy.array(self.levels, "f8") * (100 if self.level_units == "Pa" else 1), self.level_units)}
            for name, (points, units) in scales.items():
                file[name] = points
                file[name].attrs["units"] = units
                file[name].make_scale(name)
            places = [LEVELS.index(level) for level in self.levels]
            for name in self.variables:
                is_packed = self.packed and name == "t2m"
                data = values["packed"] if is_packed else values[name]
                data = data[:, places] if data.ndim == 4 else data
                data = turned(data) if self.turn else data
                made = file.create_dataset(self.names.get(name, name), data=data.astype(data.dtype.newbyteorder(self.order)),
                                           chunks=self.chunks.get(data.ndim), **self.options)
                made.attrs["units"] = UNITS[name]
                if is_packed:
                    made.attrs.update(scale_factor=SCALE, add_offset=OFFSET, _FillValue=numpy.int16(MISSING))
                dims = ["time", *["level"][:data.ndim - 3], *(["longitude", "latitude"] if self.turn else ["latitude", "longitude"])]
                for i, dim in enumerate(dims):
                    made.dims[i].attach_scale(file[dim])


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xffffffff)


class Zarr:
    """Stores written from the specifications, by NumPy and the standard library."""

    def __init__(self, version=2, codec=None, shuffled=False, checksum=False, chunk=None, shard=False, at_end=True, big=False,
                 separator=".", turn=False, drop=None, variables=VARIABLES):
        self.variables = variables
        self.version, self.codec, self.shuffled, self.checksum = version, codec, shuffled, checksum
        self.chunk, self.shard, self.at_end, self.big = chunk or {}, shard, at_end, big
        self.separator, self.turn, self.drop = separator, turn, drop

    def encoded(self, values):
        data = values.astype(values.dtype.newbyteorder(">" if self.big else "<")).tobytes()
        if self.shuffled:
            data = numpy.frombuffer(data, "u1").reshape(-1, values.itemsize).T.tobytes()
        data = {None: bytes, "gzip": gzip.compress, "zlib": zlib.compress}[self.codec](data)
        return data + crc32c(data) if self.checksum else data

    def metadata(self, values, chunk, file_chunk, dims):
        kind = {"f4": "float32", "i4": "int32", "f8": "float64",
                "M8[s]": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}}[values.dtype.str[1:]]
        if self.version == 2:
            return {"zarr_format": 2, "shape": values.shape, "chunks": chunk, "order": "C", "dimension_separator": self.separator,
                    "dtype": (">" if self.big else "<") + values.dtype.str[1:], "fill_value": "NaN" if kind == "float32" else None,
                    "compressor": {"id": self.codec, "level": 5} if self.codec else None,
                    "filters": [{"id": "shuffle", "elementsize": values.itemsize}] if self.shuffled else None}
        codecs = [{"name": "bytes", "configuration": {"endian": "big" if self.big else "little"}}]
        codecs += [{"name": "gzip", "configuration": {"level": 5}}] if self.codec else []
        codecs += [{"name": "crc32c"}] if self.checksum else []
        if chunk != file_chunk:
            index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
            codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": chunk, "codecs": codecs, "index_codecs": index,
                                                                    "index_location": "end" if self.at_end else "start"}}]
        return {"zarr_format": 3, "node_type": "array", "shape": values.shape, "data_type": kind, "dimension_names": dims,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": file_chunk}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": codecs,
                "fill_value": "NaN" if kind == "float32" else 0}

    def put(self, store, name, values, dims, attributes):
        chunk = list(self.chunk.get(values.ndim, values.shape))
        per_file = [2, 1, 2, 1][:values.ndim] if self.shard and values.ndim > 2 else [1] * values.ndim
        file_chunk = [c * n for c, n in zip(chunk, per_file)]
        (store / name).mkdir(parents=True)
        metadata = self.metadata(values, chunk, file_chunk, dims)
        if self.version == 2:
            (store / name / ".zarray").write_text(json.dumps(metadata))
            (store / name / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dims, **attributes}))
        else:
            (store / name / "zarr.json").write_text(json.dumps({**metadata, "attributes": attributes}))
        for index in numpy.ndindex(*[-(-extent // c) for extent, c in zip(values.shape, file_chunk)]):
            key = (self.separator if self.version == 2 else "/").join(map(str, index))
            path = store / name / (key if self.version == 2 else f"c/{key}")
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.drop != f"{name}/{key}":
                path.write_bytes(self.file_of(values, [i * c for i, c in zip(index, file_chunk)], chunk, per_file))

    def file_of(self, values, corner, chunk, per_file):
        parts = []
        for inner in numpy.ndindex(*per_file):
            begin = [c + i * n for c, i, n in zip(corner, inner, chunk)]
            whole = numpy.zeros(chunk, values.dtype)
            part = values[tuple(slice(b, b + n) for b, n in zip(begin, chunk))]
            whole[tuple(slice(0, n) for n in part.shape)] = part
            parts.append(self.encoded(whole) if part.size else None)
        if max(per_file) == 1:
            return parts[0]
        bytes_of_index, offset, body, index = 16 * len(parts) + 4, 0, b"", b""
        offset = 0 if self.at_end else bytes_of_index
        for part in parts:
            index += struct.pack("<QQ", *((2 ** 64 - 1,) * 2 if part is None else (offset + len(body), len(part))))
            body += part or b""
        index += crc32c(index)
        return body + index if self.at_end else index + body

    def write(self, path, values, year):
        store = path.with_suffix(".zarr")
        for name, points, units in (("time", hours_of(year), "hours since 1900-01-01"), ("level", numpy.array(LEVELS, "i4"), "hPa"),
                                    ("latitude", LATITUDES, "degrees_north"), ("longitude", LONGITUDES, "degrees_east")):
            self.put(store, name, points, [name], {"units": units})
        for name in self.variables:
            grid = ["longitude", "latitude"] if self.turn else ["latitude", "longitude"]
            self.put(store, LONG[name], turned(values[name]) if self.turn else values[name],
                     ["time", *["level"][:values[name].ndim - 3], *grid], {"units": UNITS[name]})
        self.put_group(store, {})

    def put_group(self, store, attributes):
        if self.version == 2:
            (store / ".zgroup").write_text('{"zarr_format": 2}')
            (store / ".zattrs").write_text(json.dumps(attributes))
        else:
            (store / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}))


class Anemoi(Zarr):
    """One array (date, variable, member, cell), and lists of dates and of each cell's place."""

    NAMES = {"10u": "u10", "2t": "t2m", "lsm": None, "t_850": "t850", "z_50": "z50", "z_500": "z500", "z_850": "z850"}

    def __init__(self, version, rows=1, **options):
        self.rows = rows
        super().__init__(version, chunk={4: (rows, len(self.NAMES), 1, HEIGHT * WIDTH)}, **options)

    def write(self, path, values, year):
        store = path.with_suffix(".zarr")
        mask = numpy.broadcast_to((numpy.arange(WIDTH) % 3 == 0).astype("f4"), (TIMES, HEIGHT, WIDTH))
        fields = numpy.stack([channel(values, name) if name else mask for name in self.NAMES.values()], 1)
        self.put(store, "data", fields.reshape(TIMES, len(self.NAMES), 1, -1), ["time", "variable", "ensemble", "cell"], {})
        self.put(store, "dates", (numpy.datetime64("1900-01-01") + hours_of(year).astype("m8[h]")).astype("M8[s]"), ["time"], {})
        latitudes, longitudes = numpy.meshgrid(LATITUDES, LONGITUDES, indexing="ij")
        self.put(store, "latitudes", latitudes.ravel(), ["cell"], {})
        self.put(store, "longitudes", longitudes.ravel(), ["cell"], {})
        self.put(store, "mean", numpy.zeros(len(self.NAMES)), ["variable"], {})
        self.put_attributes(store, missing_dates=[])

    def put_attributes(self, store, missing_dates, constant=("lsm",)):
        """Without the shape of the grid in one of the versions, where it is to be found in the places of the cells."""
        self.put_group(store, {"variables": list(self.NAMES), "frequency": "6h", "missing_dates": missing_dates,
                               "variables_metadata": {name: {"mars": {}, "constant_in_time": name in constant} for name in self.NAMES},
                               **({"field_shape": [HEIGHT, WIDTH]} if self.version == 2 else {})})


class Apart:
    """The variables of a time in several files and stores."""

    packed = False

    def __init__(self, **ways):
        self.ways = ways

    def write(self, path, values, year):
        for name, way in self.ways.items():
            way.write(path.with_name(f"{name}_{path.name}"), values, year)


WAYS = {
    "contiguous": Netcdf(),
    "turned": Netcdf(turn=True, names=LONG),
    "packed": Netcdf(packed=True, names={"z": "phi"}),
    "deflated": Netcdf(chunks={3: (2, 3, 12), 4: (2, 3, 7, 12)}, compression="gzip", shuffle=True),
    "chunked": Netcdf(chunks={3: (1, 7, 12), 4: (1, 2, 4, 5)}, levels=[850, 50, 500], level_units="Pa"),
    "big": Netcdf(order=">"),
    "v2": Zarr(),
    "v2-zlib": Zarr(codec="zlib", shuffled=True, separator="/", chunk={3: (2, 4, 5), 4: (1, 2, 7, 12)}),
    "v2-gzip-turned": Zarr(codec="gzip", turn=True, big=True, chunk={3: (9, 12, 7), 4: (2, 3, 5, 3)}),
    "v3": Zarr(3, chunk={3: (1, 7, 12), 4: (1, 3, 7, 12)}),
    "v3-gzip": Zarr(3, codec="gzip", checksum=True, big=True),
    "v3-shards": Zarr(3, codec="gzip", checksum=True, shard=True, chunk={3: (2, 2, 12), 4: (1, 3, 2, 6)}),
    "anemoi": Anemoi(2, codec="zlib"),
    "anemoi-v3": Anemoi(3, rows=2, codec="gzip", checksum=True),
    "apart": Apart(a=Netcdf(variables=["u10"], names={"u10": "sst"}), levels=Netcdf(variables=["t", "z"], levels=[850, 50, 500], turn=True),
                   t2m=Zarr(variables=["t2m"]), u10=Zarr(3, codec="gzip", variables=["u10"])),
    "apart-netcdf": Apart(t=Netcdf(variables=["t"]), wind=Netcdf(variables=["u10"]), z=Netcdf(variables=["z", "t2m"])),
    "v3-raw-shards": Zarr(3, shard=True, at_end=False, chunk={3: (1, 2, 12), 4: (1, 1, 2, 12)}),
}


NETCDF = [*(name for name, way in WAYS.items() if isinstance(way, Netcdf) and not way.packed), "apart-netcdf"]

SPREAD = ["fields", "deflated", "v2-zlib", "v3-shards", "anemoi-v3", "apart"]  # one of each kind


class Trial:
    def __init__(self, program, launcher, folder, is_long):
        self.program, self.launcher, self.folder = program, launcher, pathlib.Path(folder)
        self.spread = ["fields", *WAYS] if is_long else SPREAD

    def run(self, *words, code=0, expect=(), ranks=1):
        launcher = [*self.launcher, str(ranks)] if self.launcher and ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"{words} ended with {done.returncode}, not {code}:\n{text}"
        for part in expect:
            assert part in text, f"{words} does not say '{part}':\n{text}"
        return text

    def data(self):
        for part, years in (("train", (1990, 1991)), ("valid", (2016,))):
            for way in ("fields", *WAYS):
                (self.folder / way / part).mkdir(parents=True)
            for year in years:
                values = weather(year)
                write_fields(self.folder / "fields" / part / f"{year}.h5", values, year)
                for name, way in WAYS.items():
                    way.write(self.folder / name / part / f"era5_{year}", values, year)

    def check_by_zarr(self):
        """The stores are what zarr-python reads, too, as far as it is there and knows their version."""
        try:
            import zarr
        except ImportError:
            print("the Zarr stores are not read by zarr-python, which is not there")
            return
        known = {name: way for name, way in WAYS.items()
                 if type(way) is Zarr and (way.version == 2 or not zarr.__version__.startswith("2."))}
        for name, way in known.items():
            for year in (1990, 1991):
                group, values = zarr.open_group(str(self.folder / name / f"train/era5_{year}.zarr"), mode="r"), weather(year)
                for variable in way.variables:
                    found = group[LONG[variable]][:]
                    assert numpy.array_equal(turned(found) if way.turn else found, values[variable]), f"{name}: {variable}"
        print(f"zarr-python {zarr.__version__} reads {', '.join(known)}")

    @staticmethod
    def channels(way):
        names = ",".join(CHANNELS)
        return [] if way == "fields" else ["--channels", names, *(["--variables", "z=phi"] if way == "packed" else [])]

    def check_statistics(self, way):
        self.run("data", "stats", f"{way}/train", "--out", f"{way}/stats", "--time-means", "--increments", *self.channels(way),
                 ranks=3 if way in self.spread else 1)
        for name in ("global_means", "global_stds", "time_means", "time_diff_means", "time_diff_stds"):
            ours, theirs = ((self.folder / w / "stats" / f"{name}.npy").read_bytes() for w in (way, "fields"))
            assert ours == theirs, f"{way}: {name} are others"

    def train(self, way, *words, code=0, expect=(), ranks=1):
        small = "--patch-size 4 --embed-dim 16 --depth 1 --num-heads 2 --epochs 2 --global-batch-size 4 --device cpu --deterministic"
        return self.run(*small.split(), "--train-data", f"{way}/train", "--valid-data", f"{way}/valid", "--stats", "fields/stats",
                        "--run-dir", f"run-{way}", *self.channels(way), *words, code=code, expect=expect, ranks=ranks)

    def check_use(self, way, expected):
        """`expected`: the losses of `fields` by number of ranks, which are those of the first way that is used."""
        numbers_of_ranks = (2, 4) if way == "fields" else (4,) if way in self.spread else (2,)
        for ranks in numbers_of_ranks:
            # The tensor ranks read a band of latitudes each.
            layout = ["--dp", ranks // 2, "--tp", 2] if self.launcher else []
            modes = ["auto", *(["independent", "collective"] if way in NETCDF else [])]
            for mode in modes if self.launcher else modes[:2]:
                folder = f"run-{way}" if mode == "auto" and ranks == numbers_of_ranks[-1] else f"{mode}-{way}-{ranks}"
                text = self.train(way, *layout, "--io", mode, "--run-dir", folder, ranks=ranks)
                losses = [line for line in text.splitlines() if " loss=" in line and "step" not in line]
                assert len(losses) > 3 and losses == expected.setdefault(ranks, losses), f"{way}, {mode}: {losses}, not {expected[ranks]}"
        # The model of `fields` on these data: its channels are found by its names.
        words = self.channels(way)[2:]
        if way in self.spread:
            self.run("evaluate", "--checkpoint", "run-fields", "--data", f"{way}/valid", "--device", "cpu", *words)
        self.run("forecast", "--checkpoint", "run-fields", "--data", f"{way}/valid", "--steps", 12, "--out", f"{way}.h5", "--device",
                 "cpu", *words)
        with h5py.File(self.folder / f"{way}.h5") as ours, h5py.File(self.folder / "fields.h5") as theirs:
            assert (ours["fields"][:] == theirs["fields"][:]).all(), f"{way}: another forecast"
            assert ours["fields"].attrs["channels"] == theirs["fields"].attrs["channels"]
            times = lambda name: ours[name].dims[0][0][:]
            if isinstance(WAYS.get(way), Anemoi):  # seconds since 1970
                times = lambda name: ours[name].dims[0][0][:] / 3600 + 70 * 365.25 * 24 - 12
            assert (times("fields") == hours_of(2016)[0] + 6 * numpy.arange(1, 13)).all(), way
            if way != "fields":
                truth = numpy.stack([channel(weather(2016), name) for name in CHANNELS], 1)
                assert numpy.allclose(ours["truth"][:], truth, rtol=1e-6, atol=1e-5), f"{way}: another truth"
                assert (times("truth") == hours_of(2016)).all(), way
                assert (ours["fields"].dims[2][0][:] == LATITUDES).all() and (ours["fields"].dims[3][0][:] == LONGITUDES).all(), way
                units = ours["fields"].attrs["units"]
                expected_units = ["m/s", "K", *["m2/s2"] * 2, "K", "m2/s2"]  # what ERA5 has, where the store says nothing
                if not isinstance(WAYS[way], Anemoi):
                    expected_units = [UNITS[name if name in UNITS else name[0]] for name in CHANNELS]
                assert (units.decode() if isinstance(units, bytes) else units).split(",") == expected_units, (way, units)

    def check_names(self):
        """Every way to say which channels; and the wrong ones."""
        def stats(way, names, **expected):
            return self.run("data", "stats", f"{way}/train", "--out", "named", "--overwrite", "--channels", names, *(["--variables",
                            expected.pop("variables")] if "variables" in expected else []), **expected)

        def means():
            return numpy.load(self.folder / "named/global_means.npy")[0, :, 0, 0]

        by_channel = dict(zip(CHANNELS, numpy.load(self.folder / "fields/stats/global_means.npy")[0, :, 0, 0]))
        for way, names in (("contiguous", "10u,z:500:50,2m_temperature"), ("v2", "u10,z500,z50,t2m"), ("fields", "u10,z500,z50,t2m"),
                           ("packed", "u10m,z:500:50,2t")):
            stats(way, names, **({"variables": "z=phi"} if way == "packed" else {}))
            assert (means() == [by_channel[name] for name in ("u10", "z500", "z50", "t2m")]).all(), (way, names)
        (self.folder / "named.yaml").write_text("channels: [u10, {z: [500, 50]}, t2m]\n")
        self.run("--config", "named.yaml", "--train-data", "v3/train", "--stats", "named", "--embed-dim", 16, "--depth", 1,
                 "--num-heads", 2, "--patch-size", 4, "--steps", 1, "--device", "cpu", "--run-dir", "run-named", expect=["in-channels 4"])
        # Statistics are found by the channels' names, in whatever order they are.
        small = ["--train-data", "v3/train", "--embed-dim", 16, "--depth", 1, "--num-heads", 2, "--patch-size", 4, "--steps", 2, "--device",
                 "cpu", "--deterministic", "--channels", "z:50,2t,u10"]
        stats("v3", "z50,t2m,u10")
        losses = [[line for line in self.run(*small, "--stats", folder, "--run-dir", f"by-{number}").splitlines() if "train loss=" in line]
                  for number, folder in enumerate(("named", "fields/stats"))]
        assert losses[0] == losses[1] and losses[0], losses
        stats("v3", "z50,t2m,t850")
        self.run(*small, "--stats", "named", "--run-dir", "by-none", code=65, expect=["is of the channels z50,t2m,t850", "not of 'u10'"])
        stats("contiguous", "u10,z550", code=65, expect=["has no channel 'z550'", "z has the levels 50, 500, 850 hPa"])
        stats("v2", "u10,zz500", code=65, expect=["has no channel 'zz500'", "nearest is 'z500'", "geopotential (3 levels)"])
        stats("v2", "u10,10u", code=64, expect=["'u10' and '10u', which are one channel"])
        stats("v2", "u10,u10", code=64, expect=["names 'u10' twice"])
        stats("v2", "z:low", code=64, expect=["'low' is no level"])
        stats("v2", "u10,,t2m", code=64, expect=["names with commas between them"])
        stats("packed", "u10", code=64, variables="z", expect=["--variables has 'z'"])
        self.run("data", "stats", "contiguous/train", "--out", "x", code=65, expect=["has no dataset 'fields'", "--channels"])
        self.run("data", "stats", "v3/train", "--out", "x", code=65, expect=["is a Zarr store", "--channels"])

    def check_dates(self):
        """Parts of one store or folder, by dates: the same as files of these rows alone."""
        hours = hours_of(1990)
        assert hours[0] % 24 == 12  # 12 UTC of 1990-01-01
        values = weather(1990)
        kept = slice(2, 6)  # the rows of 1990-01-02
        (self.folder / "part").mkdir()
        with h5py.File(self.folder / "part/1990.h5", "w") as file:
            file["fields"] = numpy.stack([channel(values, name) for name in CHANNELS], 1)[kept]
        self.run("data", "stats", "part", "--out", "part-stats", "--time-means", "--increments")
        for way in ("fields", "contiguous", "v2-zlib", "v3-shards"):
            self.run("data", "stats", f"{way}/train", "--out", "dated", "--overwrite", "--dates", "1990-01-02", "--time-means",
                     "--increments", *self.channels(way), expect=["from 4 samples"])
            for name in ("global_means", "global_stds", "time_means", "time_diff_means", "time_diff_stds"):
                assert (self.folder / "dated" / f"{name}.npy").read_bytes() == (self.folder / "part-stats" / f"{name}.npy").read_bytes(), (
                    way, name)
            self.train(way, "--run-dir", f"dated-{way}", "--train-dates", "1989/1990-01-02", "--valid-data", f"{way}/train", "--valid-dates",
                       "1990-01-03/1990", expect=["5 pairs from 1 files", "of the dates 1989/1990-01-02", "; 2 for validation"])
            self.train(way, "--run-dir", "undated", "--train-dates", "2050", code=65, expect=["nothing of --train-dates 2050 is in "])
        for dates, says in (("1990/1989", "--train-dates is '1990/1989'"), ("last year", "'last year'"), ("1990-02-30", "YYYY")):
            self.train("v2-zlib", "--run-dir", "undated", "--train-dates", dates, code=64, expect=[says])
        self.run("forecast", "--checkpoint", "run-fields", "--data", "v2/train", "--valid-dates", "1990-01-03", "--steps", 1, "--out",
                 "dated.h5", "--device", "cpu", *self.channels("v2"))
        with h5py.File(self.folder / "dated.h5") as file:
            assert (file["time"][:] == hours[7]).all() and file.attrs["source_time"] == 6
        self.run("data", "stats", "part", "--out", "x", "--dates", "1990", code=65, expect=["has no dates, of which --dates 1990 takes some"])
        self.train("v2", "--run-dir", "shared", "--valid-data", "v2/train", "--valid-dates", "1990-01-03/1990",
                   expect=["3 times of the validation are the training's, too: --train-dates leaves them out"])

    def check_missing_dates(self):
        """What an anemoi store calls missing is a gap, whether its NaN are stored or not."""
        values, missing = weather(1990), [2, 6]  # 1990-01-02 00:00 and 1990-01-03 00:00
        told = [str((numpy.datetime64("1900-01-01") + hours_of(1990)[row].astype("m8[h]")).astype("M8[s]")) for row in missing]
        assert told[0] == "1990-01-02T00:00:00"
        kept = [row for row in range(TIMES) if row not in missing]
        spoilt = {name: array.astype("f4") for name, array in values.items()}
        for array in spoilt.values():
            array[missing] = numpy.nan
        expected = numpy.array([channel(values, name)[kept].astype("f8").mean() for name in CHANNELS])
        for version, rows in ((2, 1), (3, 2)):
            store = self.folder / f"missing-{version}/1990.zarr"
            store.parent.mkdir()
            way = Anemoi(version, rows=rows, codec="gzip")
            way.write(store, spoilt, 1990)
            way.put_attributes(store, missing_dates=[*told, "1999-01-01T00:00:00"])
            for is_stored in (True, False):
                if not is_stored and rows == 1:
                    for row in missing:
                        (store / f"data/{row}.0.0.0").unlink()
                data = store.parent
                self.run("data", "stats", data, "--out", "means", "--overwrite", "--channels", ",".join(CHANNELS),
                         expect=[f"from {len(kept)} samples"])
                means = numpy.load(self.folder / "means/global_means.npy").ravel()
                assert numpy.allclose(means, expected, rtol=1e-6), (version, means, expected)
                text = self.train("anemoi", "--run-dir", f"missing-{version}-{is_stored}", "--train-data", data, "--valid-data", data,
                                  expect=["4 pairs (none crosses the 2 gaps in their times)"])  # of rows 0 1, 3 4 5, 7 8
                assert "nan" not in text.lower(), text
                text = self.run("data", "inspect", store, expect=["2 times by the store's own list, the first row 2"])
            self.run("forecast", "--checkpoint", "run-fields", "--data", data, "--start", 2, "--steps", 3, "--out", "missing.h5", "--overwrite",
                     "--device", "cpu", expect=["have a gap in their times, with lead time 2"])
            with h5py.File(self.folder / "missing.h5") as file:
                assert file.attrs["source_time"] == 3
        way.put_attributes(store, missing_dates=["tomorrow"])
        self.run("data", "stats", store.parent, "--out", "means", "--overwrite", "--channels", "u10", code=65,
                 expect=["the attribute missing_dates has 'tomorrow', which is no date"])

    def check_refusals(self):
        for name in ("v2", "v3-shards", "contiguous", "anemoi"):
            shutil.copytree(self.folder / name, self.folder / f"bad-{name}")
        bad = self.folder / "bad-v2/train/era5_1990.zarr"

        def stats(way, code=65, expect=()):
            self.run("data", "stats", f"{way}/train", "--out", "bad", "--overwrite", "--channels", "u10,z500", code=code, expect=expect)

        # Chunks that are missing, are too short, or are damaged.
        chunk = bad / LONG["u10"] / "0.0.0"
        whole = chunk.read_bytes()
        chunk.unlink()
        stats("bad-v2", expect=["10m_u_component_of_wind", "was not wholly written: 1 of the files of 1 chunks"])
        chunk.write_bytes(whole[:-4])
        stats("bad-v2", expect=["10m_u_component_of_wind/0.0.0 holds a chunk of", "bytes, its values have"])
        chunk.write_bytes(whole)
        stats("bad-v2", code=0)
        metadata = bad / LONG["z"] / ".zarray"
        sound = metadata.read_text()
        for old, new, says in (('"compressor": null', '"compressor": {"id": "lzma"}', "codec 'lzma'"), ('"order": "C"', '"order": "F"', "order"),
                               ('"<f4"', '"<c8"', "cannot be read"), ('{"zarr_format"', "{", ".zarray is no JSON")):
            metadata.write_text(sound.replace(old, new))
            stats("bad-v2", expect=[says])
        metadata.write_text(sound)
        shard = self.folder / "bad-v3-shards/train/era5_1991.zarr" / LONG["z"] / "c/0/0/0/0"
        broken = bytearray(shard.read_bytes())
        broken[-9] ^= 1
        shard.write_bytes(broken)
        stats("bad-v3-shards", expect=["the index of its chunks", "wrong CRC-32C checksum"])
        with h5py.File(self.folder / "bad-contiguous/train/era5_1991.nc", "r+") as file:
            file["t2m"].attrs["units"], file["z"].attrs["units"] = "degC", "m2/s2"
        celsius = self.folder / "bad-contiguous/valid"
        with h5py.File(celsius / "era5_2016.nc", "r+") as file:
            file["t2m"].attrs["units"] = "degC"
        (celsius / "era5_2016.nc").rename(celsius / "era5\n2016.nc")
        self.train("contiguous", "--valid-data", celsius, "--run-dir", "celsius", code=65,
                   expect=["the training data have channel 4 (t2m) in K, the validation data in degC"])
        for words in (["evaluate"], ["forecast", "--out", "celsius.h5"]):
            self.run(*words, "--checkpoint", "run-contiguous", "--data", celsius, "--device", "cpu", *self.channels("contiguous")[2:], code=65,
                     expect=[f"the data have channel 4 (t2m) in degC, the model was trained on it in K (data {celsius}, checkpoint "])
        self.run("data", "stats", "bad-contiguous/train", "--out", "bad", "--overwrite", "--channels", "t2m,z500", code=65,
                 expect=["era5_1991.nc: 't2m' is in degC, that of", "era5_1990.nc in K"])
        stats("bad-contiguous", code=0)
        (self.folder / "grib/train").mkdir(parents=True)
        (self.folder / "grib/train/era5.grib2").write_bytes(b"GRIB" + bytes(64))
        stats("grib", expect=["era5.grib2 is a GRIB file", "grib_to_netcdf"])
        (self.folder / "grib/train/era5.nc").write_bytes(b"GRIB" + bytes(64))
        stats("grib", expect=["era5.nc is a GRIB file, not HDF5"])
        flat = self.folder / "bad-anemoi/train/era5_1991.zarr"
        attributes = json.loads((flat / ".zattrs").read_text())
        for change, says in (({"field_shape": [HEIGHT * WIDTH]}, f"on a grid of shape ({HEIGHT * WIDTH}), which is no latitude-longitude grid"),
                             ({"field_shape": [HEIGHT * 2, WIDTH // 2]}, "degrees_east in column 0"),
                             ({"variables": ["u10"]}, "has 7 variables, the attribute variables names 1"),
                             ({"variables": [name + "1" for name in attributes["variables"]]}, "has no channel 'u10'")):
            (flat / ".zattrs").write_text(json.dumps({**attributes, **change}))
            stats("bad-anemoi", expect=[says])
        latitudes = numpy.repeat(LATITUDES, WIDTH)
        latitudes[WIDTH - 1] = LATITUDES[1]
        (flat / ".zattrs").write_text(json.dumps({**attributes, "field_shape": None}))
        shutil.rmtree(flat / "latitudes")
        WAYS["anemoi"].put(flat, "latitudes", latitudes, ["cell"], {})
        stats("bad-anemoi", expect=["has no attribute field_shape, and latitudes that do not change every so many cells"])
        (flat / ".zattrs").write_text(json.dumps(attributes))
        metadata = flat / "data/.zarray"
        sound = json.loads(metadata.read_text())
        metadata.write_text(json.dumps({**sound, "chunks": [1, 7, 1, WIDTH]}))
        stats("bad-anemoi", expect=["has its cells in chunks of 12"])
        with h5py.File(self.folder / "bad-contiguous/train/era5_1991.nc", "r+") as file:
            file["longitude"][...] += 10.0
        stats("bad-contiguous", expect=["era5_1991.nc has 7 latitudes", "longitudes from 10"])
        with h5py.File(self.folder / "bad-contiguous/train/era5_1991.nc", "r+") as file:
            file["longitude"][...] -= 10.0
            file["level"][...] = [50, 300, 850]
        stats("bad-contiguous", expect=["era5_1991.nc has no channel 'z500'", "levels 50, 300, 850 hPa"])
        with h5py.File(self.folder / "bad-contiguous/train/era5_1991.nc", "r+") as file:
            file["level"][...] = LEVELS
            file["u10"].attrs["_FillValue"] = file["u10"][3, 2, 1]
        stats("bad-contiguous", expect=["'u10' is not finite (nan) at time 3"])
        apart = self.folder / "apart-netcdf/train"
        (apart / "z_era5_1991.nc").rename(self.folder / "z_era5_1991.nc")
        stats("apart-netcdf", expect=["era5_1991.nc has no channel 'z500', and no file of the same times", "z_era5_1990.nc has it for others (19"])
        shutil.copy(apart / "z_era5_1990.nc", apart / "z_era5_1991.nc")
        stats("apart-netcdf", expect=["both have the channel z500 at the same times"])
        shutil.copy(self.folder / "z_era5_1991.nc", apart / "z_era5_1991.nc")
        with h5py.File(apart / "z_era5_1991.nc", "r+") as file:
            file["longitude"][...] += 10.0
        stats("apart-netcdf", expect=["wind_era5_1991.nc and", "z_era5_1991.nc: the variable u10 has 7 latitudes", "longitudes from 10"])
        with h5py.File(apart / "z_era5_1991.nc", "r+") as file:
            file["longitude"][...] -= 10.0
            file["z"].attrs["_FillValue"] = file["z"][3, 1, 2, 1]
        stats("apart-netcdf", expect=["z_era5_1991.nc: dataset 'z' is not finite (nan) at time 3"])
        shutil.copy(self.folder / "z_era5_1991.nc", apart / "z_era5_1991.nc")
        with h5py.File(apart / "z_era5_1991.nc", "r+") as file:
            del file["t2m"]
        stats("apart-netcdf", code=0)
        self.run("data", "stats", "apart-netcdf/train", "--out", "bad", "--overwrite", "--channels", "t2m,z500", code=65,
                 expect=["has no channel 't2m', and no file of the same times"])
        self.train("apart-netcdf", "--stage-data", "node", "--run-dir", "staged", "--channels", "u10,z500", code=64,
                   expect=["--stage-data node is not possible with variables of one time in several files"])
        self.train("v2", "--stage-data", "node", "--run-dir", "staged", code=64, expect=["--stage-data node is not possible", "Zarr store"])
        self.train("v3", "--io", "collective", "--run-dir", "collective", code=64, expect=["collective reading is not possible", "Zarr store"])

    def check_constant_forcing(self):
        """What does not change with time is taken beyond the data's times, as if they went on."""
        small = ["--patch-size", 4, "--embed-dim", 16, "--depth", 1, "--num-heads", 2, "--steps", 1, "--global-batch-size", 4, "--device", "cpu"]
        self.run("data", "stats", "anemoi/train", "--out", "masked", "--channels", "u10,t2m,lsm")
        self.run(*small, "--train-data", "anemoi/train", "--stats", "masked", "--channels", "u10,t2m", "--forcings", "lsm", "--run-dir", "run-masked")
        forecast = ["forecast", "--checkpoint", "run-masked", "--data", "anemoi/valid", "--device", "cpu", "--start", 2, "--steps", 6, "--out"]
        store = self.folder / "anemoi/valid/era5_2016.zarr"
        gap = [str((numpy.datetime64("1900-01-01") + hours_of(2016)[4].astype("m8[h]")).astype("M8[s]"))]
        self.run(*forecast, "whole.h5")
        WAYS["anemoi"].put_attributes(store, missing_dates=gap)
        self.run(*forecast, "cut.h5", expect=["with lead time 1: those from 2 to 6 have no truth"])
        with h5py.File(self.folder / "whole.h5") as whole, h5py.File(self.folder / "cut.h5") as cut:
            assert numpy.array_equal(whole["fields"], cut["fields"]) and numpy.isfinite(cut["fields"]).all()
        WAYS["anemoi"].put_attributes(store, missing_dates=gap, constant=())
        self.run(*forecast, "other.h5", code=64, expect=["--steps is 6; allowed: 1 to 2: the model takes lsm from the data"])
        self.run("forecast", "--checkpoint", "run-fields", "--data", store, "--device", "cpu", "--out", store / "data/f.zarr", code=64,
                 expect=[f"which would be a part of the data's store {store}"])

    def check(self):
        self.data()
        self.check_by_zarr()
        self.check_statistics("fields")
        expected = {}
        self.check_use("fields", expected)
        for way in WAYS:
            self.check_statistics(way)
            self.check_use(way, expected)
        self.check_names()
        self.check_dates()
        self.check_missing_dates()
        self.check_refusals()
        self.check_constant_forcing()


def main():
    with CheckedFolder() as folder:
        words = [word for word in sys.argv[1:] if word != "--long"]
        Trial(words[0], words[1:], folder, is_long="--long" in sys.argv).check()


main()
